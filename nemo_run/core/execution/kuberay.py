"""Ray on Kubernetes through the KubeRay operator: what a cluster looks like."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from nemo_run._kube.layout import WorkdirLayout
from nemo_run.config import misspelt
from nemo_run.core.execution._ray import raycluster
from nemo_run.core.execution._rayedits import (
    delete_worker_group,
    duplicate_worker_group,
    is_valid_label,
    is_valid_name,
    populate_meta,
    populate_ray_head,
    populate_worker_group,
    sync_workdir_via_pod,
    update_worker_group_replicas,
    update_worker_group_resources,
)
from nemo_run.core.execution._raypods import passed_through
from nemo_run.core.execution._workdir import JOB_SUBPATH, warn_replaced
from nemo_run.core.execution.base import Executor, current_user

__all__ = [
    "KubeRayExecutor",
    "KubeRayWorkerGroup",
    "delete_worker_group",
    "duplicate_worker_group",
    "is_valid_label",
    "is_valid_name",
    "populate_meta",
    "populate_ray_head",
    "populate_worker_group",
    "sync_workdir_via_pod",
    "update_worker_group_replicas",
    "update_worker_group_resources",
]

logger = logging.getLogger(__name__)


def _take_none_for_nothing(value: KubeRayExecutor | KubeRayWorkerGroup) -> None:
    """Give each list and dict that is None its empty default, as NeMo-Run's users write it."""
    for each in fields(value):
        if getattr(value, each.name, None) is None and each.default_factory in (list, dict):
            setattr(value, each.name, each.default_factory())


@dataclass
class KubeRayWorkerGroup:
    """Ray workers that are alike: so many pods of one shape."""

    group_name: str
    """Lower-case letters, digits, ``-`` and ``.``; another for each group."""
    replicas: int = 1
    """How many workers there are at first."""
    min_replicas: int | None = None
    """How few the autoscaler may leave; *replicas* unless given."""
    max_replicas: int | None = None
    """How many the autoscaler may start; *replicas* unless given."""
    gpus_per_worker: int | None = None
    """GPUs of each worker, asked for and limited alike."""
    cpu_requests: str | None = None
    """CPU that each worker is guaranteed."""
    memory_requests: str | None = None
    """Memory that each worker is guaranteed."""
    cpu_limits: str | None = None
    """CPU that each worker gets at most; Ray counts these."""
    memory_limits: str | None = None
    """Memory that each worker gets at most; Ray counts this."""
    volume_mounts: list[dict[str, Any]] = field(default_factory=list)
    """VolumeMounts of this group's own, beside the executor's."""
    volumes: list[dict[str, Any]] = field(default_factory=list)
    """Pod volumes of this group's own, beside the executor's."""
    labels: dict[str, Any] = field(default_factory=dict)
    """Labels of the group's pods."""
    annotations: dict[str, Any] = field(default_factory=dict)
    """Annotations of the group's pods."""
    gpu_resource: str | None = None
    """The resource that counts GPUs, if another than the executor's."""
    num_of_hosts: int = 1
    """Pods that make up one worker, for TPU slices and the like."""
    ray_start_params: dict[str, Any] = field(default_factory=dict)
    """Options of ``ray start`` for this group, over the executor's."""
    pod_spec: dict[str, Any] = field(default_factory=dict)
    """Merged over the pod spec of this group; None removes."""

    def __post_init__(self) -> None:
        _take_none_for_nothing(self)
        if self.min_replicas is None:
            self.min_replicas = self.replicas
        if self.max_replicas is None:
            self.max_replicas = self.replicas


@dataclass(kw_only=True, repr=False)
class KubeRayExecutor(Executor):
    """
    Runs Ray clusters and jobs on Kubernetes through the KubeRay operator.

    A value: building, changing or saving one needs no cluster, and what the
    caller passed is never changed. Manifests are made of the fields as they
    are when they are asked for.

    ```python
    run.KubeRayExecutor(
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
        worker_groups=[KubeRayWorkerGroup(group_name="worker", replicas=2, gpus_per_worker=8)],
    )
    ```
    """

    namespace: str = "default"
    """Where the cluster's pods live."""
    ray_version: str = "2.43.0"
    """The Ray version in the image."""
    image: str = ""
    """The image of every Ray container; ``rayproject/ray:<ray_version>`` unless given."""
    head_cpu: str = "1"
    """CPU of the head, requested and limited."""
    head_memory: str = "2Gi"
    """Memory of the head, requested and limited."""
    ray_head_start_params: dict[str, Any] = field(default_factory=dict)
    """Options of ``ray start`` on the head."""
    ray_worker_start_params: dict[str, Any] = field(default_factory=dict)
    """Options of ``ray start`` on every worker."""
    worker_groups: list[KubeRayWorkerGroup] = field(default_factory=list)
    """The workers, in groups."""
    labels: dict[str, Any] = field(default_factory=dict)
    """Labels of the RayCluster and RayJob."""
    service_type: str = "ClusterIP"
    """The kind of Service in front of the head."""
    head_ports: list[dict[str, Any]] = field(default_factory=list)
    """Ports of the head; those that Ray needs are added. None means KubeRay's defaults."""
    volume_mounts: list[dict[str, Any]] = field(default_factory=list)
    """VolumeMounts of the Ray containers, beside the workdir's."""
    volumes: list[dict[str, Any]] = field(default_factory=list)
    """Volumes of the pods."""
    reuse_volumes_in_worker_groups: bool = True
    """Whether workers have *volumes* and *volume_mounts* too; the workdir they always have."""
    spec_kwargs: dict[str, Any] = field(default_factory=dict)
    """Merged over every pod's spec."""
    container_kwargs: dict[str, Any] = field(default_factory=dict)
    """Merged over every Ray container; ``env`` and ``volumeMounts`` are joined."""
    lifecycle_kwargs: dict[str, Any] = field(default_factory=dict)
    """Lifecycle hooks of every Ray container, beside ``preStop``."""
    workdir_volume_mount: dict[str, Any] | None = None
    """The VolumeMount that code is copied to and run from; its volume is one of *volumes*."""
    code_subpath: str | None = None
    """Where below the mount the code lies: a template of {user}, {experiment_id}, {job_name}, {workdir}."""
    kubeconfig: str | None = None
    """The kubeconfig file, if another than ``$KUBECONFIG`` or ``~/.kube/config``."""
    context: str | None = None
    """The context in it, if another than the current one."""
    gpu_resource: str = "nvidia.com/gpu"
    """The resource that counts GPUs."""
    data_mover: dict[str, Any] = field(default_factory=dict)
    """Merged over the copy pod's spec; None removes."""
    data_mover_timeout: int = 600
    """Seconds that the copy pod has to start."""
    strict: bool = False
    """Refuse fields that Kubernetes does not know, instead of leaving them out with a warning."""
    data_mover_image: str = "alpine:3.19"
    """The copy pod's image; it needs ``sh``, ``tar`` and ``head``."""
    env_list: list[dict[str, Any]] = field(default_factory=list)
    """EnvVars in full, such as ``valueFrom.secretKeyRef``; they win over *env_vars*."""
    image_pull_secrets: list[str] = field(default_factory=list)
    """Names of the secrets that images are pulled with."""
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    """Tolerations of every pod."""
    affinity: dict[str, Any] = field(default_factory=dict)
    """Affinity of every pod."""
    node_selector: dict[str, str] = field(default_factory=dict)
    """Labels of the nodes that every pod wants."""
    annotations: dict[str, Any] = field(default_factory=dict)
    """Annotations of the RayCluster and RayJob."""
    pod_labels: dict[str, Any] = field(default_factory=dict)
    """Labels of every pod."""
    pod_annotations: dict[str, Any] = field(default_factory=dict)
    """Annotations of every pod."""
    submitter: dict[str, Any] = field(default_factory=dict)
    """Merged over the spec of the pod that submits a RayJob; None removes."""
    active_deadline_seconds: int | None = None
    """Seconds that a RayJob may take in all."""
    pre_running_deadline_seconds: int | None = None
    """Seconds that a RayJob may take until it runs; KubeRay 1.6 or later."""
    ttl_seconds_after_finished: int | None = None
    """Seconds that a RayJob's cluster stays after its end."""
    autoscaler_options: dict[str, Any] | None = None
    """Turns Ray's autoscaler on, with these options of KubeRay's."""
    job_name: str = field(init=False, default="")
    """The task's name; set by the experiment."""

    def __post_init__(self) -> None:
        _take_none_for_nothing(self)
        if not self.image:
            self.image = f"rayproject/ray:{self.ray_version}"

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        """Take a job of an experiment."""
        self.experiment_id = exp_id
        self.experiment_dir = exp_dir
        self.job_dir = os.path.join(exp_dir, task_dir)
        self.job_name = task_id

    def workdir(self, local_dir: str | None = None, *, job_name: str | None = None) -> WorkdirLayout | None:
        """
        Say where on the volume the code lies; None without *workdir_volume_mount*.

        With *local_dir*, the directory whose content is to be copied there, the
        first of *volume_mounts* stands in for a missing *workdir_volume_mount*.

        Args:
            job_name: what {job_name} stands for, unless an experiment has said it: the name of a RayJob or RayCluster.

        Raises:
            ConfigError: the fields contradict each other, or what Kubernetes can do.
        """
        return WorkdirLayout.resolve(
            volumes=self.volumes,
            volume_mounts=self.volume_mounts,
            workdir_volume_mount=self.workdir_volume_mount,
            code_subpath=self.code_subpath,
            default_subpath=JOB_SUBPATH if self.experiment_id else "{user}/code/{workdir}",
            values={
                "user": current_user(),
                "experiment_id": self.experiment_id,
                "job_name": self.job_name or job_name,
                "workdir": None if local_dir is None else os.path.basename(os.path.abspath(local_dir)),
            },
            first_mount=local_dir is not None,
        )

    @property
    def code_dir(self) -> str:
        """The directory that the code is copied to and Ray starts in; empty without a workdir."""
        layout = self.workdir()
        return "" if layout is None else str(layout.code_dir)

    def get_cluster_body(
        self,
        name: str,
        *,
        local_dir: str | None = None,
        pre_ray_start_commands: Sequence[str] = (),
        job_name: str | None = None,
    ) -> dict[str, Any]:
        """
        Give the manifest of a RayCluster called *name*, shortened if KubeRay would refuse it.

        Args:
            local_dir: the directory whose content the Ray containers start in.
            pre_ray_start_commands: shell commands that run before Ray in every Ray container; one that fails ends it.
            job_name: what {job_name} stands for in *code_subpath*.

        Raises:
            ConfigError: the fields contradict each other, or what Kubernetes or KubeRay can do.
        """
        layout = self.workdir(local_dir, job_name=job_name)
        body = raycluster(self, name, layout, pre_ray_start_commands=pre_ray_start_commands)
        self.tell_what_is_passed(layout)
        return body

    def tell_what_is_passed(self, layout: WorkdirLayout | None) -> None:
        """Warn of deprecated arguments, and of fields that are renamed, left out or misspelt; for each manifest."""
        warn_replaced(layout, deprecated="copying to the first of volume_mounts")
        for note in (*misspelt(self, *self.worker_groups), *passed_through(self).notes):
            logger.warning(note)
