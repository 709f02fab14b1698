"""The fields that both SkyPilot executors have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nemo_run.core.execution._unsupported import UnsupportedExecutor


@dataclass(kw_only=True)
class SkypilotFields(UnsupportedExecutor):
    """What SkyPilot is asked for."""

    container_image: str | None = None
    cloud: str | list[str] | None = None
    region: str | list[str] | None = None
    zone: str | list[str] | None = None
    gpus: str | list[str] | None = None
    gpus_per_node: int | None = None
    cpus: int | float | list[int | float] | None = None
    memory: int | float | list[int | float] | None = None
    instance_type: str | list[str] | None = None
    num_nodes: int = 1
    use_spot: bool | list[bool] | None = None
    disk_size: int | list[int] | None = None
    disk_tier: str | list[str] | None = None
    ports: tuple[str, ...] | None = None
    file_mounts: dict[str, str] | None = None
    storage_mounts: dict[str, dict[str, Any]] | None = None
    cluster_name: str | None = None
    setup: str | None = None
    autodown: bool = False
    idle_minutes_to_autostop: int | None = None
    torchrun_nproc_per_node: int | None = None
    cluster_config_overrides: dict[str, Any] | None = None
    infra: str | None = None
    network_tier: str | None = None
    retry_until_up: bool = False

    def nnodes(self) -> int:
        """Give the number of nodes."""
        return self.num_nodes

    def nproc_per_node(self) -> int:
        """Give the number of processes on each node."""
        return self.torchrun_nproc_per_node or self.gpus_per_node or 1
