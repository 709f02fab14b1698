"""Slurm, as a value only: launchers import its names and ask ``isinstance``; a job given to it is refused."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_run.core.execution._unsupported import UnsupportedExecutor
from nemo_run.core.tunnel.client import LocalTunnel, SSHTunnel
from nemo_run.exceptions import ConfigError


@dataclass(kw_only=True)
class SlurmJobDetails:
    """Where a Slurm job's files are; launchers subclass it."""

    job_name: str | None = None
    folder: str | None = None
    ray_log_prefix: str = "ray-"

    @property
    def stderr(self) -> Path:
        """Give the file of sbatch's errors."""
        return self._folder / f"sbatch_{self.job_name}_%j.err"

    @property
    def stdout(self) -> Path:
        """Give the file of sbatch's output."""
        return self._folder / f"sbatch_{self.job_name}_%j.out"

    @property
    def srun_stderr(self) -> Path:
        """Give the file of srun's errors."""
        return self._folder / f"log-{self.job_name}_%j_${{SLURM_RESTART_COUNT:-0}}.err"

    @property
    def srun_stdout(self) -> Path:
        """Give the file of srun's output."""
        return self._folder / f"log-{self.job_name}_%j_${{SLURM_RESTART_COUNT:-0}}.out"

    @property
    def ls_term(self) -> str:
        """Give the pattern of the log files."""
        return os.path.join(self._folder, "log*")

    @property
    def _folder(self) -> Path:
        if not self.folder:
            raise ConfigError("folder", self.folder, "set the folder and the job's name first")
        return Path(self.folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.folder})"


def get_packaging_job_key(experiment_id: str, job_name: str) -> str:
    """Give the key of a job's package among a tunnel's packaging jobs."""
    return f"{experiment_id}:{job_name}"


@dataclass(kw_only=True)
class SlurmExecutor(UnsupportedExecutor):
    """Describes a Slurm job; a job given to it is refused."""

    account: str
    partition: str | None = None
    job_name_prefix: str | None = None
    time: str = "00:10:00"
    nodes: int = 1
    ntasks_per_node: int = 1
    cpus_per_task: int | None = None
    cpus_per_gpu: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    qos: str | None = None
    mem: str | None = None
    mem_per_gpu: str | None = None
    mem_per_cpu: str | None = None
    comment: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    gres: str | None = None
    signal: str | None = None
    exclusive: bool | str | None = None
    array: str | None = None
    open_mode: str = "append"
    container_image: str | None = None
    container_mounts: list[str] = field(default_factory=list)
    container_env: list[str] | None = None
    additional_parameters: dict[str, Any] | None = None
    srun_args: list[str] | None = None
    heterogeneous: bool = False
    memory_measure: bool = False
    job_details: SlurmJobDetails = field(default_factory=SlurmJobDetails)
    tunnel: SSHTunnel | LocalTunnel = field(default_factory=lambda: LocalTunnel(job_dir=""))
    dependencies: list[str] = field(default_factory=list)
    dependency_type: str = "afterok"
    torchrun_nproc_per_node: int | None = None
    wait_time_for_group_job: int = 30
    monitor_group_job: bool = True
    monitor_group_job_wait_time: int = 60
    setup_lines: str | None = None
    het_group_indices: list[int] | None = None
    segment: int | None = None
    network: str | None = None
    ray_template: str = "ray.sub.j2"
    poll_estimated_start_time: bool = True

    job_name: str = field(init=False, default="nemo-job")
    stderr_to_stdout: bool = field(init=False, default=True)
    resource_group: list[Any] = field(init=False, default_factory=list)
    run_as_group: bool = field(init=False, default=False)

    def info(self) -> str:
        """Give the name that tables show for this executor."""
        return f"{type(self).__qualname__} on {self.tunnel.key}"

    def nnodes(self) -> int:
        """Give the number of nodes."""
        return self.nodes

    def nproc_per_node(self) -> int:
        """Give the number of processes on each node."""
        return self.torchrun_nproc_per_node or self.ntasks_per_node
