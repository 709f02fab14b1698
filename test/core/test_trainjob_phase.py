"""Where a TrainJob is in its life, read off what the server says."""

from __future__ import annotations

import pytest

from nemo_run.core.execution._endings import endings
from nemo_run.core.execution._trainjob import Phase, phase, untouched
from nemo_run.core.execution.kubeflow import KubeflowJobState


def condition(kind: str, status: str = "True", reason: str = "R", message: str = "m") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def counted(name: str = "node", **counters: int) -> dict[str, object]:
    return {"name": name, "active": 0, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0, **counters}


DONE = condition("Complete", reason="AllJobsCompleted", message="jobset completed successfully")
JOB_FAILED = condition("Failed", reason="FailedJobs", message="jobset failed (first failed job: n-node-0)")
TOO_LATE = condition("Failed", reason="DeadlineExceeded", message="TrainJob exceeded its active deadline")
HELD = condition("Suspended", reason="Suspended", message="TrainJob is suspended")
RESUMED = condition("Suspended", "False", "Resumed", "TrainJob is resumed")
IN_QUEUE = Phase("Pending", "Suspended", "suspended, waiting in queue")

TABLE = {
    # What nobody has touched yet; Trainer 2.0 never counts at all.
    "no status": (None, Phase("Created")),
    "empty status": ({}, Phase("Created")),
    "null status fields": ({"conditions": None, "jobsStatus": None}, Phase("Created")),
    "counters of nothing": ({"jobsStatus": [counted()]}, Phase("Created")),
    # Counters are of child Jobs: "active" holds for pods that are pending.
    "pods pending": ({"jobsStatus": [counted(active=1)]}, Phase("Pending")),
    "all pods ready": ({"jobsStatus": [counted(active=1, ready=1)]}, Phase("Running")),
    "done, not yet confirmed": ({"jobsStatus": [counted(succeeded=1)]}, Phase("Running")),
    "only what is not null": ({"jobsStatus": [{"name": "node", "active": 1, "ready": None}]}, Phase("Pending")),
    # Initializers come first; they are not the training.
    "an initializer's pod is pending": (
        {"jobsStatus": [counted("dataset-initializer", active=1), counted()]},
        Phase("Pending"),
    ),
    "an initializer runs": (
        {"jobsStatus": [counted("dataset-initializer", active=1, ready=1), counted()]},
        Phase("Pending"),
    ),
    "both initializers are done": (
        {
            "jobsStatus": [
                counted("dataset-initializer", succeeded=1),
                counted("model-initializer", succeeded=1),
                counted(),
            ]
        },
        Phase("Pending"),
    ),
    "the training after an initializer": (
        {"jobsStatus": [counted("model-initializer", succeeded=1), counted(active=1, ready=1)]},
        Phase("Running"),
    ),
    "an initializer failed, not yet confirmed": (
        {"jobsStatus": [counted("dataset-initializer", failed=1), counted()]},
        Phase("Pending"),
    ),
    "an initializer failed": (
        {"conditions": [JOB_FAILED], "jobsStatus": [counted("dataset-initializer", failed=1), counted()]},
        Phase("Failed", "FailedJobs", "jobset failed (first failed job: n-node-0)"),
    ),
    # MPI runtimes succeed on the launcher alone; their nodes run sshd for ever.
    "an MPI launcher waits for its nodes": (
        {"jobsStatus": [counted("launcher", active=1), counted(active=1)]},
        Phase("Pending"),
    ),
    "an MPI launcher runs": ({"jobsStatus": [counted("launcher", ready=1), counted(active=1)]}, Phase("Running")),
    "an MPI launcher is done, its nodes go on": (
        {"jobsStatus": [counted("launcher", succeeded=1), counted(active=1, ready=1)]},
        Phase("Running"),
    ),
    "an MPI job is complete, its nodes never succeeded": (
        {"conditions": [DONE], "jobsStatus": [counted("launcher", succeeded=1), counted(active=1, ready=1)]},
        Phase("Succeeded", "AllJobsCompleted", "jobset completed successfully"),
    ),
    # A JobSet with maxRestarts begins again: its counters are of the present attempt.
    "a Job failed, and the JobSet may restart it": ({"jobsStatus": [counted(failed=1)]}, Phase("Running")),
    "restarted, no pod yet": ({"jobsStatus": [counted(failed=0)]}, Phase("Created")),
    "restarted, pods pending": ({"jobsStatus": [counted(active=1)]}, Phase("Pending")),
    "no restart is left": (
        {
            "conditions": [condition("Failed", reason="ReachedMaxRestarts", message="jobset failed: max restarts")],
            "jobsStatus": [counted(failed=1)],
        },
        Phase("Failed", "ReachedMaxRestarts", "jobset failed: max restarts"),
    ),
    "a failure policy ended it": (
        {"conditions": [condition("Failed", reason="FailJobSetFailurePolicyAction", message="exit code 42")]},
        Phase("Failed", "FailJobSetFailurePolicyAction", "exit code 42"),
    ),
    # Conditions decide, whatever the counters say.
    "complete": ({"conditions": [DONE]}, Phase("Succeeded", "AllJobsCompleted", "jobset completed successfully")),
    "failed without counters": (
        {"conditions": [condition("Failed", reason="TrainingRuntimeNotSupported", message="no such kind")]},
        Phase("Failed", "TrainingRuntimeNotSupported", "no such kind"),
    ),
    "a condition without reason and message": (
        {"conditions": [{"type": "Failed", "status": "True"}]},
        Phase("Failed", "", ""),
    ),
    "counters stay as they were after a deadline": (
        {"conditions": [RESUMED, TOO_LATE], "jobsStatus": [counted(active=1, ready=1)]},
        Phase("Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline"),
    ),
    "a condition that is not true": (
        {"conditions": [{**JOB_FAILED, "status": "False"}], "jobsStatus": [counted(active=1, ready=1)]},
        Phase("Running"),
    ),
    "a condition that is not known": (
        {"conditions": [{**JOB_FAILED, "status": "Unknown"}], "jobsStatus": [counted(active=1)]},
        Phase("Pending"),
    ),
    "a condition of a later release": ({"conditions": [condition("Created")]}, Phase("Created")),
    # Queues suspend and resume.
    "suspended from the start": ({"conditions": [HELD], "jobsStatus": [counted(suspended=1)]}, IN_QUEUE),
    "suspended while pods go": ({"conditions": [HELD], "jobsStatus": [counted(active=1, ready=1)]}, IN_QUEUE),
    "resumed, no pod yet": ({"conditions": [RESUMED], "jobsStatus": [counted()]}, Phase("Created")),
    "resumed, pods pending": ({"conditions": [RESUMED], "jobsStatus": [counted(active=1)]}, Phase("Pending")),
    "resumed and running": ({"conditions": [RESUMED], "jobsStatus": [counted(active=1, ready=1)]}, Phase("Running")),
    "failed while suspended": (
        {"conditions": [HELD, JOB_FAILED]},
        Phase("Failed", "FailedJobs", "jobset failed (first failed job: n-node-0)"),
    ),
    "complete, and suspended afterwards": (
        {"conditions": [DONE, HELD]},
        Phase("Succeeded", "AllJobsCompleted", "jobset completed successfully"),
    ),
}
"""What Trainer 2.0 to 2.3 write into a TrainJob's status, and what that means."""


@pytest.mark.parametrize(("status", "expected"), TABLE.values(), ids=TABLE.keys())
def test_conditions_decide_then_counters(status, expected):
    assert phase({"metadata": {"name": "n"}, **({"status": status} if status is not None else {})}) == expected


def test_every_phase_is_a_state():
    states = {state.value for state in KubeflowJobState}
    assert {"Created", "Pending", "Running", "Succeeded", "Failed"} <= states


CREATED = 1_767_225_600  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("job", "seconds", "said"),
    [
        pytest.param({}, 59, "", id="just created"),
        pytest.param({}, 60, "Kubeflow Trainer's controller does not run, or does not get to it", id="a minute old"),
        pytest.param({"status": {"jobsStatus": [counted()]}}, 3600, "", id="counted"),
        pytest.param({"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}, 60, "it is left to kueue.", id="another's"),
        pytest.param(
            {"spec": {"managedBy": "trainer.kubeflow.org/trainjob-controller"}}, 60, "controller does not", id="its own"
        ),
    ],
)
def test_a_job_that_no_controller_touches_says_so_after_a_minute(job, seconds, said):
    job = {"metadata": {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}, **job}
    text = untouched(job, CREATED + seconds)
    assert said in text
    assert bool(text) == bool(said)


def pod(state: dict[str, object], last: dict[str, object] | None = None, **status: object) -> dict[str, object]:
    container = {"name": "node", "state": state, **({"lastState": last} if last else {})}
    return {"metadata": {"name": "n-node-0-1-x"}, "status": {"containerStatuses": [container], **status}}


def terminated(code: int, reason: str = "Error", **more: object) -> dict[str, object]:
    return {"terminated": {"exitCode": code, "reason": reason, **more}}


@pytest.mark.parametrize(
    ("pod", "lines"),
    [
        pytest.param(pod(terminated(3)), ["Error, exit code 3"], id="exit code"),
        pytest.param(pod(terminated(1, message="no\nfile")), ["Error, exit code 1: no file"], id="termination message"),
        pytest.param(pod({"terminated": {"exitCode": 2}}), ["Error, exit code 2"], id="no reason"),
        pytest.param(pod(terminated(137, "OOMKilled")), ["OOMKilled, exit code 137"], id="out of memory"),
        pytest.param(pod(terminated(0, "OOMKilled")), ["OOMKilled, exit code 0"], id="a child ran out of memory"),
        pytest.param(pod({"running": {}}, terminated(137, "OOMKilled")), ["OOMKilled, exit code 137"], id="restarted"),
        pytest.param(
            pod({"waiting": {"reason": "CrashLoopBackOff"}}, terminated(1)), ["Error, exit code 1"], id="backing off"
        ),
        pytest.param(pod(terminated(0, "Completed")), [], id="done"),
        pytest.param(pod({"running": {}}), [], id="running"),
        pytest.param(pod({"waiting": {"reason": "ImagePullBackOff"}}), [], id="never began"),
        pytest.param({"metadata": {"name": "n"}}, [], id="no status"),
    ],
)
def test_a_failure_names_pod_container_reason_and_exit_code(pod, lines):
    assert list(map(str, endings([pod]))) == [f"pod n-node-0-1-x, container node: {line}" for line in lines]


@pytest.mark.parametrize(
    ("pod", "line"),
    [
        pytest.param(
            pod(terminated(137), phase="Failed", reason="Evicted", message="The node was low on resource: memory. "),
            "Evicted: The node was low on resource: memory.",
            id="evicted",
        ),
        pytest.param(
            pod({}, phase="Failed", reason="Terminated", message="imminent node shutdown"),
            "Terminated: imminent node shutdown",
            id="its node was shut down",
        ),
        pytest.param(
            pod(
                terminated(143),
                phase="Running",
                conditions=[condition("DisruptionTarget", reason="PreemptionByScheduler", message="preempting")],
            ),
            "PreemptionByScheduler: preempting",
            id="preempted",
        ),
    ],
)
def test_a_pod_that_was_taken_away_names_who_took_it_not_what_its_containers_made_of_it(pod, line):
    assert list(map(str, endings([pod]))) == [f"pod n-node-0-1-x: {line}"]


def test_init_containers_fail_too():
    found = {"metadata": {"name": "n"}, "status": {"initContainerStatuses": [{"name": "i", "state": terminated(1)}]}}
    assert list(map(str, endings([found]))) == ["pod n, container i: Error, exit code 1"]


@pytest.mark.parametrize(
    ("ended", "advice"),
    [
        (terminated(137, "OOMKilled"), "raise memory_limits"),
        (terminated(127), "does not have a command"),
        (terminated(126), "may not execute it"),
        (terminated(1), ""),
    ],
)
def test_what_helps_is_said_where_it_is_known(ended, advice):
    (found,) = endings([pod(ended)])
    assert advice in found.advice
    assert bool(found.advice) == bool(advice)
