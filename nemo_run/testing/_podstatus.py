"""A pod's status, worked out from the states of its containers."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

CREATING = "ContainerCreating"
NODE = "local-kube"
ADDRESS = "127.0.0.1"


def now() -> str:
    """Give the time as the API writes it."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason: str, message: str = "") -> Json:
    """Give the state of a container that does not run yet."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


@dataclass
class ContainerState:
    """What the kubelet knows of one container of a pod."""

    name: str
    image: str
    state: Json
    last: Json = field(default_factory=dict)
    restarts: int = 0
    ready: bool = False
    id: str = ""

    @property
    def running(self) -> bool:
        """Tell if it runs."""
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """Give its exit code once it has ended for good."""
        ended = self.state.get("terminated")
        return None if ended is None else int(ended["exitCode"])

    def started(self, id: str, *, ready: bool) -> None:
        """Note that it runs."""
        if "terminated" in self.state:
            self.last = self.state
        self.state = {"running": {"startedAt": now()}}
        self.ready = ready
        self.id = f"containerd://{id}"

    def ended(self, code: int, reason: str, message: str = "") -> None:
        """Note how it ended."""
        ended = {
            "exitCode": code,
            "reason": reason,
            "startedAt": self.state.get("running", {}).get("startedAt") or now(),
            "finishedAt": now(),
            "containerID": self.id,
        }
        if message:
            ended["message"] = message
        self.state = {"terminated": ended}
        self.ready = False

    def waits(self, reason: str, message: str) -> None:
        """Note why it cannot be started yet."""
        if "terminated" in self.state:
            self.last = self.state
        self.state = waiting(reason, message)

    def backs_off(self, message: str) -> None:
        """Note that it will be started again."""
        self.waits("CrashLoopBackOff", message)

    def status(self) -> Json:
        """Give the entry of ``containerStatuses``."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"local-kube/{self.image}" if self.id else "",
            "containerID": self.id,
            "ready": self.ready,
            "started": self.running,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last,
        }


def phase(containers: Sequence[ContainerState], *, init_failed: bool, policy: str) -> str:
    """Give the phase of a pod on a node; *policy* tells which ends of containers are for good."""
    codes = [container.exit_code for container in containers]
    if init_failed and policy == "Never":
        return "Failed"
    if policy == "Never" and None not in codes:
        return "Failed" if any(codes) else "Succeeded"
    if policy == "OnFailure" and not any(code is None or code for code in codes):
        return "Succeeded"
    started = any(container.running or container.exit_code is not None or container.last for container in containers)
    return "Running" if started else "Pending"


def conditions(
    before: Sequence[Json], scheduled: Json, containers: Sequence[ContainerState], *, initialized: bool, ended: bool
) -> list[Json]:
    """Give the conditions, each with the time of its last change."""
    unready = [container.name for container in containers if not container.ready]
    ready: Json = {"status": "False" if unready or not initialized else "True"}
    if ended:
        ready["reason"] = "PodCompleted"
    elif unready:
        ready |= {
            "reason": "ContainersNotReady",
            "message": f"containers with unready status: [{' '.join(unready)}]",
        }
    known = {"PodScheduled": scheduled}
    if scheduled["status"] == "True":
        known |= {
            "PodReadyToStartContainers": {"status": "True"},
            "Initialized": {"status": "True" if initialized else "False"},
            "ContainersReady": ready,
            "Ready": ready,
        }
    return [_dated(kind, condition, before) for kind, condition in known.items()]


def _dated(kind: str, condition: Json, before: Sequence[Json]) -> Json:
    same = [old for old in before if old["type"] == kind and old["status"] == condition["status"]]
    since = same[0]["lastTransitionTime"] if same else now()
    return {"type": kind, "lastProbeTime": None, "lastTransitionTime": since, **condition}


def initial(container: Json, *, waits: bool) -> ContainerState:
    """Give the state of a container of a new pod; *waits* for init containers, or is one."""
    state = waiting("PodInitializing" if waits else CREATING)
    return ContainerState(container["name"], container.get("image", ""), state)
