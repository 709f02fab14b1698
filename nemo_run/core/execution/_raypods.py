"""
The pods of a Ray cluster, pure: an executor's fields, what one group adds, and a layout in, a pod template out.

KubeRay takes the first container of a pod as the one that runs Ray; all others
are left alone.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.fields import CONTAINER, POD_SPEC, known_fields
from nemo_run._kube.manifests.pods import PodShape, label_map, literal, pod_spec, prune, string_map
from nemo_run._kube.mounts import Json, merged_mounts, merged_volumes
from nemo_run.core.execution._env import Environment, environment
from nemo_run.core.execution._script import assignment, check_start
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.core.execution.kuberay import KubeRayExecutor

_STARTS_RAY = re.compile(r"\bray\s+start\b")


@dataclass(frozen=True)
class Passed:
    """What a user passed through to Kubernetes by name, and what there is to say about it."""

    pod: Json
    container: Json
    notes: tuple[str, ...]


def passed_through(executor: KubeRayExecutor) -> Passed:
    """
    Give the fields that the executor passes through, as Kubernetes spells them.

    Raises:
        ConfigError: the executor is strict, and a field is no field of a pod spec or container.
    """
    pod, about_pod = known_fields(executor.spec_kwargs, POD_SPEC, argument="spec_kwargs", strict=executor.strict)
    container, about_container = known_fields(
        executor.container_kwargs, CONTAINER, argument="container_kwargs", strict=executor.strict
    )
    return Passed(pod, container, (*about_pod, *about_container))


def mover_shape(executor: KubeRayExecutor) -> PodShape:
    """Give the shape that the copy pod takes over from the Ray pods."""
    return PodShape.of(pod_spec(_placement(executor), passed_through(executor).pod))


@dataclass(frozen=True)
class Member:
    """What tells the pods of one group from the others'."""

    container: str
    resources: Json
    ports: Sequence[Mapping[str, Any]] = ()
    volumes: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    pod_spec: Mapping[str, Any] = field(default_factory=dict)


def template(executor: KubeRayExecutor, member: Member, layout: WorkdirLayout | None, start: Sequence[str]) -> Json:
    """
    Give the template of the group's pods.

    Args:
        start: shell commands that run before Ray does.

    Raises:
        ConfigError: the fields contradict each other, or what Kubernetes or KubeRay can do.
    """
    passed = passed_through(executor)
    base = {
        **_placement(executor),
        "containers": [_ray_container(executor, member, passed.container, start)],
        "volumes": merged_volumes(member.volumes),
    }
    spec = pod_spec(base, passed.pod, member.pod_spec)
    metadata = {
        "labels": label_map({**executor.pod_labels, **member.labels}, argument="pod_labels"),
        "annotations": string_map({**executor.pod_annotations, **member.annotations}, argument="pod_annotations"),
    }
    return prune({"metadata": prune(metadata), "spec": prune(_with_workdir(spec, layout))})


def _placement(executor: KubeRayExecutor) -> Json:
    return PodShape(
        tolerations=executor.tolerations,
        affinity=executor.affinity,
        node_selector=executor.node_selector,
        image_pull_secrets=executor.image_pull_secrets,
    ).spec()


def _ray_container(executor: KubeRayExecutor, member: Member, passed: Json, start: Sequence[str]) -> Json:
    env = environment(
        [
            ("env_vars", executor.env_vars),
            ("env_list", executor.env_list),
            ("container_kwargs['env']", passed.get("env") or ()),
        ]
    )
    check_start((), env.variables())
    container: Json = {
        "name": member.container,
        "image": executor.image,
        "ports": [dict(port) for port in member.ports],
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}, **executor.lifecycle_kwargs},
        "resources": member.resources,
        **passed,
        **_before_ray(start, env, passed),
        "env": env.container,
        "volumeMounts": [*member.mounts, *(passed.get("volumeMounts") or ())],
    }
    return prune(container)


def _with_workdir(spec: Json, layout: WorkdirLayout | None) -> Json:
    """Give *spec* with its mounts merged and, if there is a layout, the Ray container at home in it."""
    ray, *others = spec["containers"]
    sidecars = [
        {**each, "volumeMounts": merged_mounts(each["volumeMounts"])} if each.get("volumeMounts") else each
        for each in others
    ]
    volumes = spec.get("volumes", [])
    mounts = ray.get("volumeMounts", [])
    if layout is None:
        placed = {**ray, "volumeMounts": merged_mounts(mounts)}
    else:
        here = layout.among(volumes)
        volumes = here.volumes(volumes)
        placed = {**ray, "volumeMounts": here.mounts(mounts), "workingDir": str(here.code_dir)}
    _check_declared(placed["volumeMounts"], volumes)
    return {**spec, "containers": [prune(placed), *sidecars], "volumes": volumes}


def _check_declared(mounts: Iterable[Mapping[str, Any]], volumes: Iterable[Mapping[str, Any]]) -> None:
    names = [volume["name"] for volume in volumes]
    for mount in mounts:
        if mount["name"] not in names:
            there = ", ".join(map(repr, names)) or "nothing"
            raise ConfigError(
                "volume_mounts",
                dict(mount),
                f"no volume of that name in volumes, which holds {there}; add or rename it",
            )


def _before_ray(commands: Sequence[str], env: Environment, passed: Json) -> Json:
    """
    Give the command that KubeRay puts before ``ray start``, in the same shell, so that exports reach Ray.

    It is one element, since KubeRay joins them with spaces, and it exits by
    itself: KubeRay goes on with ``&& ulimit …; ray start …``, which runs Ray whatever came before.
    """
    for command in commands:
        if _STARTS_RAY.search(command):
            raise ConfigError("pre_ray_start_commands", command, "leave 'ray start' out; KubeRay runs it")
    lines = [f"export {assignment(export)}" for export in env.exports]
    lines += commands
    if not lines:
        return {}
    if passed.get("command") or passed.get("args"):
        raise ConfigError(
            "container_kwargs",
            {key: passed[key] for key in ("command", "args") if key in passed},
            f"KubeRay runs it before Ray, where these have to run: {lines}; write it into pre_ray_start_commands",
        )
    text = " && ".join(f"eval {shlex.quote(line)}" for line in lines)
    return {"command": [literal(f"{text} || exit 1")]}
