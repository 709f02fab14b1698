"""Command lines: what is executed in the job, as an argv; pure."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from nemo_run.core.execution.launcher import FaultTolerance, Torchrun

TORCH_DEBUG_ENV = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_DESYNC_DEBUG": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
}
"""What ``packager.debug`` turns on for torch."""


@dataclass(frozen=True)
class Program:
    """What one process runs: a file or a module, and its arguments."""

    entrypoint: str
    args: tuple[str, ...]
    path: str = ""
    module: str = ""

    def argv(self) -> list[str]:
        """Give the command that runs it directly."""
        what = ["-m", self.module] if self.module else [self.path] if self.path else []
        return [self.entrypoint, *what, *self.args]

    def torchrun_argv(self) -> list[str]:
        """Give what torchrun is told to run: not python, unless it is python."""
        if self.module:
            return ["-m", self.module, *self.args]
        if self.entrypoint == "python":
            return [self.path, *self.args]
        return ["--no-python", *self.argv()] if self.path else ["--no-python", self.entrypoint, *self.args]


@dataclass(frozen=True)
class Nodes:
    """The machines that torchrun spans, as it is told about them."""

    count: int
    per_node: int
    head: str = "localhost"
    rank: str = "0"


def rendezvous_id(launcher: Torchrun | FaultTolerance, experiment_id: str) -> str:
    """
    Give the id under which the nodes of one job meet.

    Taken from the experiment's id, so that equal jobs give equal manifests.
    """
    return str(launcher.rdzv_id or crc32(experiment_id.encode()) % 10000 + 1)


def torchrun(launcher: Torchrun | FaultTolerance, nodes: Nodes, program: Program, *, rdzv_id: str) -> list[str]:
    """Give the torchrun command that starts *program* on every node and process."""
    endpoint = "localhost:0" if nodes.count == 1 else f"{nodes.head}:{launcher.rdzv_port}"
    options = {
        "--rdzv-backend": launcher.rdzv_backend,
        "--rdzv-endpoint": endpoint,
        "--rdzv-id": rdzv_id,
        "--nnodes": str(nodes.count),
        "--nproc-per-node": str(nodes.per_node),
        "--node-rank": "0" if nodes.count == 1 else nodes.rank,
        "--tee": "3",
    }
    flat = [part for option in options.items() for part in option]
    return ["torchrun", *flat, *program.torchrun_argv()]


def fault_tolerant(launcher: FaultTolerance, nodes: Nodes, program: Program, *, rdzv_id: str) -> list[str]:
    """Give the command of NVIDIA's fault tolerant launcher, which takes torchrun's options too."""
    options = {
        "--ft-workload_check_interval": launcher.workload_check_interval,
        "--ft-initial_rank_heartbeat_timeout": launcher.initial_rank_heartbeat_timeout,
        "--ft-rank_heartbeat_timeout": launcher.rank_heartbeat_timeout,
        "--ft-rank_termination_signal": launcher.rank_termination_signal,
        "--ft-log_level": launcher.log_level,
        "--max-restarts": launcher.max_restarts,
    }
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    return [
        "ft_launcher",
        *(given or ["--ignore-missing-fault-tol-cfg"]),
        *torchrun(launcher, nodes, program, rdzv_id=rdzv_id)[1:],
    ]
