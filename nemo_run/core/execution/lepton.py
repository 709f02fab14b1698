"""DGX Cloud Lepton, as a value only: a job given to it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nemo_run.core.execution._unsupported import UnsupportedExecutor
from nemo_run.core.packaging.base import Packager


@dataclass(kw_only=True)
class LeptonExecutor(UnsupportedExecutor):
    """Describes a job on DGX Cloud Lepton; a job given to it is refused."""

    packager: Packager = field(default_factory=Packager)
    container_image: str
    nemo_run_dir: str
    launched_from_cluster: bool = False
    nodes: int = 1
    gpus_per_node: int = 0
    nprocs_per_node: int = 1
    shared_memory_size: int = 65536
    resource_shape: str = ""
    node_group: str = ""
    node_reservation: str = ""
    secret_vars: dict[str, str] = field(default_factory=dict)
    mounts: list[dict[str, Any]] = field(default_factory=list)
    lepton_job_dir: str = field(init=False, default="")
    image_pull_secrets: list[str] = field(default_factory=list)
    custom_spec: dict[str, Any] = field(default_factory=dict)
    pre_launch_commands: list[str] = field(default_factory=list)
    head_resource_shape: str | None = ""
    ray_version: str | None = None
    can_be_preempted: bool = False
    can_preempt: bool = False
    queue_priority: str | None = None

    def nnodes(self) -> int:
        """Give the number of nodes."""
        return self.nodes

    def nproc_per_node(self) -> int:
        """Give the number of processes on each node."""
        return self.gpus_per_node or self.nprocs_per_node
