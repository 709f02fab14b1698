"""Ray clusters from start to end on a cluster with KubeRay."""

from __future__ import annotations

import _thread
import json
import threading
import urllib.request

import pytest
from raying import ray_kube, workdir_executor

from nemo_run._kube.resources import POD, RAYCLUSTER
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.exceptions import ConfigError, Conflict, NotFound, Rejected, Unreachable, WaitTimeout
from nemo_run.run.ray.cluster import RayCluster
from nemo_run.run.ray.job import RayJob
from nemo_run.testing import Pod, Respond


@pytest.fixture(scope="module")
def running():
    with ray_kube() as kube:
        yield kube


@pytest.fixture
def kube(running, monkeypatch):
    """One cluster for all tests here."""
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(running.kubeconfig))
    return running


@pytest.fixture
def cluster(request, kube):
    name = f"c{abs(hash(request.node.name)) % 10**8}"
    made = RayCluster(name=name, executor=KubeRayExecutor(), log_level="ERROR")
    yield made
    for forward in made._port_forward_map.values():
        forward.stop_forwarding()
    made.backend.delete()


def stored(kube, cluster):
    return kube.do(lambda store: store.get(RAYCLUSTER, "default", cluster.backend.cluster_name))


def jobs_at(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/jobs/", timeout=20) as answer:
        return json.loads(answer.read())


def test_a_cluster_comes_up_is_used_and_goes(kube, cluster):
    cluster.executor.worker_groups = [KubeRayWorkerGroup("w")]
    assert cluster.start(timeout=60) is None
    assert cluster.status()["state"] == "ready"
    cluster.port_forward(port=0)
    cluster.port_forward(port=0)
    ports = list(cluster._port_forward_map)
    assert [jobs_at(port) for port in ports] == [[], []]
    cluster.stop()
    assert cluster.status() is None
    assert (
        kube.do(lambda store: store.list(POD, "default", labels=f"ray.io/cluster={cluster.backend.cluster_name}")) == []
    )
    for port in ports:
        with pytest.raises(OSError):
            jobs_at(port)
    assert cluster.backend.delete() is None


def test_forwarding_outlives_the_head(kube, cluster):
    cluster.start(timeout=60)
    cluster.port_forward(port=0)
    (port,) = cluster._port_forward_map
    assert jobs_at(port) == []
    name = cluster.backend.status()["head"]["podName"]
    kube.do(lambda store: store.delete(POD, "default", name, grace=0))
    deadline = threading.Event()
    for _ in range(60):
        try:
            assert jobs_at(port) == []
            break
        except OSError:
            deadline.wait(0.5)
    else:
        pytest.fail("the new head was not reached")


def test_what_cannot_be_forwarded_is_an_error_at_once(kube, cluster):
    with pytest.raises(NotFound):
        cluster.port_forward(port=0)
    cluster.start(timeout=60)
    with pytest.raises(Unreachable, match="connection refused"):
        cluster.port_forward(port=0, target_port=9)
    with pytest.raises(ConfigError, match="cannot listen"):
        cluster.port_forward(port=70000)
    with kube.fault(Respond(403, on="GET */portforward")), pytest.raises(RuntimeError, match="pods/portforward"):
        cluster.port_forward(port=0)


def test_ours_is_used_again_if_it_is_alike(kube, cluster):
    cluster.start(wait_until_ready=False)
    uid = stored(kube, cluster)["metadata"]["uid"]
    cluster.start(wait_until_ready=False)
    assert stored(kube, cluster)["metadata"]["uid"] == uid
    cluster.executor.image = "other"
    with pytest.raises(Conflict, match=r"image: 'rayproject/ray:2.43.0' there, 'other' now"):
        cluster.start()
    assert stored(kube, cluster)["metadata"]["uid"] == uid


def test_someone_elses_is_left_alone(kube, cluster):
    cluster.start(wait_until_ready=False)
    name = cluster.backend.cluster_name

    def give_away(store):
        body = store.get(RAYCLUSTER, "default", name)
        body["metadata"]["labels"]["nemo-run/user"] = "bob"
        store.update(RAYCLUSTER, body)

    kube.do(give_away)
    with pytest.raises(Conflict, match="not ours"):
        cluster.start()


def test_a_wait_in_vain_says_what_it_waited_for(kube, cluster):
    with kube.fault(Pod("*-head-*", "ImagePullBackOff")), pytest.raises(WaitTimeout, match="ImagePullBackOff"):
        cluster.start(timeout=4)
    assert stored(kube, cluster)


def test_ctrl_c_while_waiting_leaves_no_half_made_cluster(kube, cluster):
    timer = threading.Timer(2, _thread.interrupt_main)
    with kube.fault(Pod("*-head-*", "Unschedulable")):
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            cluster.start(timeout=60)
    timer.join()
    assert (cluster.backend._connect().list(RAYCLUSTER, "default", labels="nemo-run/job-name=" + cluster.name)) == []


def test_an_invalid_cluster_is_told_by_its_event(kube, cluster):
    cluster.executor.spec_kwargs = {}
    body = cluster.backend._body(())
    body["spec"]["workerGroupSpecs"] = [
        {
            "groupName": "w",
            "replicas": 1,
            "minReplicas": 3,
            "maxReplicas": 2,
            "rayStartParams": {},
            "template": {"spec": {"containers": [{"name": "ray-worker", "image": "i"}]}},
        }
    ]
    cluster.backend._connect().create(RAYCLUSTER, "default", body)
    with pytest.raises(Rejected, match="InvalidRayClusterSpec"):
        cluster.backend.wait_until_running(timeout=20)
    with pytest.raises(Rejected, match="InvalidRayClusterSpec"):
        cluster.status()


@pytest.mark.parametrize("status", [403, 422, 500])
def test_every_refusal_raises(kube, cluster, status):
    impatient = cluster.backend
    with kube.fault(Respond(status, on="* */rayclusters*", retry_after=0)):
        api = impatient._connect().patient(0)
        impatient._connect = lambda: api
        for verb in (
            impatient.create,
            impatient.status,
            lambda: impatient.patch({"spec": {}}),
            impatient.delete,
            lambda: impatient.port_forward(0, 8265),
        ):
            with pytest.raises(RuntimeError):
                verb()


def test_a_patch_arrives(kube, cluster, caplog):
    cluster.executor.worker_groups = [KubeRayWorkerGroup("w"), KubeRayWorkerGroup("x")]
    cluster.start(wait_until_ready=False)
    groups = stored(kube, cluster)["spec"]["workerGroupSpecs"]
    assert cluster.backend.patch({"spec": {"workerGroupSpecs": groups[:1]}})
    assert "removes the worker groups x" in caplog.text
    assert [group["groupName"] for group in stored(kube, cluster)["spec"]["workerGroupSpecs"]] == ["w"]


def test_a_dry_run_sends_nothing(kube, cluster):
    before = len(kube.requests)
    first = cluster.start(dryrun=True, pre_ray_start_commands=["export A=1"])
    assert cluster.start(dryrun=True, pre_ray_start_commands=["export A=1"]) == first
    assert first["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["command"] == [
        "eval 'export A=1' || exit 1"
    ]
    assert len(kube.requests) == before


def test_a_job_can_run_on_a_cluster_that_is_there(kube, cluster, tmp_path, capsys):
    executor = workdir_executor()
    there = RayCluster(name=cluster.name, executor=executor, log_level="ERROR")
    there.start(timeout=60)
    (tmp_path / "a.txt").write_text("from the volume\n")
    job = RayJob(name=cluster.name, executor=executor, cluster_name=there.backend.cluster_name, log_level="ERROR")
    job.start(command="cat a.txt", workdir=str(tmp_path))
    status = job.backend.follow_logs_until_completion(poll_interval=1)
    assert status["jobStatus"] == "SUCCEEDED"
    assert "from the volume\n" in capsys.readouterr().out
    assert there.status(display=False)["state"] == "ready"
    other = RayJob(name=cluster.name, executor=executor, cluster_name="no-such", log_level="ERROR")
    with pytest.raises(NotFound):
        other.start(command="x", workdir=None)


@pytest.mark.parametrize("kind", [RayCluster, RayJob])
def test_other_executors_are_refused(kind):
    with pytest.raises(ValueError, match="KubeRayExecutor"):
        kind(name="x", executor=LocalExecutor())
