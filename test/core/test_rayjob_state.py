"""What the statuses of RayJobs and RayClusters mean."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from nemo_run.core.execution._endings import note, noted
from nemo_run.core.execution._raystate import JobPhase, job_endings, job_phase, readiness, refusal, vanished


def job(job_status="", deployment="", **more):
    return {"status": {"jobStatus": job_status, "jobDeploymentStatus": deployment, **more}}


@pytest.mark.parametrize(
    ("job_status", "deployment", "state", "ended"),
    [
        ("", "", "PENDING", False),
        ("", "Initializing", "PENDING", False),
        ("", "Waiting", "PENDING", False),
        ("", "Suspending", "PENDING", False),
        ("", "Suspended", "PENDING", False),
        ("", "Retrying", "PENDING", False),
        ("FAILED", "Retrying", "PENDING", False),
        ("", "Running", "PENDING", False),
        ("PENDING", "Running", "PENDING", False),
        ("RUNNING", "Running", "RUNNING", False),
        ("SUCCEEDED", "Running", "RUNNING", False),
        ("FAILED", "Running", "RUNNING", False),
        ("SUCCEEDED", "Complete", "SUCCEEDED", True),
        ("STOPPED", "Complete", "CANCELLED", True),
        ("FAILED", "Complete", "FAILED", True),
        ("FAILED", "Failed", "FAILED", True),
        ("SUCCEEDED", "Failed", "FAILED", True),
        ("", "Failed", "FAILED", True),
        ("", "ValidationFailed", "FAILED", True),
        ("RUNNING", "SomethingNew", "PENDING", False),
    ],
)
def test_the_deployment_status_decides(job_status, deployment, state, ended):
    """The job's own status turns FAILED before a retry, and SUCCEEDED before the last lines are printed."""
    phase = job_phase(job(job_status, deployment))
    assert (phase.state, phase.ended) == (state, ended)


def test_a_job_without_a_status_is_pending():
    assert job_phase({}) == JobPhase("PENDING", False, "UNKNOWN", "UNKNOWN")
    assert job_phase({"status": None}).as_status() == {
        "jobStatus": "UNKNOWN",
        "jobDeploymentStatus": "UNKNOWN",
        "reason": "",
        "message": "",
        "rayClusterName": "",
    }


def test_reason_and_message_are_shown():
    phase = job_phase(job("FAILED", "Failed", reason="AppFailed", message="exit code 3\nmore", rayClusterName="c"))
    assert str(phase) == "Failed/FAILED (AppFailed: exit code 3)"
    assert phase.as_status()["message"] == "exit code 3\nmore"


def test_a_job_that_is_gone_was_deleted_unless_it_had_ended():
    done = job_phase(job("SUCCEEDED", "Complete"))
    assert vanished(done, by_us=False) is done
    running = job_phase(job("RUNNING", "Running", rayClusterName="c"))
    assert vanished(running, by_us=False) == JobPhase(
        "CANCELLED",
        True,
        "STOPPED",
        "Failed",
        "Deleted",
        "deleted outside nemo_run; last seen: Running/RUNNING",
        "c",
    )
    assert vanished(running, by_us=True).message.startswith("stopped")


def cluster(*conditions, address="10.0.0.1", **status):
    head = {"serviceIP": address} if address else {}
    return {"status": {"head": head, "conditions": list(conditions), **status}}


def condition(kind, status, reason="", message=""):
    return {"type": kind, "status": status, "reason": reason, "message": message}


def pod(name, *, node_type="head", ready=True, waiting=None):
    state = {"waiting": waiting} if waiting else {"running": {}}
    return {
        "metadata": {"name": name, "labels": {"ray.io/node-type": node_type}},
        "status": {
            "phase": "Running" if ready else "Pending",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "ray", "image": "i", "state": state}],
        },
    }


def test_the_condition_says_whether_the_head_is_ready():
    ready = cluster(condition("HeadPodReady", "True"))
    assert readiness(ready, []).ready
    assert not readiness(cluster(condition("HeadPodReady", "False", "X", "y")), [pod("h")]).ready
    assert not readiness(cluster(condition("HeadPodReady", "True"), address=""), []).ready


def test_before_kuberay_1_3_the_pod_says_it():
    assert readiness(cluster(), [pod("h")]).ready
    assert not readiness(cluster(), [pod("my-head-worker", node_type="worker")]).ready


def test_what_a_cluster_waits_for_is_said():
    waiting = {"reason": "ImagePullBackOff", "message": "403"}
    seen = readiness(
        cluster(condition("ReplicaFailure", "True", "FailedCreateWorkerPod", "exceeded quota"), address=""),
        [pod("h", ready=False, waiting=waiting)],
    )
    assert str(seen) == (
        "ReplicaFailure FailedCreateWorkerPod: exceeded quota; pod h: ImagePullBackOff for image 'i': 403"
    )
    assert str(readiness({}, [])) == "no status yet"
    assert str(readiness(cluster(state="suspended", address=""), [])) == "suspended"


def test_an_event_tells_of_an_invalid_object():
    events = [{"reason": "Created"}, {"reason": "InvalidRayClusterSpec", "message": "too\nlong"}]
    assert refusal(events) == "InvalidRayClusterSpec: too long"
    assert refusal(events[:1]) == ""


def ended(reason, code, at="2026-01-01T00:00:10Z"):
    return {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at}}


OOM = ended("OOMKilled", 137)


def node(*statuses, kind="worker", deleted=False, name="p"):
    """Give a pod of a RayCluster by its containers' states: name, state, last state."""
    metadata = {"name": name, "labels": {"ray.io/node-type": kind, "ray.io/group": "g"}}
    found = [{"name": container, "state": state, "lastState": last} for container, state, last in statuses]
    when = {"deletionTimestamp": "2026-01-01T00:01:00Z"} if deleted else {}
    return {"metadata": {**metadata, **when}, "status": {"containerStatuses": found}}


RUNS = {"running": {}}


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        pytest.param(node(("ray", RUNS, {})), [], id="nothing"),
        pytest.param(node(("ray", RUNS, OOM)), ["OOMKilled, exit code 137"], id="killed and started again"),
        pytest.param(node(("ray", ended("Error", 1), {})), ["Error, exit code 1"], id="ended"),
        pytest.param(node(("ray", ended("Error", 143), {}), deleted=True), [], id="deleted"),
        pytest.param(
            node(("ray", ended("Error", 143), OOM), deleted=True),
            ["OOMKilled, exit code 137"],
            id="killed, then deleted",
        ),
        pytest.param(node(("ray", OOM, {}), deleted=True), ["OOMKilled, exit code 137"], id="killed at last"),
        pytest.param(node(("ray-job-submitter", ended("Error", 3), {}), kind="head"), [], id="the job's exit code"),
        pytest.param(
            node(("ray-job-submitter", OOM, {}), kind="head"), ["OOMKilled, exit code 137"], id="the submitter killed"
        ),
    ],
)
def test_what_a_container_of_a_cluster_ended_of_is_told_if_it_did_so_by_itself(pod, said):
    name = pod["status"]["containerStatuses"][0]["name"]
    assert list(map(str, job_endings([pod]))) == [f"pod p, container {name}: {each}" for each in said]


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("head", "raise head_memory, or use less memory"),
        ("worker", "raise memory_limits of worker group g, or use less memory"),
    ],
)
def test_what_helps_names_the_field_of_that_pod(kind, advice):
    (found,) = job_endings([node(("ray", OOM, {}), kind=kind)])
    assert found.advice == advice


def test_what_ended_before_the_job_began_is_not_its():
    """A cluster that was there before has run other jobs."""
    server, labels = SimpleNamespace(server="https://since.example"), "ray.io/cluster=c"
    pods = [
        node(("ray", RUNS, ended("OOMKilled", 137, at=f"2026-01-01T00:00:{at}Z")), name=f"p{at}") for at in (10, 20)
    ]
    note(server, "default", labels, pods, job_endings)
    assert noted(server, "default", labels, since="2026-01-01T00:00:15Z").startswith("pod p20, ")
    assert noted(server, "default", labels).startswith("pod p10, container ray: OOMKilled, exit code 137; pod p20, ")


def test_what_containers_ended_of_follows_the_message():
    phase = job_phase(job("FAILED", "Failed", reason="AppFailed", message="exit code 3\nmore\n"))
    phase = replace(phase, endings="pod p: Evicted")
    assert str(phase) == "Failed/FAILED (AppFailed: exit code 3; pod p: Evicted)"
    assert phase.as_status()["message"] == "exit code 3\nmore\npod p: Evicted"
