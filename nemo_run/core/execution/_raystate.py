"""What the statuses of RayJobs and RayClusters mean, and those of the pods behind them; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nemo_run._kube.startup import startup
from nemo_run.core.execution._endings import Ending, endings
from nemo_run.core.execution._rayjob import GROUP_LABEL, NODE_LABEL, SUBMITTER_CONTAINER

UNKNOWN = "UNKNOWN"
"""What stands for a status that KubeRay has not written yet."""

INVALID = frozenset(
    {"InvalidRayClusterSpec", "InvalidRayClusterMetadata", "InvalidRayJobSpec", "InvalidRayJobMetadata"}
)
"""Reasons of events by which KubeRay refuses an object, mostly without a status (KubeRay 1.7 constant.go)."""


@dataclass(frozen=True)
class JobPhase:
    """Where a RayJob is in its life."""

    state: str
    """PENDING, RUNNING, SUCCEEDED, FAILED or CANCELLED."""
    ended: bool
    job_status: str
    deployment: str
    reason: str = ""
    message: str = ""
    cluster: str = ""
    """The RayCluster that it runs on now."""
    mode: str = ""
    """How it is submitted (``spec.submissionMode``); empty is KubeRay's default, a Job's pod."""
    started: str = ""
    """When KubeRay took it up, as Kubernetes writes it."""
    endings: str = ""
    """Which of its containers ended badly, and what helps; KubeRay says nothing of it."""

    def __str__(self) -> str:
        text = f"{self.deployment}/{self.job_status}"
        why = ": ".join(part for part in (self.reason, self.message.partition("\n")[0]) if part)
        told = "; ".join(part for part in (why, self.endings) if part)
        return f"{text} ({told})" if told else text

    @property
    def full_message(self) -> str:
        """KubeRay's message, which may end with the job's output, and a line on the containers that ended badly."""
        if not self.endings:
            return self.message
        return "\n".join(part for part in (self.message.rstrip("\n"), self.endings) if part)

    def as_status(self) -> dict[str, Any]:
        """Give what ``status()`` returns."""
        return {
            "jobStatus": self.job_status,
            "jobDeploymentStatus": self.deployment,
            "reason": self.reason,
            "message": self.full_message,
            "rayClusterName": self.cluster,
        }


_COMPLETE = {"STOPPED": "CANCELLED", "FAILED": "FAILED"}
"""What Complete means beside success; before KubeRay 1.2 a job that failed was Complete as well."""
_ENDED = ("Complete", "Failed", "ValidationFailed")
_RUNS = ("RUNNING", "SUCCEEDED", "FAILED", "STOPPED")


def job_phase(job: Mapping[str, Any]) -> JobPhase:
    """
    Read the phase off a RayJob as the API server returned it.

    ``jobDeploymentStatus`` decides: ``jobStatus`` turns FAILED before KubeRay
    tries again, and SUCCEEDED before the submitter has printed its last lines
    (KubeRay 1.7 rayjob_controller.go).
    """
    status = job.get("status") or {}
    job_status = status.get("jobStatus") or UNKNOWN
    deployment = status.get("jobDeploymentStatus") or UNKNOWN
    ended = deployment in _ENDED
    if ended:
        state = _COMPLETE.get(job_status, "SUCCEEDED") if deployment == "Complete" else "FAILED"
    else:
        state = "RUNNING" if deployment == "Running" and job_status in _RUNS else "PENDING"
    return JobPhase(
        state,
        ended,
        job_status,
        deployment,
        status.get("reason") or "",
        status.get("message") or "",
        status.get("rayClusterName") or "",
        (job.get("spec") or {}).get("submissionMode") or "",
        status.get("startTime") or "",
    )


def vanished(last: JobPhase, *, by_us: bool) -> JobPhase:
    """
    Give the phase of a RayJob that was there and is not any more.

    One that had ended stays what it was: operators may remove it then.
    """
    if last.ended:
        return last
    who = "stopped" if by_us else "deleted outside nemo_run"
    return JobPhase("CANCELLED", True, "STOPPED", "Failed", "Deleted", f"{who}; last seen: {last}", last.cluster)


def job_endings(pods: Iterable[Mapping[str, Any]]) -> list[Ending]:
    """
    Give what ended badly of the *pods* of a RayJob's cluster by itself.

    KubeRay deletes the cluster of a job that has ended, and what its containers
    make of that says nothing; nor does the exit code of a submitter, which is
    that of the job.
    """
    found = []
    for pod in pods:
        limit, requests = _memory_fields(pod)
        for each in endings([_before_deletion(pod)]):
            if (each.container, each.reason) != (SUBMITTER_CONTAINER, "Error"):
                found.append(replace(each, limit=limit, requests=requests))
    return found


def _memory_fields(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Name what limits and what guarantees the memory of *pod*."""
    labels = pod["metadata"].get("labels") or {}
    if labels.get(NODE_LABEL) == "head":
        return "head_memory", "head_memory"
    group = f"of worker group {labels.get(GROUP_LABEL)}"
    return f"memory_limits {group}", f"memory_requests {group}"


def _before_deletion(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give *pod* without how its containers ended after somebody deleted it; that memory ran out is nobody's doing."""
    status = pod.get("status") or {}
    if not pod["metadata"].get("deletionTimestamp"):
        return pod
    kept = {}
    for key in ("initContainerStatuses", "containerStatuses"):
        kept[key] = [entry if _out_of_memory(entry) else {**entry, "state": {}} for entry in status.get(key) or ()]
    return {**pod, "status": {**status, **kept}}


def _out_of_memory(container: Mapping[str, Any]) -> bool:
    ended = (container.get("state") or {}).get("terminated") or {}
    return bool(ended.get("reason") == "OOMKilled")


@dataclass(frozen=True)
class Readiness:
    """How far a RayCluster has come."""

    ready: bool
    text: str

    def __str__(self) -> str:
        return self.text


def readiness(cluster: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> Readiness:
    """
    Tell whether the head can be used, and what the cluster waits for otherwise.

    The condition decides where KubeRay writes it (1.3 and later), else the head's pod.
    """
    status = cluster.get("status") or {}
    conditions = {entry["type"]: entry for entry in status.get("conditions") or ()}
    known = list(pods)
    heads = [pod for pod in known if (pod["metadata"].get("labels") or {}).get(NODE_LABEL) == "head"]
    by_pod = any(startup(pod).ready for pod in heads)
    condition = conditions.get("HeadPodReady")
    address = (status.get("head") or {}).get("serviceIP") or (status.get("head") or {}).get("podIP")
    if (by_pod if condition is None else condition.get("status") == "True") and address:
        return Readiness(True, "ready")
    return Readiness(False, "; ".join(_reasons(status, conditions, known)) or "no status yet")


def _reasons(status: Mapping[str, Any], conditions: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> list[str]:
    found: list[str] = []
    for kind, wanted in (("ReplicaFailure", "True"), ("RayClusterSuspended", "True"), ("HeadPodReady", "False")):
        entry = conditions.get(kind) or {}
        if entry.get("status") == wanted:
            found.append(_told(kind, entry.get("reason"), entry.get("message")))
    for pod in pods:
        seen = startup(pod)
        if not seen.ready:
            found.append(f"pod {pod['metadata']['name']}: {seen.text}")
    if not found and status:
        found.append(_told(status.get("state") or "starting", status.get("reason"), None))
    return found


def refusal(events: Iterable[Mapping[str, Any]]) -> str:
    """Give by which words KubeRay refused an object, or nothing."""
    for event in events:
        if event.get("reason") in INVALID:
            return _told(str(event["reason"]), None, event.get("message"))
    return ""


def _told(kind: str, reason: Any, message: Any) -> str:
    head = " ".join(str(part) for part in (kind, reason) if part)
    return f"{head}: {' '.join(str(message).split())}" if message else head
