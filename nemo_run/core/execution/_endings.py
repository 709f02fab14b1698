"""How the containers of a job ended, noted while they can still be asked."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nemo_run._kube.resources import POD
from nemo_run.exceptions import KubeError, NotAuthorized, ServerError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger("nemo_run")

Pods = Iterable[Mapping[str, Any]]

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"

_SPAN = 10.0
_PAUSE = 2.0
_LONG_PAUSE = 30.0
"""Seconds until a server is asked again that refused."""
_SHOWN = 4
"""Containers that are named; of a thousand nodes most say the same."""

_ADVICE: Mapping[Any, str] = {
    "OOMKilled": "raise {limit}, or use less memory",
    "Evicted": "request what it uses ({requests}), so that its node keeps it free",
    126: "exit code 126 means that the image has the command, but may not execute it",
    127: "exit code 127 means that the image does not have a command",
}
"""What helps, by reason or exit code; the names of an executor's fields come from the ending."""
_DISRUPTED = "DisruptionTarget"
"""The condition of a pod that somebody took away: the scheduler, a drain, the kubelet (Kubernetes 1.26)."""


@dataclass(frozen=True)
class Ending:
    """How a container ended badly, or its whole pod if *container* is empty."""

    pod: str
    container: str
    reason: str
    message: str = ""
    exit_code: int | None = None
    at: str = ""
    """When, as Kubernetes writes it; empty if nobody says."""
    limit: str = "memory_limits"
    """The field that limits its memory."""
    requests: str = "memory_requests, extra_resource_requests"
    """The fields that say what it is guaranteed."""

    def __str__(self) -> str:
        text = f"pod {self.pod}"
        text += f", container {self.container}: {self.reason}" if self.container else f": {self.reason}"
        text += "" if self.exit_code is None else f", exit code {self.exit_code}"
        return f"{text}: {' '.join(self.message.split())}" if self.message else text

    @property
    def advice(self) -> str:
        """Say what helps, where that is known."""
        text = _ADVICE.get(self.reason) or _ADVICE.get(self.exit_code, "")
        return text.format(limit=self.limit, requests=self.requests)


_noted: dict[tuple[str, str, str], dict[str, list[Ending]]] = defaultdict(dict)
"""By pod, for each server, namespace and label selector; in the order in which they ended."""


class Endings:
    """
    Watches the pods of a job for as long as the ``with`` block lasts.

    When a Job fails, Kubernetes deletes its pods whose restart policy is
    OnFailure, and with them the exit code: so it has to be caught as it happens.
    Without the right to watch, pods are listed every few seconds.

    Args:
        labels: gives the selector of the job's pods; nothing while that is not known. It is asked each time anew.
        found: gives what ended badly of some pods, and counts.
    """

    def __init__(
        self, api: KubeApi, namespace: str, labels: Callable[[], str], found: Callable[[Pods], list[Ending]]
    ) -> None:
        # Each round is a new try anyway.
        self._api = api.patient(0)
        self._namespace = namespace
        self._labels = labels
        self._found = found
        self._over = threading.Event()

    def __enter__(self) -> Endings:
        threading.Thread(target=self._run, name=f"endings in {self._namespace}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def _run(self) -> None:
        look: Callable[[str], None] = self._watch
        told = False
        while not self._over.is_set():
            if not (labels := self._labels()):
                self._over.wait(_PAUSE)
                continue
            try:
                look(labels)
            except (ServerError, Unreachable):
                self._over.wait(_PAUSE)
            except KubeError as error:
                if isinstance(error, NotAuthorized) and look == self._watch:
                    look = self._list
                    continue
                if not told:
                    logger.info("pods cannot be looked at, so exit codes may be missing: %s", error)
                told = True
                self._over.wait(_LONG_PAUSE)

    def _watch(self, labels: str) -> None:
        for event in self._api.watch(POD, self._namespace, labels=labels, timeout=_SPAN):
            note(self._api, self._namespace, labels, [event.object], self._found)
            if self._over.is_set():
                return

    def _list(self, labels: str) -> None:
        note(self._api, self._namespace, labels, self._api.list(POD, self._namespace, labels=labels), self._found)
        self._over.wait(_PAUSE)


def note(api: KubeApi, namespace: str, labels: str, pods: Pods, found: Callable[[Pods], list[Ending]]) -> None:
    """Remember what *found* says that ended badly of *pods*, which are those with these *labels*."""
    for pod in pods:
        if ended := found([pod]):
            _noted[api.server, namespace, labels][pod["metadata"]["name"]] = ended


def noted(api: KubeApi, namespace: str, labels: str, *, since: str = "") -> str:
    """
    Say which containers of the pods with *labels* have been seen to end badly, the first ones first, and what helps.

    Args:
        since: leave out what ended before; a time as Kubernetes writes it.
    """
    seen = (each for of_pod in _found(api.server, namespace, labels).values() for each in of_pod)
    found = [each for each in seen if not each.at or each.at >= since]
    more = [f"and {len(found) - _SHOWN} more containers"] if len(found) > _SHOWN else []
    advice = dict.fromkeys(each.advice for each in found[:_SHOWN] if each.advice)
    return "; ".join([*map(str, found[:_SHOWN]), *more, *advice])


def failed_pods(server: str, namespace: str, labels: str) -> list[str]:
    """Name the pods with *labels* that have been seen to end badly, the first ones first."""
    return list(_found(server, namespace, labels))


def _found(server: str, namespace: str, labels: str) -> Mapping[str, list[Ending]]:
    # A copy: another thread may be noting.
    return dict(_noted.get((server, namespace, labels), {}))


def endings(pods: Pods) -> list[Ending]:
    """Give what ended badly of *pods*: containers, or a pod that was taken away."""
    found = []
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        if verdict := _verdict(status):
            found.append(Ending(name, "", verdict.get("reason") or "Failed", verdict.get("message") or ""))
            continue
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            if ended := _ended(container):
                reason, message = ended.get("reason") or "Error", ended.get("message") or ""
                at = ended.get("finishedAt") or ""
                found.append(Ending(name, container["name"], reason, message, ended.get("exitCode"), at))
    return found


def _verdict(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give why the pod as a whole was ended; the exit codes of its containers only follow from that."""
    if status.get("phase") == "Failed" and status.get("reason"):
        return status
    return next((c for c in status.get("conditions") or () if c["type"] == _DISRUPTED and c["status"] == "True"), None)


def pods_of(name: str) -> str:
    """Give the labels of all pods of the TrainJob *name*."""
    return f"{JOBSET_LABEL}={name}"


def _ended(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give how the container ended badly, this time or the last; an exit code 0 can still be an OOM kill."""
    for state in (container.get("state"), container.get("lastState")):
        ended: Mapping[str, Any] | None = (state or {}).get("terminated")
        if ended and (ended.get("exitCode") or ended.get("reason") == "OOMKilled"):
            return ended
    return None
