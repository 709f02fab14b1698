"""A pod's status, worked out from the states of its containers."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

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
    state: Json = field(default_factory=lambda: waiting("PodInitializing"))
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

    def backs_off(self, message: str) -> None:
        """Note that it will be started again."""
        self.last = self.state
        self.state = waiting("CrashLoopBackOff", message)

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


def phase(containers: Sequence[ContainerState], *, init_failed: bool, restarts: str) -> str:
    """Give the phase of a pod on a node."""
    codes = [container.exit_code for container in containers]
    if init_failed:
        return "Failed"
    if codes and all(code is not None for code in codes) and restarts != "Always":
        return "Failed" if any(codes) else "Succeeded"
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


def initial(pod: Json) -> Mapping[str, ContainerState]:
    """Give the states of a new pod's containers, its init containers first."""
    spec = pod["spec"]
    early = bool(spec.get("initContainers"))
    states = {}
    for container in spec.get("initContainers", []):
        states[container["name"]] = ContainerState(container["name"], container.get("image", ""))
    for container in spec["containers"]:
        state = waiting("PodInitializing" if early else "ContainerCreating")
        states[container["name"]] = ContainerState(container["name"], container.get("image", ""), state)
    return states
