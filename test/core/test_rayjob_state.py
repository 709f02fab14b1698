"""What the statuses of RayJobs and RayClusters mean."""

import pytest

from nemo_run.core.execution._raystate import JobPhase, job_phase, readiness, refusal, vanished


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
