"""
RayCluster manifests, pure: an executor's fields and a layout in, a new dict out.

KubeRay takes the first container of a pod as the one that runs Ray; all others
are left alone.
"""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.fields import CONTAINER, POD_SPEC, known_fields
from nemo_run._kube.manifests.pods import (
    PodShape,
    literal,
    pod_spec,
    prune,
    resources,
    string_map,
)
from nemo_run._kube.mounts import Json, merged_mounts, merged_volumes
from nemo_run._kube.names import LABEL_MAX, RAYCLUSTER_MAX, stable_label
from nemo_run._kube.resources import RAYCLUSTER
from nemo_run.core.execution._env import Environment, environment
from nemo_run.core.execution._script import extended
from nemo_run.exceptions import ConfigError, InvalidName

if TYPE_CHECKING:
    from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup

HEAD_CONTAINER = "ray-head"
WORKER_CONTAINER = "ray-worker"

_HEAD_PORTS = {"gcs-server": 6379, "client": 10001}
_DASHBOARD = ("dashboard", 8265)
_GROUP_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
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


def raycluster(
    executor: KubeRayExecutor,
    name: str,
    layout: WorkdirLayout | None,
    *,
    pre_ray_start_commands: Sequence[str] = (),
) -> Json:
    """
    Give the RayCluster's manifest.

    Raises:
        ConfigError: the executor's fields contradict each other, or what Kubernetes or KubeRay can do.
    """
    start = tuple(pre_ray_start_commands)
    groups = [_worker_group(executor, group, layout, start) for group in executor.worker_groups]
    _check_unique(group["groupName"] for group in groups)
    spec: Json = {"rayVersion": executor.ray_version, "headGroupSpec": _head_group(executor, layout, start)}
    if groups:
        spec["workerGroupSpecs"] = groups
    if executor.autoscaler_options is not None:
        spec["enableInTreeAutoscaling"] = True
        spec |= prune({"autoscalerOptions": executor.autoscaler_options})
    metadata = prune(
        {
            "name": stable_label(name, limit=RAYCLUSTER_MAX),
            "namespace": executor.namespace,
            "labels": string_map(executor.labels, argument="labels"),
            "annotations": string_map(executor.annotations, argument="annotations"),
        }
    )
    return {"apiVersion": RAYCLUSTER.api_version, "kind": RAYCLUSTER.kind, "metadata": metadata, "spec": spec}


@dataclass(frozen=True)
class _Member:
    """What tells the pods of one group from the others'."""

    container: str
    resources: Json
    ports: Sequence[Mapping[str, Any]] = ()
    volumes: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    pod_spec: Mapping[str, Any] = field(default_factory=dict)


def _head_group(executor: KubeRayExecutor, layout: WorkdirLayout | None, start: Sequence[str]) -> Json:
    member = _Member(
        container=HEAD_CONTAINER,
        resources=resources(
            cpu_requests=executor.head_cpu,
            memory_requests=executor.head_memory,
            cpu_limits=executor.head_cpu,
            memory_limits=executor.head_memory,
        ),
        ports=_head_ports(executor.head_ports),
        volumes=executor.volumes,
        mounts=executor.volume_mounts,
    )
    # The dashboard has to be reachable through the head's Service, as KubeRay itself sets it.
    params = {"dashboard-host": "0.0.0.0", **executor.ray_head_start_params}  # noqa: S104
    return {
        "serviceType": executor.service_type,
        "rayStartParams": string_map(params, argument="ray_head_start_params"),
        "template": _template(executor, member, layout, start),
    }


def _worker_group(
    executor: KubeRayExecutor, group: KubeRayWorkerGroup, layout: WorkdirLayout | None, start: Sequence[str]
) -> Json:
    shared = executor.reuse_volumes_in_worker_groups
    extra, _ = known_fields(group.pod_spec, POD_SPEC, argument=f"{group.group_name}.pod_spec", strict=True)
    member = _Member(
        container=WORKER_CONTAINER,
        resources=resources(
            cpu_requests=group.cpu_requests,
            memory_requests=group.memory_requests,
            cpu_limits=group.cpu_limits,
            memory_limits=group.memory_limits,
            gpus=group.gpus_per_worker,
            gpu_resource=group.gpu_resource or executor.gpu_resource,
        ),
        volumes=[*(executor.volumes if shared else ()), *group.volumes],
        mounts=[*(executor.volume_mounts if shared else ()), *group.volume_mounts],
        labels=group.labels,
        annotations=group.annotations,
        pod_spec=extra,
    )
    params = {**executor.ray_worker_start_params, **group.ray_start_params}
    body: Json = {
        "groupName": _group_name(group.group_name),
        **_replicas(group),
        "rayStartParams": string_map(params, argument="ray_worker_start_params"),
        "template": _template(executor, member, layout, start),
    }
    if group.num_of_hosts != 1:
        body["numOfHosts"] = group.num_of_hosts
    return body


def _template(executor: KubeRayExecutor, member: _Member, layout: WorkdirLayout | None, start: Sequence[str]) -> Json:
    passed = passed_through(executor)
    base = {
        **_placement(executor),
        "containers": [_ray_container(executor, member, passed.container, start)],
        "volumes": merged_volumes(member.volumes),
    }
    spec = pod_spec(base, passed.pod, member.pod_spec)
    metadata = {
        "labels": string_map({**executor.pod_labels, **member.labels}, argument="labels"),
        "annotations": string_map({**executor.pod_annotations, **member.annotations}, argument="annotations"),
    }
    return prune({"metadata": prune(metadata), "spec": prune(_with_workdir(spec, layout))})


def _placement(executor: KubeRayExecutor) -> Json:
    return PodShape(
        tolerations=executor.tolerations,
        affinity=executor.affinity,
        node_selector=executor.node_selector,
        image_pull_secrets=executor.image_pull_secrets,
    ).spec()


def _ray_container(executor: KubeRayExecutor, member: _Member, passed: Json, start: Sequence[str]) -> Json:
    env = environment([("env_vars", executor.env_vars)], [*executor.env_list, *(passed.get("env") or ())])
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
    ray, *sidecars = spec["containers"]
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


def _head_ports(ports: Sequence[Mapping[str, Any]]) -> list[Json]:
    """
    Complete the head's ports: none at all, or all that KubeRay's Service and a RayJob need.

    KubeRay fills in its defaults only where a head lists no port, and a RayJob
    waits for ever without one that is named ``dashboard`` (KubeRay 1.7 service.go, util.go).
    """
    listed = [copy.deepcopy(dict(port)) for port in ports]
    if not listed:
        return []
    names = {port.get("name") for port in listed}
    taken = {port.get("containerPort") for port in listed}
    name, number = _DASHBOARD
    if name not in names and number in taken:
        raise ConfigError("head_ports", listed, f"call port {number} {name!r}: KubeRay looks for that name")
    wanted = {**_HEAD_PORTS, name: number}
    missing = {name: number for name, number in wanted.items() if name not in names and number not in taken}
    return listed + [{"name": name, "containerPort": number} for name, number in missing.items()]


def _replicas(group: KubeRayWorkerGroup) -> Json:
    low = group.replicas if group.min_replicas is None else group.min_replicas
    high = group.replicas if group.max_replicas is None else group.max_replicas
    if not 0 <= low <= group.replicas <= high:
        raise ConfigError(
            f"worker group {group.group_name!r}",
            {"min_replicas": low, "replicas": group.replicas, "max_replicas": high},
            "make it 0 <= min_replicas <= replicas <= max_replicas",
        )
    return {"replicas": group.replicas, "minReplicas": low, "maxReplicas": high}


def _group_name(name: str) -> str:
    if len(name) > LABEL_MAX or not _GROUP_NAME.fullmatch(name):
        raise InvalidName(
            "group_name",
            name,
            f"write at most {LABEL_MAX} lower-case letters, digits, '-' and '.', as pods' names have",
        )
    return name


def _check_unique(names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ConfigError("worker_groups", name, "two groups have this group_name; rename one")
        seen.add(name)


def _before_ray(commands: Sequence[str], env: Environment, passed: Json) -> Json:
    """
    Give the command that KubeRay puts before ``ray start``, in the same shell, so that exports reach Ray.

    It is one element, since KubeRay joins them with spaces, and it exits by
    itself: KubeRay goes on with ``&& ulimit …; ray start …``, which runs Ray whatever came before.
    """
    for command in commands:
        if _STARTS_RAY.search(command):
            raise ConfigError("pre_ray_start_commands", command, "leave 'ray start' out; KubeRay runs it")
    lines = [f"export {name}={extended(name, value)}" for name, value in env.exports.items()]
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
