"""
NeMo-Run's functions that build and change the dict of a RayCluster, for programs that call them.

They change the dict they are given, as they always did, and give it back. What
they put into it is made by the builders that everything else uses.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.pods import PodShape, label_map, prune
from nemo_run._kube.names import LABEL_MAX, RAYCLUSTER_MAX, check_dns_label, label_value
from nemo_run._kube.resources import RAYCLUSTER
from nemo_run.core.execution import _ray
from nemo_run.exceptions import ConfigError, InvalidName

if TYPE_CHECKING:
    from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup

logger = logging.getLogger(__name__)

Json = dict[str, Any]

FIRST_CONTAINER, ALL_CONTAINERS = "unspecified", "all_containers"


def is_valid_name(name: str) -> bool:
    """Tell whether a RayCluster can have this name."""
    try:
        check_dns_label(name, limit=RAYCLUSTER_MAX)
    except InvalidName as error:
        logger.info("%s", error)
        return False
    return True


def is_valid_label(name: str) -> bool:
    """Tell whether a label can have this value."""
    if name and label_value(name) == name:
        return True
    logger.info("%r is no label value: write at most %d letters, digits, '-', '_' and '.'", name, LABEL_MAX)
    return False


def populate_meta(cluster: Json, name: str, k8s_namespace: str, labels: Json, ray_version: str) -> Json:
    """
    Put in what a RayCluster is called.

    Raises:
        InvalidName: KubeRay would refuse *name*.
    """
    check_dns_label(name, limit=RAYCLUSTER_MAX)
    cluster["apiVersion"] = RAYCLUSTER.api_version
    cluster["kind"] = RAYCLUSTER.kind
    cluster["metadata"] = {"name": name, "namespace": k8s_namespace, "labels": label_map(labels, argument="labels")}
    cluster["spec"] = {"rayVersion": ray_version}
    return cluster


def populate_ray_head(
    cluster: Json,
    ray_image: str,
    service_type: str,
    cpu_requests: str,
    memory_requests: str,
    cpu_limits: str,
    memory_limits: str,
    ray_start_params: Json,
    head_ports: list[Json],
    env_vars: dict[str, str],
    volume_mounts: list[Json],
    volumes: list[Json],
    spec_kwargs: Json,
    lifecycle_kwargs: Json,
    container_kwargs: Json,
) -> Json:
    """Put in the head."""
    executor = _executor(
        image=ray_image,
        service_type=service_type,
        ray_head_start_params=ray_start_params,
        head_ports=head_ports,
        env_vars=env_vars,
        volume_mounts=volume_mounts,
        volumes=volumes,
        spec_kwargs=spec_kwargs,
        lifecycle_kwargs=lifecycle_kwargs,
        container_kwargs=container_kwargs,
    )
    head = _ray.raycluster(executor, "head", None)["spec"]["headGroupSpec"]
    ray = head["template"]["spec"]["containers"][0]
    if "resources" not in container_kwargs:
        ray["resources"] = _resources(cpu_requests, memory_requests, cpu_limits, memory_limits)
    cluster["spec"]["headGroupSpec"] = head
    return cluster


def populate_worker_group(
    cluster: Json,
    group_name: str,
    ray_image: str,
    gpus_per_worker: int | None,
    cpu_requests: str | None,
    memory_requests: str | None,
    cpu_limits: str | None,
    memory_limits: str | None,
    replicas: int,
    min_replicas: int,
    max_replicas: int,
    ray_start_params: Json,
    volume_mounts: list[Json],
    volumes: list[Json],
    labels: Json,
    annotations: Json,
    spec_kwargs: Json,
    lifecycle_kwargs: Json,
    container_kwargs: Json,
    env_vars: dict[str, str],
) -> Json:
    """
    Add a worker group.

    Raises:
        InvalidName: Kubernetes would refuse the group's name.
        ConfigError: there is a group of that name, or the numbers contradict each other.
    """
    from nemo_run.core.execution.kuberay import KubeRayWorkerGroup

    if any(group["groupName"] == group_name for group in cluster["spec"].get("workerGroupSpecs") or ()):
        raise ConfigError("group_name", group_name, "there is a worker group of that name; choose another")
    group = KubeRayWorkerGroup(
        group_name=group_name,
        replicas=replicas,
        min_replicas=min_replicas,
        max_replicas=max_replicas,
        gpus_per_worker=gpus_per_worker,
        cpu_requests=cpu_requests,
        memory_requests=memory_requests,
        cpu_limits=cpu_limits,
        memory_limits=memory_limits,
        volume_mounts=volume_mounts,
        volumes=volumes,
        labels=labels,
        annotations=annotations,
    )
    executor = _executor(
        image=ray_image,
        ray_worker_start_params=ray_start_params,
        env_vars=env_vars,
        spec_kwargs=spec_kwargs,
        lifecycle_kwargs=lifecycle_kwargs,
        container_kwargs=container_kwargs,
    )
    cluster["spec"].setdefault("workerGroupSpecs", []).append(_built(executor, group))
    return cluster


def update_worker_group_replicas(
    cluster: Json, group_name: str, max_replicas: int, min_replicas: int, replicas: int
) -> tuple[Json, bool]:
    """
    Set how many workers a group has; false if there is no such group.

    Raises:
        ConfigError: the numbers contradict each other.
    """
    if not 0 <= min_replicas <= replicas <= max_replicas:
        numbers = {"min_replicas": min_replicas, "replicas": replicas, "max_replicas": max_replicas}
        raise ConfigError("replicas", numbers, "make it 0 <= min_replicas <= replicas <= max_replicas")
    if (group := _group(cluster, group_name)) is None:
        return cluster, False
    group |= {"maxReplicas": max_replicas, "minReplicas": min_replicas, "replicas": replicas}
    return cluster, True


def update_worker_group_resources(
    cluster: Json,
    group_name: str,
    cpu_requests: str,
    memory_requests: str,
    cpu_limits: str,
    memory_limits: str,
    container_name: str = "unspecified",
) -> tuple[Json, bool]:
    """
    Set the resources of a group's containers; false if there is no such group or container.

    Args:
        container_name: "unspecified" is the one that runs Ray, "all_containers" is each.
    """
    group = _group(cluster, group_name)
    containers = group["template"]["spec"]["containers"] if group else []
    if container_name == FIRST_CONTAINER:
        chosen = containers[:1]
    else:
        chosen = [each for each in containers if container_name in (ALL_CONTAINERS, each["name"])]
    for container in chosen:
        there = container.setdefault("resources", {})
        for kind, values in _resources(cpu_requests, memory_requests, cpu_limits, memory_limits).items():
            there[kind] = {**(there.get(kind) or {}), **values}
    return cluster, bool(chosen)


def duplicate_worker_group(cluster: Json, group_name: str, new_group_name: str) -> tuple[Json, bool]:
    """
    Add a worker group like another; false if there is none to copy.

    Raises:
        InvalidName: Kubernetes would refuse the new name.
        ConfigError: there is a group of that name.
    """
    _ray.check_group_name(new_group_name)
    if _group(cluster, new_group_name) is not None:
        raise ConfigError("new_group_name", new_group_name, "there is a worker group of that name; choose another")
    if (group := _group(cluster, group_name)) is None:
        return cluster, False
    cluster["spec"]["workerGroupSpecs"].append({**copy.deepcopy(group), "groupName": new_group_name})
    return cluster, True


def delete_worker_group(cluster: Json, group_name: str) -> tuple[Json, bool]:
    """Remove a worker group; false if there is none of that name."""
    if (group := _group(cluster, group_name)) is None:
        return cluster, False
    cluster["spec"]["workerGroupSpecs"].remove(group)
    return cluster, True


def sync_workdir_via_pod(
    *,
    pod_name: str,
    namespace: str,
    user_workspace_path: str,
    workdir: str,
    core_v1_api: Any,
    volumes: list[Json],
    volume_mounts: list[Json],
    image: str = "alpine:3.19",
    cleanup: bool = False,
    cleanup_timeout: int = 5,
) -> None:
    """
    Copy the content of *workdir*, as git sees it, to *user_workspace_path* on one of the volumes.

    The copy pod is always ours, and is always gone afterwards.

    Args:
        core_v1_api: only its address is used, to make sure that it is the cluster that nemo_run speaks to.
        cleanup: not needed any more, and *cleanup_timeout* neither.

    Raises:
        ConfigError: no mount leads there, or *core_v1_api* is another cluster's.
        KubeError, TransferError, WaitTimeout: no copy pod, or no copy.
    """
    from nemo_run._kube.api import connect
    from nemo_run.core.execution import _raysync
    from nemo_run.core.execution._ownership import own_labels

    place = PurePosixPath(user_workspace_path)
    mounts = [mount for mount in volume_mounts if place.is_relative_to(str(mount.get("mountPath")))]
    if not mounts:
        raise ConfigError(
            "user_workspace_path", user_workspace_path, f"none of volume_mounts leads there: {volume_mounts}"
        )
    mount = max(mounts, key=lambda each: len(str(each["mountPath"])))
    layout = WorkdirLayout.resolve(
        volumes=volumes,
        volume_mounts=volume_mounts,
        workdir_volume_mount=mount,
        code_subpath=str(place.relative_to(str(mount["mountPath"]))).replace("{", "{{").replace("}", "}}"),
        default_subpath="",
        values={},
    )
    assert layout is not None
    api = connect()
    _check_same_cluster(core_v1_api, api.server)
    directory = Path(workdir)
    files, _ = _raysync.workdir_files(_raysync.local_directory(str(directory)))
    labels = own_labels(None, None)
    with _raysync.copy_pod(
        api,
        pod_name.removesuffix("-data-mover"),
        layout,
        namespace=namespace,
        image=image,
        shape=PodShape(),
        labels=labels,
        overrides={},
        timeout=600,
    ) as pod:
        _raysync.copied(api, pod, files, layout, {})


def _check_same_cluster(core_v1_api: Any, server: str) -> None:
    configuration = getattr(getattr(core_v1_api, "api_client", None), "configuration", None)
    host = getattr(configuration, "host", None)
    if isinstance(host, str) and host.rstrip("/") != server.rstrip("/"):
        raise ConfigError("core_v1_api", host, f"nemo_run speaks to {server}; set KUBECONFIG to the cluster you mean")


def _executor(**fields: Any) -> KubeRayExecutor:
    from nemo_run.core.execution.kuberay import KubeRayExecutor

    return KubeRayExecutor(**fields)


def _built(executor: KubeRayExecutor, group: KubeRayWorkerGroup) -> Json:
    executor.worker_groups = [group]
    built: Json = _ray.raycluster(executor, "workers", None)["spec"]["workerGroupSpecs"][0]
    return built


def _group(cluster: Mapping[str, Any], name: str) -> Json | None:
    groups: Sequence[Json] = cluster["spec"].get("workerGroupSpecs") or ()
    return next((group for group in groups if group["groupName"] == name), None)


def _resources(cpu_requests: Any, memory_requests: Any, cpu_limits: Any, memory_limits: Any) -> Json:
    return prune(
        {
            "requests": prune({"cpu": cpu_requests, "memory": memory_requests}),
            "limits": prune({"cpu": cpu_limits, "memory": memory_limits}),
        }
    )
