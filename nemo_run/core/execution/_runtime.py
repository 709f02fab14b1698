"""
Does what a TrainJob patches fit its training runtime?

Trainer merges without asking: a patch for a container that the runtime does not
have becomes one more container, without an image; a mount of a volume that
nobody declares stays one. The job then never starts, and only an event on its
JobSet says why (Trainer v2.3 core/trainingruntime.go).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from nemo_run._kube.manifests.pods import prune
from nemo_run._kube.resources import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from nemo_run.core.execution._trainjob import TARGET_JOB
from nemo_run.exceptions import ConfigError, NotAuthorized, NotFound

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

Json = Mapping[str, Any]

_DIRECTORY = ("subPath", "subPathExpr")
"""The fields of a mount that say which directory of the volume it is."""


def check_runtime(api: KubeApi, body: Json) -> None:
    """
    Make sure that the runtime is there and that what *body*, a TrainJob, patches fits it.

    Without the right to read runtimes nothing is checked.

    Raises:
        ConfigError: there is no such runtime, container or volume (it says what there is), or a volume or mount
            of the runtime's would be merged into another thing than was asked for.
    """
    reference = body["spec"]["runtimeRef"]
    kind = TRAINING_RUNTIME if reference.get("kind") == TRAINING_RUNTIME.kind else CLUSTER_TRAINING_RUNTIME
    namespace = body["metadata"]["namespace"] if kind.namespaced else ""
    try:
        runtime = api.get(kind, namespace, reference["name"])
    except NotFound as error:
        known = _quoted(each["metadata"]["name"] for each in api.list(kind, namespace))
        raise ConfigError("runtime_ref", reference["name"], f"no such {kind.kind}; there is {known}") from error
    except NotAuthorized as error:
        logger.info("cannot read the runtime, so containers, volumes and mounts are not checked: %s", error)
        return
    what = f"{kind.kind} {reference['name']!r}"
    patches = list(_patches(body["spec"]))
    theirs = list(_of_target(_at(runtime, "spec", "template", "spec")))
    _check_containers(patches, theirs, what)
    _check_volumes(patches, theirs, _claims(runtime), what)
    _check_mounts(patches, theirs, what)


def _check_containers(patches: Iterable[Json], theirs: Iterable[Json], what: str) -> None:
    there = {each["name"] for pod in theirs for each in _listed(pod, "containers")}
    wanted = {each["name"] for pod in patches for each in _listed(pod, "containers")}
    if missing := sorted(wanted - there):
        raise ConfigError(
            "container_name",
            missing[0],
            f"the job {TARGET_JOB!r} of {what} has no such container, but {_quoted(there)}",
        )


def _check_volumes(patches: Iterable[Json], theirs: Iterable[Json], claims: Iterable[str], what: str) -> None:
    there = {volume["name"]: volume for pod in theirs for volume in _listed(pod, "volumes")}
    ours = {volume["name"]: volume for pod in patches for volume in _listed(pod, "volumes")}
    for name in sorted(there.keys() & ours.keys()):
        kinds = [set(prune(volume)) - {"name"} for volume in (there[name], ours[name])]
        if kinds[0] != kinds[1]:
            raise ConfigError(
                "volumes",
                ours[name],
                f"{what} has a volume of this name, {there[name]!r}, and Kubernetes would merge the two; rename yours",
            )
    known = {*there, *ours, *claims}
    for mount in (mount for pod in patches for container in _containers(pod) for mount in _mounts(container)):
        if mount["name"] not in known:
            raise ConfigError(
                "volume_mounts",
                dict(mount),
                f"there is no volume {mount['name']!r}: volumes and pod_spec_overrides have {_quoted(ours)}, and {what}"
                f" has {_quoted({*there, *claims})}; add it to volumes, or name one of these",
            )


def _check_mounts(patches: Iterable[Json], theirs: Iterable[Json], what: str) -> None:
    """Check mounts at a path of the runtime's: the two become one, field by field (strategic merge patch)."""
    there = {
        (container["name"], PurePosixPath(mount["mountPath"])): mount
        for pod in theirs
        for container in _containers(pod)
        for mount in _mounts(container)
    }
    for container in (container for pod in patches for container in _containers(pod)):
        for mount in _mounts(container):
            if other := there.get((container["name"], PurePosixPath(mount["mountPath"]))):
                _check_merged(mount, other, what)


def _check_merged(mount: Json, other: Json, what: str) -> None:
    # Merged by their text, "/data" and "/data/" are two.
    if mount["mountPath"] != other["mountPath"]:
        raise ConfigError(
            "volume_mounts", dict(mount), f"{what} mounts {dict(other)!r} there too; choose another mountPath"
        )
    stays = {key: value for key, value in prune(other).items() if value is not False and not mount.get(key)}
    if any(key in stays for key in _DIRECTORY):
        raise ConfigError(
            "volume_mounts",
            dict(mount),
            f"{what} mounts {dict(other)!r} there, of which Kubernetes would keep {stays!r}; choose another mountPath,"
            " or write the same",
        )
    if stays:
        logger.warning(
            "%s has a mount at %s already, of which Kubernetes keeps %s; to be rid of it, choose another mountPath",
            what,
            mount["mountPath"],
            stays,
        )


def _patches(spec: Json) -> Iterator[Json]:
    """Give the pod specs that are merged into the training job's, in either dialect."""
    for entry in spec.get("podTemplateOverrides") or ():
        if any(target.get("name") == TARGET_JOB for target in entry.get("targetJobs") or ()):
            yield _at(entry, "spec")
    for entry in spec.get("runtimePatches") or ():
        yield from _of_target(_at(entry, "trainingRuntimeSpec", "template", "spec"))


def _of_target(jobset: Json) -> Iterator[Json]:
    """Give the pod spec of the job that trains."""
    for job in _listed(jobset, "replicatedJobs"):
        if job.get("name") == TARGET_JOB:
            yield _at(job, "template", "spec", "template", "spec")


def _claims(runtime: Json) -> list[str]:
    """Name the volumes that a JobSet adds to its pods by itself (JobSet v0.12 ``volumeClaimPolicies``)."""
    policies = _listed(_at(runtime, "spec", "template", "spec"), "volumeClaimPolicies")
    return [_at(each, "metadata").get("name", "") for policy in policies for each in _listed(policy, "templates")]


def _containers(pod: Json) -> list[Json]:
    return [*_listed(pod, "containers"), *_listed(pod, "initContainers")]


def _mounts(container: Json) -> list[Json]:
    return _listed(container, "volumeMounts")


def _listed(value: Json, field: str) -> list[Json]:
    return value.get(field) or []


def _at(value: Json, *steps: str) -> Json:
    for step in steps:
        value = value.get(step) or {}
    return value


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none at all"
