"""RayCluster manifests, pure: an executor's fields and a layout in, a new dict out."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.fields import POD_SPEC, known_fields
from nemo_run._kube.manifests.pods import label_map, prune, resources, string_map
from nemo_run._kube.mounts import Json
from nemo_run._kube.names import LABEL_MAX, RAYCLUSTER_MAX, stable_label
from nemo_run._kube.resources import RAYCLUSTER
from nemo_run.core.execution._raypods import Member, template
from nemo_run.exceptions import ConfigError, InvalidName

if TYPE_CHECKING:
    from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup

HEAD_CONTAINER = "ray-head"
WORKER_CONTAINER = "ray-worker"

_HEAD_PORTS = {"gcs-server": 6379, "client": 10001}
_DASHBOARD = ("dashboard", 8265)
_GROUP_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


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
    if isinstance(pre_ray_start_commands, str) or not all(isinstance(command, str) for command in start):
        raise ConfigError(
            "pre_ray_start_commands", pre_ray_start_commands, "write a list of shell commands: ['export A=5']"
        )
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
            "labels": label_map(executor.labels, argument="labels"),
            "annotations": string_map(executor.annotations, argument="annotations"),
        }
    )
    return {"apiVersion": RAYCLUSTER.api_version, "kind": RAYCLUSTER.kind, "metadata": metadata, "spec": spec}


def _head_group(executor: KubeRayExecutor, layout: WorkdirLayout | None, start: Sequence[str]) -> Json:
    member = Member(
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
        "template": template(executor, member, layout, start),
    }


def _worker_group(
    executor: KubeRayExecutor, group: KubeRayWorkerGroup, layout: WorkdirLayout | None, start: Sequence[str]
) -> Json:
    shared = executor.reuse_volumes_in_worker_groups
    extra, _ = known_fields(group.pod_spec, POD_SPEC, argument=f"{group.group_name}.pod_spec", strict=True)
    member = Member(
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
        "groupName": check_group_name(group.group_name),
        **_replicas(group),
        "rayStartParams": string_map(params, argument="ray_worker_start_params"),
        "template": template(executor, member, layout, start),
    }
    if group.num_of_hosts != 1:
        body["numOfHosts"] = group.num_of_hosts
    return body


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


def check_group_name(name: str) -> str:
    """
    Return *name* if a worker group can have it.

    Raises:
        InvalidName: it cannot.
    """
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
