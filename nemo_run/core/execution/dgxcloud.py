"""DGX Cloud (Run:ai's own API), as a value only: a job given to it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nemo_run.core.execution._unsupported import UnsupportedExecutor
from nemo_run.core.packaging.base import Packager


@dataclass(kw_only=True)
class DGXCloudExecutor(UnsupportedExecutor):
    """Describes a job on DGX Cloud; a job given to it is refused."""

    packager: Packager = field(default_factory=Packager)
    base_url: str
    kube_apiserver_url: str
    client_id: str
    client_secret: str = field(repr=False)
    project_name: str
    container_image: str
    pvc_nemo_run_dir: str
    launched_from_cluster: bool = False
    nodes: int = 1
    gpus_per_node: int = 0
    nprocs_per_node: int = 1
    pvc_job_dir: str = field(init=False, default="")
    pvcs: list[dict[str, Any]] = field(default_factory=list)
    distributed_framework: str = "PyTorch"
    custom_spec: dict[str, Any] = field(default_factory=dict)
    MAX_ARGS_CHARS: int = 9500

    def nnodes(self) -> int:
        """Give the number of nodes."""
        return self.nodes

    def nproc_per_node(self) -> int:
        """Give the number of processes on each node."""
        return self.gpus_per_node or self.nprocs_per_node
