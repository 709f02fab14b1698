"""
A TrainJob: its manifest in each dialect of the API, and the state that the server tells.

Kubeflow Trainer replaced the field for pod settings twice under the one
version ``v1alpha1``: ``podSpecOverrides`` (2.0), ``podTemplateOverrides``
(2.1), ``runtimePatches`` (2.2 and later).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from nemo_run._kube.manifests.pods import json_merge, pod_spec, prune
from nemo_run._kube.resources import TRAINJOB
from nemo_run.core.execution._passthrough import Dialect, Json, Origin, Place, Placed
from nemo_run.exceptions import ConfigError

TARGET_JOB = "node"
"""The replicated job that every stock runtime trains in (Trainer v2.3 manifests/base/runtimes)."""
PATCHES_MAX = 16
"""Entries that ``runtimePatches`` may have (Trainer v2.3 CRD)."""

_PATCH_FIELD: Mapping[Dialect, str] = {
    "2.0": "podSpecOverrides",
    "2.1": "podTemplateOverrides",
    "2.2": "runtimePatches",
}
_JOB_PATH = "trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template"


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """What a TrainJob is to be, in no dialect yet. All of it in Kubernetes' own terms."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime: str
    trainer: Mapping[str, Any]
    """``spec.trainer``."""
    pod: Mapping[str, Any]
    """The pod's spec, without containers."""
    mounts: Sequence[Mapping[str, Any]]
    pod_labels: Mapping[str, str]
    pod_annotations: Mapping[str, str]
    container: str = "node"
    placed: Placed = field(default_factory=Placed)
    """What pass-through arguments add; their volumes and mounts are in *pod* and *mounts* already."""


def manifest(job: TrainJob, dialect: Dialect) -> Json:
    """
    Give the object to create.

    Raises:
        ConfigError: the settings cannot be said in this dialect.
    """
    spec: Json = {
        "runtimeRef": {"name": job.runtime},
        "trainer": json_merge(prune(job.trainer), job.placed.trainer),
    }
    if patches := _patches(job, dialect):
        spec[_PATCH_FIELD[dialect]] = patches
    own = dict(job.placed.spec)
    patches_of_user = own.pop(_PATCH_FIELD[dialect], None) or []
    spec = json_merge(spec, own)
    if patches_of_user:
        spec[_PATCH_FIELD[dialect]] = [*patches, *copy.deepcopy(patches_of_user)]
    metadata = prune(
        {
            "name": job.name,
            "namespace": job.namespace,
            "labels": dict(job.labels),
            "annotations": dict(job.annotations),
        }
    )
    return {"apiVersion": TRAINJOB.api_version, "kind": TRAINJOB.kind, "metadata": metadata, "spec": spec}


def path_of(origin: Origin, dialect: Dialect) -> str:
    """Give the path of a pass-through field in the manifest, as the API server names it in its refusals."""
    pod = {
        "2.0": "spec.podSpecOverrides[0]",
        "2.1": "spec.podTemplateOverrides[0].spec",
        "2.2": f"spec.runtimePatches[0].{_JOB_PATH}.spec",
    }[dialect]
    where: Mapping[Place, str] = {
        "spec": "spec",
        "trainer": "spec.trainer",
        "pod": pod,
        "container": f"{pod}.containers[0]",
    }
    return f"{where[origin.place]}.{origin.field}"


def _patches(job: TrainJob, dialect: Dialect) -> list[Json]:
    """
    Give the entries that change the runtime's pod.

    Within one entry ``volumeMounts`` is keyed by the volume's name, so a volume
    that is mounted twice is spread over as many entries.
    """
    first, *more = _split(job.mounts) or [[]]
    metadata = prune({"labels": dict(job.pod_labels), "annotations": dict(job.pod_annotations)})
    container = json_merge(prune({"volumeMounts": first}), job.placed.container)
    base = dict(job.pod)
    if container:
        base["containers"] = [{"name": job.container, **container}]
    spec = pod_spec(prune(base), job.placed.pod)
    if not spec and not metadata:
        return []
    if dialect == "2.0":
        raise ConfigError(
            "trainer_api",
            "2.0",
            f"Kubeflow Trainer 2.0 cannot take the pod settings {', '.join(sorted(spec) or sorted(metadata))};"
            " upgrade Trainer to 2.1 or later, or put them into the ClusterTrainingRuntime",
        )
    if len(more) >= PATCHES_MAX:
        raise ConfigError("volume_mounts", len(more) + 1, f"one volume can be mounted at {PATCHES_MAX} paths at most")
    extra = [{"containers": [{"name": job.container, "volumeMounts": mounts}]} for mounts in more]
    if dialect == "2.1":
        return [_override(spec, metadata), *(_override(each, {}) for each in extra)]
    managers = ("nemo-run/executor", *(f"nemo-run/mounts-{number}" for number in range(2, len(extra) + 2)))
    return [
        _runtime_patch(manager, each, metadata if manager == managers[0] else {})
        for manager, each in zip(managers, [spec, *extra], strict=True)
    ]


def _split(mounts: Iterable[Mapping[str, Any]]) -> list[list[Json]]:
    """Give *mounts* in as few lists as let each name a volume once, in a stable order."""
    lists: list[list[Json]] = []
    for mount in mounts:
        room = (entries for entries in lists if all(entry["name"] != mount["name"] for entry in entries))
        entries = next(room, None)
        if entries is None:
            lists.append(entries := [])
        entries.append(copy.deepcopy(dict(mount)))
    return lists


def _override(spec: Json, metadata: Json) -> Json:
    return {"targetJobs": [{"name": TARGET_JOB}], **prune({"metadata": metadata, "spec": spec})}


def _runtime_patch(manager: str, spec: Json, metadata: Json) -> Json:
    pod = prune({"metadata": metadata, "spec": spec})
    job = {"name": TARGET_JOB, "template": {"spec": {"template": pod}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


PICKED_UP = 60.0
"""Seconds within which a controller that runs has written something of a new TrainJob."""
_OWN_MANAGER = "trainer.kubeflow.org/trainjob-controller"


@dataclass(frozen=True)
class Phase:
    """Where a TrainJob is in its life, as its status tells."""

    name: str
    """The value of a ``KubeflowJobState``."""
    reason: str = ""
    message: str = ""

    @property
    def ended(self) -> bool:
        """Tell whether nothing more will happen."""
        return self.name in ("Succeeded", "Failed")


_ENDS = {"Complete": "Succeeded", "Failed": "Failed"}
INITIALIZERS = ("dataset-initializer", "model-initializer")


def phase(job: Mapping[str, Any]) -> Phase:
    """
    Read the phase off a TrainJob as the API server returned it.

    Conditions decide. Counters stay as they were when a job ends by deadline,
    and count child Jobs: ``active`` holds for pods that are still pending
    (Trainer v2.3 trainjob_types.go).
    """
    status = job.get("status") or {}
    true = {c.get("type"): c for c in status.get("conditions") or () if c.get("status") == "True"}
    for kind, name in _ENDS.items():
        if kind in true:
            return Phase(name, true[kind].get("reason") or "", true[kind].get("message") or "")
    if "Suspended" in true:
        return Phase("Pending", "Suspended", "suspended, waiting in queue")
    counters = status.get("jobsStatus") or ()
    if any(_counts(c, "ready", "succeeded", "failed") for c in counters if c.get("name") not in INITIALIZERS):
        # Done or failed, and no condition: the JobSet has yet to say so, or starts it again.
        return Phase("Running")
    if any(_counts(c, "active", "ready", "succeeded", "failed") for c in counters):
        return Phase("Pending")
    return Phase("Created")


def _counts(counters: Mapping[str, Any], *names: str) -> bool:
    return any((counters.get(name) or 0) > 0 for name in names)


def untouched(job: Mapping[str, Any], now: float) -> str:
    """
    Say that nobody works on a TrainJob that has had no status for a minute; nothing if somebody does.

    Args:
        now: seconds since the epoch.
    """
    since = job["metadata"].get("creationTimestamp") or ""
    if job.get("status") or not since or now - _moment(since) < PICKED_UP:
        return ""
    manager = (job.get("spec") or {}).get("managedBy") or ""
    if manager and manager != _OWN_MANAGER:
        return f"no status since {since}: it is left to {manager}"
    return f"no status since {since}: Kubeflow Trainer's controller does not run, or does not get to it"


def _moment(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
