"""The kinds of objects that LocalKube serves."""

from __future__ import annotations

from dataclasses import dataclass, field

from nemo_run._kube.resources import (
    CLAIM,
    CLUSTER_TRAINING_RUNTIME,
    CONFIG_MAP,
    EVENT,
    POD,
    RAYCLUSTER,
    RAYJOB,
    SECRET,
    TRAINING_RUNTIME,
    TRAINJOB,
    Resource,
)

NAMESPACE = Resource("", "v1", "namespaces", "Namespace", False)
NODE = Resource("", "v1", "nodes", "Node", False)
SERVICE = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNT = Resource("", "v1", "serviceaccounts", "ServiceAccount")
JOB = Resource("batch", "v1", "jobs", "Job")
JOBSET = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")

CORE = (NAMESPACE, NODE, POD, EVENT, SECRET, CONFIG_MAP, CLAIM, SERVICE, SERVICE_ACCOUNT, JOB)
TRAINER = (TRAINJOB, TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME, JOBSET)
KUBERAY = (RAYCLUSTER, RAYJOB)

WITH_STATUS = frozenset(
    kind.plural for kind in (POD, NAMESPACE, NODE, CLAIM, JOB, SERVICE, TRAINJOB, JOBSET, RAYCLUSTER, RAYJOB)
)
COUNTED = frozenset(kind.plural for kind in (POD, JOB, *TRAINER, *KUBERAY))
"""Kinds whose ``metadata.generation`` counts the changes of what is wanted."""

SHORT_NAMES = {
    "pods": ["po"],
    "events": ["ev"],
    "configmaps": ["cm"],
    "persistentvolumeclaims": ["pvc"],
    "namespaces": ["ns"],
    "nodes": ["no"],
    "services": ["svc"],
    "serviceaccounts": ["sa"],
}


@dataclass(frozen=True)
class Kinds:
    """The kinds of one server, found by where they stand in a URL."""

    all: tuple[Resource, ...]
    _by_place: dict[tuple[str, str, str], Resource] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        places = {(kind.group, kind.version, kind.plural): kind for kind in self.all}
        object.__setattr__(self, "_by_place", places)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Give the kind at this place, None if the server does not know it."""
        return self._by_place.get((group, version, plural))

    def group_versions(self) -> list[tuple[str, str]]:
        """Give each (group, version) once, the core group ``""`` included."""
        return list(dict.fromkeys((kind.group, kind.version) for kind in self.all))


def served(*, trainer: bool, kuberay: bool) -> Kinds:
    """Give the kinds of a server with or without the two operators."""
    return Kinds(CORE + (TRAINER if trainer else ()) + (KUBERAY if kuberay else ()))
