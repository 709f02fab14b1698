"""Docker containers on this machine, as a value only: a job given to it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nemo_run.core.execution._unsupported import UnsupportedExecutor


@dataclass(kw_only=True)
class DockerExecutor(UnsupportedExecutor):
    """Describes a container on this machine; a job given to it is refused."""

    container_image: str
    ntasks_per_node: int = 1
    runtime: str | None = None
    num_gpus: int | None = None
    shm_size: str | None = None
    ulimits: list[str] = field(default_factory=list)
    ipc_mode: str | None = None
    healthcheck: dict[str, Any] = field(default_factory=dict)
    privileged: bool = False
    network: str = "nemo_run"
    additional_kwargs: dict[str, Any] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)

    job_name: str = field(init=False, default="nemo-job")
    run_as_group: bool = field(init=False, default=False)
    resource_group: list[DockerExecutor] = field(init=False, default_factory=list)

    def nnodes(self) -> int:
        """Give 1."""
        return 1

    def nproc_per_node(self) -> int:
        """Give the number of processes."""
        return self.ntasks_per_node
