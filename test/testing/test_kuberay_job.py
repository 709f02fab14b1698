"""RayJobs as KubeRay carries them out: cluster, submitter, statuses, ends."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

import pytest
from rays import PREFACE, Rays, ray_node, raycluster, rayjob, spec

from nemo_run._kube.resources import POD, RAYCLUSTER, RAYJOB
from nemo_run.testing._kinds import JOB, SERVICE

Json = dict[str, Any]

ENDS = ("jobDeploymentStatus", "jobStatus", "reason", "message", "succeeded", "failed")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rays]:
    with ray_node(tmp_path_factory.mktemp("node")) as rays:
        yield rays


@pytest.fixture
def rays(shared: Rays) -> Iterator[Rays]:
    yield shared
    shared.clean()


def end(status: Json) -> tuple[Any, ...]:
    return tuple(status.get(key) for key in ENDS)


def test_a_job_succeeds(rays):
    status = rays.run("j", "bash -c 'echo hello; pwd'", cluster=spec(workers=1))
    assert end(status) == ("Complete", "SUCCEEDED", None, "Job finished successfully.", 1, 0)
    assert rays.output("j") == "hello\n/work\n"
    name = status["rayClusterName"]
    assert re.fullmatch("j-[a-z0-9]{5}", name)
    assert re.fullmatch("j-[a-z0-9]{5}", status["jobId"])
    assert status["dashboardURL"] == f"{name}-head-svc.default.svc.cluster.local:8265"
    assert sorted(status["rayJobInfo"]) == ["endTime", "startTime"]
    origin = {"ray.io/originated-from-cr-name": "j", "ray.io/originated-from-crd": "RayJob"}
    cluster, job, submitter = rays.node.get(name, RAYCLUSTER), rays.node.get("j", JOB), rays.submitters("j")[0]
    assert cluster["metadata"]["labels"] == {"team": "a", **origin}
    assert job["metadata"]["labels"] == {**origin, "app.kubernetes.io/created-by": "kuberay-operator"}
    assert submitter["metadata"]["labels"].items() >= origin.items()
    assert [each["name"] for each in submitter["spec"]["containers"]] == ["ray-job-submitter"]
    assert rays.node.get("j-head-svc", SERVICE)["spec"]["selector"]["ray.io/cluster"] == name
    assert rays.node.get("j", RAYJOB)["metadata"]["finalizers"] == ["ray.io/rayjob-finalizer"]


def test_a_job_fails_with_its_exit_code(rays):
    status = rays.run("j", "bash -c 'echo oh; exit 3'")
    why = "Job entrypoint command failed with exit code 3, last available logs (truncated to 20,000 chars):\n"
    assert re.fullmatch(re.escape(why) + PREFACE + "oh\n", status.pop("message"))
    assert end(status) == ("Failed", "FAILED", "AppFailed", None, 0, 1)
    assert len(rays.submitters("j")) == 1


def test_an_entrypoint_is_pasted_into_the_submitters_shell(rays):
    """So that what comes after the first ``;`` runs there, and not on the head."""
    rays.run("j", 'echo "$RAY_JOB_SUBMISSION_ID" ; echo here: ${RAY_NODE_TYPE_NAME-submitter}')
    (pod,) = rays.submitters("j")
    text = rays.node.log(pod["metadata"]["name"]).decode()
    assert "\nhere: submitter\n" in text
    assert f"\n{rays.node.get('j', RAYJOB)['status']['jobId']}\n" in text


WORDS = """printf '%s,' '$HOME' '`echo x y`' 'a  b' '"'"""


@pytest.mark.parametrize(
    ("version", "output"),
    [("2.43.0", '/root,x y,a  b,",'), ("2.60.0", '$HOME,`echo x y`,a  b,",')],
    ids=["double quotes", "shlex"],
)
def test_the_words_are_joined_as_that_ray_does(rays, version, output):
    """The older one lets the head's shell look into words that were quoted once."""
    rays.run("j", WORDS, cluster=spec(version=version))
    assert rays.output("j") == output


@pytest.mark.parametrize("version", ["2.43.0", "2.60.0"])
def test_base64_survives_both(rays, version):
    script = "echo \"$GREETING \\$x 'é'\"; echo a  b\nexit 0"
    words = f"bash -c 'echo {base64.b64encode(script.encode()).decode()}|base64 -d|bash'"
    runtime = 'env_vars:\n  GREETING: "hello \'you\' \\"all\\""\n  PLACE: $RAY_JOB_SUBMISSION_ID\n'
    rays.run("j", words, cluster=spec(version=version), runtimeEnvYAML=runtime)
    assert rays.output("j") == "hello 'you' \"all\" $x 'é'\na b\n"


def test_a_job_that_is_stopped_is_complete(rays):
    rays.node.create(RAYJOB, rayjob("j", "sleep 600"))
    status = rays.node.until(
        lambda: rays.node.get("j", RAYJOB).get("status", {}), lambda seen: seen.get("jobStatus") == "RUNNING"
    )
    (head,) = rays.pods(status["rayClusterName"])
    assert rays.node.exec(head["metadata"]["name"], "ray", "job", "stop", status["jobId"])[0] == 0
    assert end(rays.job("j", "Complete", "Failed")) == (
        *("Complete", "STOPPED", None, "Job was intentionally stopped.", 0, 0),
    )


def test_a_failed_job_is_tried_again_on_another_cluster(rays):
    rays.node.create(RAYJOB, rayjob("j", "bash -c 'mkdir /work/once && exit 1 || true'", backoffLimit=1))
    first = rays.job("j", "Running")["rayClusterName"]
    status = rays.job("j", "Complete", "Failed")
    assert end(status) == ("Complete", "SUCCEEDED", None, "Job finished successfully.", 1, 1)
    assert status["rayClusterName"] != first
    assert [cluster["metadata"]["name"] for cluster in rays.node.list(RAYCLUSTER)] == [status["rayClusterName"]]
    (rays.node.claim / "once").rmdir()


def test_a_job_runs_out_of_time(rays):
    """Its cluster goes where that was asked for; its log stays."""
    status = rays.run("j", "sleep 600", activeDeadlineSeconds=3, shutdownAfterJobFinishes=True, backoffLimit=2)
    assert (status["jobDeploymentStatus"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert status["message"].startswith("The RayJob has passed the activeDeadlineSeconds.")
    rays.node.until(lambda: rays.node.list(RAYCLUSTER), lambda found: found == [])


def test_a_job_that_does_not_get_to_run_in_time(rays):
    status = rays.run("j", "true", cluster=spec(command=["exit", "1", ";"]), preRunningDeadlineSeconds=2)
    assert (status["jobDeploymentStatus"], status["reason"]) == ("Failed", "PreRunningDeadlineExceeded")
    assert status["rayClusterStatus"]["conditions"][0]["type"] == "HeadPodReady"


def test_a_cluster_goes_after_its_time_and_the_log_stays(rays):
    rays.run("j", "echo hello", shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=1)
    rays.node.until(lambda: rays.node.list(RAYCLUSTER), lambda found: found == [])
    assert rays.output("j") == "hello\n"
    assert "DeletedRayCluster" in dict(rays.node.events("j", kind="RayJob"))


def test_a_job_is_suspended_and_resumed(rays):
    rays.node.create(RAYJOB, rayjob("j", "echo hello", suspend=True, shutdownAfterJobFinishes=True))
    status = rays.job("j", "Suspended")
    assert ("rayClusterName" in status, rays.node.list(RAYCLUSTER)) == (False, [])
    rays.change(RAYJOB, "j", {"suspend": False, "entrypoint": "sleep 600"})
    rays.job("j", "Running")
    rays.change(RAYJOB, "j", {"suspend": True})
    rays.job("j", "Suspended")
    rays.node.until(rays.node.list, lambda pods: pods == [])
    rays.change(RAYJOB, "j", {"suspend": False, "entrypoint": "echo hello"})
    assert rays.job("j", "Complete", "Failed")["jobStatus"] == "SUCCEEDED"


INVALID = {
    "name": (rayjob("j" * 48, "true"), "RayJob name should be no more than 47 characters"),
    "ttl": (rayjob("j", "true", ttlSecondsAfterFinished=5), "cannot have TTLSecondsAfterFinished"),
    "runtime env": (rayjob("j", "true", runtimeEnvYAML="a: [b"), "failed to unmarshal RuntimeEnvYAML"),
    "cluster": (rayjob("j", "true", cluster=spec(group={"minReplicas": 10})), "minReplicas 10 greater than"),
    "retries": (
        rayjob("j", "true", clusterSelector={"ray.io/cluster": "c"}, backoffLimit=1),
        "BackoffLimit is incompatible with ClusterSelector",
    ),
}


@pytest.mark.parametrize(("job", "text"), INVALID.values(), ids=INVALID)
def test_an_invalid_job_fails_validation(rays, job, text):
    rays.node.create(RAYJOB, job)
    name = job["metadata"]["name"]
    status = rays.job(name, "ValidationFailed")
    assert (status["reason"], text in status["message"]) == ("ValidationFailed", True)
    ((reason, message),) = rays.node.events(name, kind="RayJob")
    assert (reason.startswith("InvalidRayJob"), text in message) == (True, True)
    assert rays.node.list(RAYCLUSTER) == []


def test_a_job_runs_on_a_cluster_that_is_there(rays):
    rays.up("c")
    selector = {"ray.io/cluster": "c"}
    status = rays.run("j", "bash -c 'echo $RAY_CLUSTER_NAME'", clusterSelector=selector)
    assert (status["rayClusterName"], rays.output("j")) == ("c", "c\n")
    rays.node.create(
        RAYJOB, rayjob("long", "bash -c 'trap \"touch /work/told\" TERM; sleep 600'", clusterSelector=selector)
    )
    rays.node.until(
        lambda: rays.node.get("long", RAYJOB).get("status", {}).get("jobStatus"), lambda at: at == "RUNNING"
    )
    rays.node.delete("long", RAYJOB)
    rays.node.until((rays.node.claim / "told").exists)
    assert rays.cluster("c", "ready")["metadata"]["name"] == "c"


def test_a_job_waits_for_a_cluster_that_is_not_there(rays):
    rays.node.create(RAYJOB, rayjob("j", "echo hello", clusterSelector={"ray.io/cluster": "c"}))
    assert rays.job("j", "Initializing")["rayClusterName"] == "c"
    rays.node.create(RAYCLUSTER, raycluster("c"))
    assert rays.job("j", "Complete", "Failed")["jobStatus"] == "SUCCEEDED"


@pytest.mark.parametrize("mode", ["HTTPMode", "SidecarMode"])
def test_other_ways_to_submit(rays, mode):
    status = rays.run("j", "echo hello && echo $RAY_CLUSTER_NAME", submissionMode=mode)
    assert status["jobStatus"] == "SUCCEEDED"
    assert rays.submitters("j") == []
    (head,) = rays.pods(status["rayClusterName"])
    if mode == "HTTPMode":
        logs = ("ray", "job", "logs", status["jobId"])
        log = rays.node.exec(head["metadata"]["name"], *logs)[1].decode()
        assert re.fullmatch(f"{PREFACE}hello\n{status['rayClusterName']}\n", log)
    else:
        assert [each["name"] for each in head["spec"]["containers"]] == ["ray-head", "ray-job-submitter"]
        assert b"\nhello\n" in rays.node.log(head["metadata"]["name"], "ray-job-submitter")


def test_a_job_id_can_come_from_a_user(rays):
    rays.node.create(RAYJOB, rayjob("j", "", submissionMode="InteractiveMode"))
    status = rays.job("j", "Waiting")
    (head,) = rays.pods(status["rayClusterName"])
    submit = ("ray", "job", "submit", "--submission-id", "mine", "--", "echo", "hello")
    assert rays.node.exec(head["metadata"]["name"], *submit)[0] == 0
    rays.change(RAYJOB, "j", {"jobId": "mine"})
    assert rays.job("j", "Complete")["jobStatus"] == "SUCCEEDED"


def test_a_submitter_that_would_never_end_is_refused(rays):
    """A pod template without restartPolicy is one that restarts always, which no Job may have."""
    template = {"spec": {"containers": [{"name": "mine", "image": "any"}]}}
    rays.node.create(RAYJOB, rayjob("j", "true", submitterPodTemplate=template))
    told = rays.node.until(
        lambda: dict(rays.node.events("j", kind="RayJob")), lambda seen: "FailedToCreateRayJobSubmitter" in seen
    )
    assert "spec.template.spec.restartPolicy" in told["FailedToCreateRayJobSubmitter"]
    assert rays.job("j", "Initializing")["rayClusterStatus"]["state"] == "ready"


def test_a_submitter_of_ones_own_gets_the_command(rays):
    container = {"name": "mine", "image": "any", "env": [{"name": "A", "value": "b"}]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    rays.run("j", "echo $A", submitterPodTemplate=template)
    assert rays.output("j") == "b\n"


def test_a_submission_that_keeps_failing_fails_the_job(rays):
    """Three tries are what the submitter has unless told otherwise."""
    status = rays.run("j", "true", runtimeEnvYAML="working_dir: /nowhere", submitterConfig={"backoffLimit": 1})
    assert (status["jobDeploymentStatus"], status["reason"]) == ("Failed", "SubmissionFailed")
    assert "BackoffLimitExceeded" in status["message"]
    assert len(rays.submitters("j")) == 2


def test_a_job_whose_head_has_no_dashboard_port_stays_where_it_is(rays):
    cluster = spec(ports=[{"name": "gcs-server", "containerPort": 6379}])
    rays.node.create(RAYJOB, rayjob("j", "true", cluster=cluster))
    rays.node.until(
        lambda: rays.job("j", "Initializing").get("rayClusterStatus", {}).get("state"), lambda state: state == "ready"
    )
    assert rays.node.list(JOB) == []


def test_a_lost_submitter_does_not_run_the_job_twice(rays):
    rays.node.create(RAYJOB, rayjob("j", "bash -c 'echo run >> /work/runs; sleep 2; echo done'"))
    rays.node.until(lambda: rays.node.get("j", RAYJOB).get("status", {}).get("jobStatus"), lambda at: at == "RUNNING")
    (first,) = rays.submitters("j")
    rays.node.delete(first["metadata"]["name"], grace=0)
    assert rays.job("j", "Complete", "Failed")["jobStatus"] == "SUCCEEDED"
    assert (rays.node.claim / "runs").read_text() == "run\n"
    second = next(pod for pod in rays.submitters("j") if pod["metadata"]["uid"] != first["metadata"]["uid"])
    assert b"done\n" in rays.node.log(second["metadata"]["name"])


def test_release_1_3(tmp_path):
    """Its clusters and Services have other names, and what is invalid is told by an Event alone."""
    with ray_node(tmp_path, "1.3") as rays:
        status = rays.run("j", "echo hello")
        assert re.fullmatch("j-raycluster-[a-z0-9]{5}", status["rayClusterName"])
        assert [each["metadata"]["name"] for each in rays.node.list(SERVICE)] == [
            f"{status['rayClusterName']}-head-svc"
        ]
        cluster = rays.run(name := "j" + "x" * 40, "echo hello", cluster=spec(workers=1))["rayClusterName"]
        assert rays.output(name) == "hello\n"
        short = f"{cluster}-head-svc"[-50:]
        assert (short[0], rays.node.get(short, SERVICE)["spec"]["selector"]["ray.io/cluster"]) == ("x", cluster)
        assert rays.node.get(cluster, RAYCLUSTER)["status"]["head"]["serviceName"] == short
        rays.node.create(RAYJOB, rayjob("bad", "true", ttlSecondsAfterFinished=5))
        rays.node.until(lambda: rays.node.events("bad", kind="RayJob"))
        assert "status" not in rays.node.get("bad", RAYJOB)
        assert rays.node.list(POD, labels="job-name=bad") == []
