"""How far a pod has come, as kubelet and scheduler of a real cluster write it."""

from __future__ import annotations

import pytest

from nemo_run._kube.startup import Startup, startup, trouble


def waiting(reason: str, message: str = "") -> dict:
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    status = {"name": "mover", "image": "alpine:3.19", "state": state}
    return {"status": {"phase": "Pending", "containerStatuses": [status]}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param({}, Startup("Pending"), id="just created"),
        pytest.param(
            {
                "status": {
                    "phase": "Pending",
                    "conditions": [
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "reason": "Unschedulable",
                            "message": "0/3 nodes are available: 3 Insufficient cpu.",
                        }
                    ],
                }
            },
            Startup("Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."),
            id="no room",
        ),
        pytest.param(waiting("ContainerCreating"), Startup("ContainerCreating"), id="being made"),
        pytest.param(
            waiting("ImagePullBackOff", 'Back-off pulling image\n"alpine:3.19": 403'),
            Startup(
                "ImagePullBackOff for image 'alpine:3.19': Back-off pulling image \"alpine:3.19\": 403", failing=True
            ),
            id="image",
        ),
        pytest.param(
            waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            Startup(
                "CreateContainerConfigError for image 'alpine:3.19':"
                " container has runAsNonRoot and image will run as root",
                failing=True,
            ),
            id="container",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Pending",
                    "initContainerStatuses": [
                        {"name": "i", "image": "x", "state": {"waiting": {"reason": "ErrImagePull"}}}
                    ],
                    "containerStatuses": [{"name": "mover", "state": {"waiting": {"reason": "PodInitializing"}}}],
                }
            },
            Startup("ErrImagePull for image 'x'", failing=True),
            id="init container",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Running",
                    "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}],
                    "containerStatuses": [{"name": "mover", "state": {"running": {}}}],
                }
            },
            Startup("Running"),
            id="running, not ready",
        ),
        pytest.param(
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
            Startup("ready", ready=True),
            id="ready",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Failed",
                    "containerStatuses": [
                        {"name": "mover", "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
                    ],
                }
            },
            Startup("container mover ended: OOMKilled, exit code 137", ended=True),
            id="killed",
        ),
        pytest.param(
            {
                "status": {
                    "phase": "Failed",
                    "reason": "Evicted",
                    "message": "The node was low on memory.",
                    "containerStatuses": [{"name": "mover", "state": {}}],
                }
            },
            Startup("Evicted: The node was low on memory.", ended=True),
            id="evicted",
        ),
        pytest.param({"status": {"phase": "Succeeded"}}, Startup("Succeeded", ended=True), id="finished"),
        pytest.param(
            {
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            },
            Startup("being deleted", ended=True),
            id="being deleted",
        ),
    ],
)
def test_reads_where_a_pod_stands(pod, expected):
    assert startup(pod) == expected


def event(reason: str, message: str, *, kind: str = "Warning", **times: object) -> dict:
    return {"type": kind, "reason": reason, "message": message, "metadata": {}, **times}


def test_the_newest_warning_is_the_trouble():
    """By whichever of its times an event has: each writer fills another one."""
    events = [
        event("FailedScheduling", "no room", eventTime="2026-01-01T00:00:05.000000Z", lastTimestamp=None),
        event("FailedMount", "claim not found\nfor volume", lastTimestamp="2026-01-01T00:00:09Z"),
        event("FailedAttachVolume", "old", series={"lastObservedTime": "2026-01-01T00:00:02.000000Z"}),
        event("Pulling", "an image", kind="Normal", lastTimestamp="2026-01-01T00:00:20Z"),
    ]
    assert trouble(events) == "FailedMount: claim not found for volume"
    assert trouble(events[3:]) == ""
    assert trouble([]) == ""
