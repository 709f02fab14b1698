"""How far a pod's start has come, read off the pod and its events; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_FAILING = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
    }
)
"""Waiting reasons that seldom pass (kubelet ``images/types.go``, ``container/sync_result.go``)."""

SILENT = ("Pending", "ContainerCreating", "PodInitializing")
"""Texts of pods of which only events may know more."""


@dataclass(frozen=True)
class Startup:
    """Where a pod stands: *ready*, *ended* before it was used, or on its way, perhaps *failing*."""

    text: str
    ready: bool = False
    ended: bool = False
    failing: bool = False


def startup(pod: Mapping[str, Any]) -> Startup:
    """Read off *pod* how far its start has come, with Kubernetes' own reasons."""
    status = pod.get("status") or {}
    phase = status.get("phase") or "Pending"
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return Startup("being deleted", ended=True)
    if phase in ("Failed", "Succeeded"):
        return Startup(_end(status, phase), ended=True)
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    if (conditions.get("Ready") or {}).get("status") == "True":
        return Startup("ready", ready=True)
    if waiting := _waiting(status):
        reason, text = waiting
        return Startup(text, failing=reason in _FAILING)
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        return Startup(_told(scheduled.get("reason") or "Unschedulable", scheduled.get("message")))
    return Startup(phase)


def trouble(events: Iterable[Mapping[str, Any]]) -> str:
    """Give the newest warning among a pod's *events* as one line, or nothing."""
    warnings = [event for event in events if event.get("type") == "Warning"]
    newest = max(warnings, key=_when, default=None)
    return _told(newest.get("reason"), newest.get("message")) if newest else ""


def with_trouble(text: str, trouble: str) -> str:
    """Give a pod's *text* with its newest warning, unless that says the same."""
    return f"{text} ({trouble})" if trouble and trouble.partition(": ")[2] not in text else text


def _when(event: Mapping[str, Any]) -> str:
    """Give the time of an event; RFC 3339 in UTC sorts as text."""
    series = event.get("series") or {}
    metadata = event.get("metadata") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return max(time or "" for time in (*times, metadata.get("creationTimestamp")))


def _containers(status: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))


def _waiting(status: Mapping[str, Any]) -> tuple[str, str] | None:
    """Give reason and text of the first container that waits for more than its turn."""
    for container in _containers(status):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason") or ""
        if reason in _FAILING:
            return reason, _told(f"{reason} for image {container.get('image')!r}", waiting.get("message"))
        if reason and reason != "PodInitializing":
            return reason, _told(reason, waiting.get("message"))
    return None


def _end(status: Mapping[str, Any], phase: str) -> str:
    for container in _containers(status):
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            reason = ended.get("reason") or phase
            text = f"container {container.get('name')} ended: {reason}, exit code {ended.get('exitCode')}"
            return _told(text, ended.get("message") or status.get("message"))
    return _told(status.get("reason") or phase, status.get("message"))


def _told(reason: Any, message: Any) -> str:
    return f"{reason}: {' '.join(str(message).split())}" if message else str(reason)
