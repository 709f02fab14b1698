"""Where a TrainJob is in its life, read off what the server says."""

from __future__ import annotations

import pytest

from nemo_run.core.execution._endings import failures
from nemo_run.core.execution._trainjob import Phase, phase
from nemo_run.core.execution.kubeflow import KubeflowJobState


def condition(kind: str, status: str = "True", reason: str = "R", message: str = "m") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def counted(name: str = "node", **counters: int) -> dict[str, object]:
    return {"name": name, "active": 0, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0, **counters}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param(None, Phase("Created"), id="no status"),
        pytest.param({}, Phase("Created"), id="empty status"),
        pytest.param({"jobsStatus": [counted()]}, Phase("Created"), id="counters of nothing"),
        pytest.param({"jobsStatus": [counted(active=1)]}, Phase("Pending"), id="active holds for pending pods"),
        pytest.param({"jobsStatus": [counted(active=1, ready=1)]}, Phase("Running"), id="ready"),
        pytest.param({"jobsStatus": [counted(succeeded=1)]}, Phase("Running"), id="done, not yet confirmed"),
        pytest.param({"jobsStatus": [counted(failed=1)]}, Phase("Running"), id="may be restarted"),
        pytest.param(
            {"jobsStatus": [counted("dataset-initializer", active=1, ready=1), counted()]},
            Phase("Pending"),
            id="an initializer runs",
        ),
        pytest.param(
            {"jobsStatus": [counted("dataset-initializer", succeeded=1), counted()]},
            Phase("Pending"),
            id="an initializer is done",
        ),
        pytest.param(
            {"jobsStatus": [counted("launcher", ready=1), counted(active=1)]},
            Phase("Running"),
            id="an MPI launcher runs",
        ),
        pytest.param({"conditions": [condition("Complete")]}, Phase("Succeeded", "R", "m"), id="complete"),
        pytest.param(
            {"conditions": [condition("Failed", reason="TrainingRuntimeNotSupported")]},
            Phase("Failed", "TrainingRuntimeNotSupported", "m"),
            id="failed without counters",
        ),
        pytest.param(
            {
                "conditions": [
                    condition("Suspended", "False", "Resumed"),
                    condition("Failed", reason="DeadlineExceeded"),
                ],
                "jobsStatus": [counted(active=1, ready=1)],
            },
            Phase("Failed", "DeadlineExceeded", "m"),
            id="counters stay after a deadline",
        ),
        pytest.param(
            {"conditions": [condition("Failed", "False")], "jobsStatus": [counted(ready=1)]},
            Phase("Running"),
            id="a condition that is not true",
        ),
        pytest.param(
            {"conditions": [condition("Suspended")], "jobsStatus": [counted(suspended=1)]},
            Phase("Pending", "Suspended", "suspended, waiting in queue"),
            id="suspended",
        ),
    ],
)
def test_conditions_decide_then_counters(status, expected):
    assert phase({"metadata": {"name": "n"}, **({"status": status} if status is not None else {})}) == expected


def test_every_phase_is_a_state():
    states = {state.value for state in KubeflowJobState}
    assert {"Created", "Pending", "Running", "Succeeded", "Failed"} <= states


def pod(state: dict[str, object], last: dict[str, object] | None = None) -> dict[str, object]:
    container = {"name": "node", "state": state, **({"lastState": last} if last else {})}
    return {"metadata": {"name": "n-node-0-1-x"}, "status": {"containerStatuses": [container]}}


@pytest.mark.parametrize(
    ("state", "last", "lines"),
    [
        ({"terminated": {"exitCode": 3, "reason": "Error"}}, None, ["Error, exit code 3"]),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, None, ["OOMKilled, exit code 137"]),
        ({"terminated": {"exitCode": 0, "reason": "OOMKilled"}}, None, ["OOMKilled, exit code 0"]),
        ({"running": {}}, {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, ["OOMKilled, exit code 137"]),
        ({"terminated": {"exitCode": 0, "reason": "Completed"}}, None, []),
        ({"running": {}}, None, []),
    ],
)
def test_a_failure_names_pod_container_reason_and_exit_code(state, last, lines):
    assert failures([pod(state, last)]) == [f"pod n-node-0-1-x, container node: {line}" for line in lines]
