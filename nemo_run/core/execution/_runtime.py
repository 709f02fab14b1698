"""
Does the training runtime have what a TrainJob patches?

Trainer merges a patch for a container that the runtime does not have as one
more container, without an image; the job then never starts, and only an event
on its JobSet says why (Trainer v2.3 core/trainingruntime.go).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nemo_run._kube.resources import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from nemo_run.core.execution._trainjob import TARGET_JOB
from nemo_run.exceptions import ConfigError, NotAuthorized, NotFound

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

Json = dict[str, Any]


def check_runtime(api: KubeApi, body: Mapping[str, Any]) -> None:
    """
    Make sure that the runtime is there and has the containers that *body*, a TrainJob, patches.

    Without the right to read runtimes nothing is checked.

    Raises:
        ConfigError: says what there is.
    """
    reference = body["spec"]["runtimeRef"]
    kind = TRAINING_RUNTIME if reference.get("kind") == TRAINING_RUNTIME.kind else CLUSTER_TRAINING_RUNTIME
    namespace = body["metadata"]["namespace"] if kind.namespaced else ""
    try:
        runtime = api.get(kind, namespace, reference["name"])
    except NotFound as error:
        known = ", ".join(repr(each["metadata"]["name"]) for each in api.list(kind, namespace)) or "none"
        raise ConfigError("runtime_ref", reference["name"], f"no such {kind.kind}; there is {known}") from error
    except NotAuthorized as error:
        logger.info("cannot read the runtime, so its containers are not checked: %s", error)
        return
    wanted = set(_patched(body["spec"]))
    there = _containers(runtime)
    if missing := sorted(wanted - there):
        raise ConfigError(
            "container_name",
            missing[0],
            f"the job {TARGET_JOB!r} of {kind.kind} {reference['name']!r} has no such container, but"
            f" {', '.join(map(repr, sorted(there))) or 'none at all'}",
        )


def _patched(spec: Mapping[str, Any]) -> Iterator[str]:
    for entry in spec.get("podTemplateOverrides") or ():
        yield from _names(entry.get("spec"))
    for entry in spec.get("runtimePatches") or ():
        jobs = _at(entry, "trainingRuntimeSpec", "template", "spec").get("replicatedJobs") or ()
        for job in jobs:
            yield from _names(_at(job, "template", "spec", "template", "spec"))


def _names(pod: Mapping[str, Any] | None) -> Iterator[str]:
    for container in (pod or {}).get("containers") or ():
        yield container["name"]


def _containers(runtime: Mapping[str, Any]) -> set[str]:
    jobs = _at(runtime, "spec", "template", "spec").get("replicatedJobs") or ()
    pods = (_at(job, "template", "spec", "template", "spec") for job in jobs if job.get("name") == TARGET_JOB)
    return {name for pod in pods for name in _names(pod)}


def _at(value: Mapping[str, Any], *steps: str) -> Mapping[str, Any]:
    for step in steps:
        value = value.get(step) or {}
    return value
