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


def started(launcher: Torchrun | FaultTolerance, nodes: Nodes, program: Program, experiment_id: str) -> list[str]:
    """Give the command that starts *program* on every node and process."""
    if isinstance(launcher, FaultTolerance):
        return ["ft_launcher", *_fault_tolerance(launcher), *_torchrun(launcher, nodes, program, experiment_id)]
    return ["torchrun", *_torchrun(launcher, nodes, program, experiment_id)]


def _torchrun(launcher: Torchrun | FaultTolerance, nodes: Nodes, program: Program, experiment_id: str) -> list[str]:
    several = nodes.count > 1
    # The id comes from the experiment's, so that equal jobs have equal commands.
    rdzv_id = launcher.rdzv_id or crc32(experiment_id.encode()) % 10000 + 1
    options = {
        "--rdzv-backend": launcher.rdzv_backend,
        "--rdzv-endpoint": f"{nodes.head}:{launcher.rdzv_port}" if several else "localhost:0",
        "--rdzv-id": str(rdzv_id),
        "--nnodes": str(nodes.count),
        "--nproc-per-node": str(nodes.per_node),
        "--node-rank": nodes.rank if several else "0",
        "--tee": "3",
    }
    return [*(part for option in options.items() for part in option), *program.torchrun_argv()]


def _fault_tolerance(launcher: FaultTolerance) -> list[str]:
    options = {
        "--ft-workload_check_interval": launcher.workload_check_interval,
        "--ft-initial_rank_heartbeat_timeout": launcher.initial_rank_heartbeat_timeout,
        "--ft-rank_heartbeat_timeout": launcher.rank_heartbeat_timeout,
        "--ft-rank_termination_signal": launcher.rank_termination_signal,
        "--ft-log_level": launcher.log_level,
        "--max-restarts": launcher.max_restarts,
    }
    given = [part for name, value in options.items() if value is not None for part in (name, str(value))]
    return given or ["--ignore-missing-fault-tol-cfg"]
