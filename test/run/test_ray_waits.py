"""Every wait for Ray sleeps between two looks, ends at its deadline, and says what it last saw."""

from __future__ import annotations

import pytest
from fakes.answers import Answer, Asked, Server, kubeconfig, status
from fakes.clock import FakeClock

from nemo_run.core.execution._raystate import job_phase
from nemo_run.core.execution.kuberay import KubeRayExecutor
from nemo_run.exceptions import JobFailed, NotAuthorized, Rejected, WaitTimeout
from nemo_run.run.ray._jobs import waits_for
from nemo_run.run.ray.kuberay import KubeRayCluster, KubeRayJob

GONE = status(404, "NotFound", "not found", name="c", kind="rayclusters")
EMPTY = Answer(200, {"items": [], "metadata": {}})


class Cluster:
    """A server with one Ray object: its answers by what is asked for."""

    def __init__(self, obj: Answer, *, events: Answer = EMPTY, pods: Answer = EMPTY) -> None:
        self.obj, self.events, self.pods = obj, events, pods
        self.looks = 0

    def __call__(self, asked: Asked) -> Answer:
        if asked.path.endswith("/events"):
            return self.events
        if asked.path.endswith("/pods"):
            return self.pods
        self.looks += 1
        return self.obj


def raycluster(**fields):
    return Answer(200, {"metadata": {"name": "c", "namespace": "default", "uid": "u"}, "spec": {}, **fields})


def rayjob(**fields):
    return Answer(200, {"metadata": {"name": "j", "namespace": "default", "uid": "u"}, "spec": {}, "status": fields})


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(answers):
        server = Server(answers)
        server.__enter__()
        servers.append(server)
        return KubeRayExecutor(kubeconfig=str(kubeconfig(tmp_path / f"kubeconfig{len(servers)}", server.url)))

    yield start
    for server in servers:
        server.__exit__()


def cluster_on(executor):
    made = KubeRayCluster(name="c", executor=executor)
    made._clock = FakeClock()
    return made


def test_ten_minutes_are_ten_minutes(serve):
    answers = Cluster(raycluster(status={"state": "", "head": {}}))
    cluster = cluster_on(serve(answers))
    with pytest.raises(WaitTimeout, match="within 600 s; last seen: starting"):
        cluster.wait_until_running(timeout=600, delay_between_attempts=5)
    assert cluster._clock.time == 600
    assert set(cluster._clock.sleeps) == {5}
    assert answers.looks == 121


def test_a_cluster_without_a_status_is_waited_for_and_then_told(serve):
    cluster = cluster_on(serve(Cluster(raycluster())))
    with pytest.raises(WaitTimeout, match="is the KubeRay operator running"):
        cluster.status(timeout=60, delay_between_attempts=5)
    assert cluster._clock.time == 60


def test_a_refused_cluster_is_not_waited_for(serve):
    event = {"reason": "InvalidRayClusterSpec", "message": "too long", "involvedObject": {"uid": "u"}}
    cluster = cluster_on(serve(Cluster(raycluster(), events=Answer(200, {"items": [event], "metadata": {}}))))
    with pytest.raises(Rejected, match="too long"):
        cluster.wait_until_running()
    assert cluster._clock.time == 0


def test_the_event_of_an_earlier_cluster_of_that_name_is_not_ours(serve):
    event = {"reason": "InvalidRayClusterSpec", "message": "too long", "involvedObject": {"uid": "earlier"}}
    cluster = cluster_on(serve(Cluster(raycluster(), events=Answer(200, {"items": [event], "metadata": {}}))))
    with pytest.raises(WaitTimeout):
        cluster.status(timeout=10)


def test_without_the_right_to_read_events_a_wait_goes_on(serve):
    forbidden = status(403, "Forbidden", "events is forbidden")
    cluster = cluster_on(serve(Cluster(raycluster(status={"state": ""}), events=forbidden)))
    with pytest.raises(WaitTimeout):
        cluster.wait_until_running(timeout=20)


def test_a_cluster_that_is_deleted_ends_the_wait(serve):
    cluster = cluster_on(serve(Cluster(GONE)))
    with pytest.raises(JobFailed, match="was deleted"):
        cluster.wait_until_running()
    assert cluster.status() is None


def test_forbidden_is_not_gone(serve):
    executor = serve(Cluster(status(403, "Forbidden", "rayclusters is forbidden")))
    with pytest.raises(NotAuthorized):
        cluster_on(executor).status()
    with pytest.raises(NotAuthorized):
        KubeRayJob(name="j", executor=executor).status(display=False)


def test_a_finalizer_that_holds_is_named(serve, caplog):
    held = raycluster()
    held.body["metadata"]["finalizers"] = ["ray.io/rayjob-finalizer"]
    cluster = cluster_on(serve(Cluster(held)))
    assert cluster.delete(wait=True, timeout=300, poll_interval=5) is False
    assert cluster._clock.time == 300
    assert set(cluster._clock.sleeps) == {5}
    assert "ray.io/rayjob-finalizer holds: is the KubeRay operator running?" in caplog.text


def test_following_a_suspended_job_goes_on_until_its_time_is_up(serve, caplog):
    job = KubeRayJob(name="j", executor=serve(Cluster(rayjob(jobDeploymentStatus="Suspended"))))
    job._clock = FakeClock()
    job.logs(follow=True, timeout=30)
    assert "within 30 s; last seen: Suspended/UNKNOWN" in caplog.text
    assert 30 <= job._clock.time < 40
    assert min(job._clock.sleeps) > 0


def test_that_a_job_runs_is_told_once(serve, caplog):
    running = rayjob(jobDeploymentStatus="Running", jobStatus="RUNNING", rayClusterName="c")
    job = KubeRayJob(name="j", executor=serve(Cluster(running)))
    job._clock = FakeClock()
    with caplog.at_level("INFO", "nemo_run"):
        job.logs(follow=True, timeout=30)
    assert caplog.messages.count(f"RayJob {job.job_name}: Running/RUNNING") == 1


def test_a_cluster_that_is_ready_is_nothing_to_wait_for(serve):
    """What a job on a cluster that is there waits for then, its submitter, is told by who follows it."""
    conditions = [{"type": "HeadPodReady", "status": "True"}]
    ready = raycluster(status={"conditions": conditions, "head": {"serviceIP": "10.0.0.1"}})
    job = KubeRayJob(name="j", executor=serve(Cluster(ready)))
    phase = job_phase({"status": {"jobDeploymentStatus": "Running", "rayClusterName": "c"}})
    assert waits_for(job._connect(), "default", "j", phase) == ""


def test_stopping_with_wait_ends_at_its_deadline(serve, caplog):
    job = KubeRayJob(name="j", executor=serve(Cluster(rayjob(jobDeploymentStatus="Running", rayClusterName="c"))))
    job._clock = FakeClock()
    job.stop(wait=True, timeout=20)
    assert job._clock.time == 20
    assert "the end of RayJob" in caplog.text


def test_stopping_with_wait_waits_for_the_submitter_too(serve, caplog):
    """Kubernetes removes it some time after the RayJob, and a new one of that name would meet it."""
    done = Answer(200, {"kind": "Status", "status": "Success"})
    left = Answer(200, {"items": [{"metadata": {"name": "j-abcde", "namespace": "default"}}], "metadata": {}})

    def answers(asked):
        if asked.path.endswith("/pods"):
            return left if "job-name" in dict(asked.query)["labelSelector"] else EMPTY
        return done if asked.method == "DELETE" else GONE

    job = KubeRayJob(name="j", executor=serve(answers), cluster_name="c")
    job._clock = FakeClock()
    job.stop(wait=True, timeout=20)
    assert "last seen: pods j-abcde" in caplog.text


def test_a_server_that_is_away_for_a_while_says_nothing_about_the_job(serve, caplog):
    gone_away = iter([status(500, "InternalError", "etcd")] * 3)
    answers = Cluster(rayjob(jobDeploymentStatus="ValidationFailed", reason="ValidationFailed", message="why"))
    executor = serve(lambda asked: next(gone_away, None) or answers(asked))
    job = KubeRayJob(name="j", executor=executor)
    job._clock = FakeClock()
    real = job._connect()
    job._connect = lambda: real.patient(0)
    ended = job.follow_logs_until_completion(poll_interval=2, delete_on_finish=False)
    assert (ended["jobDeploymentStatus"], ended["message"]) == ("ValidationFailed", "why")
    assert job._clock.sleeps
    assert "asking again" in caplog.text
