"""A node's command under torchrun or ft_launcher: the one place that knows their options."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nemo_run.core.execution.launcher import FaultTolerance, Launcher, Torchrun

DEBUG_ENV = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "NCCL_DESYNC_DEBUG": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_SHOW_CPP_STACKTRACES": "1",
}
"""What ``packager.debug`` turns on for torch."""

_DEFAULT_PORT = Torchrun.rdzv_port
_PYTHON = re.compile(r"python(3(\.\d+)?)?")


@dataclass(frozen=True)
class Nodes:
    """How many nodes there are and which is this one: values, or what the node's shell makes values of."""

    several: bool
    count: str
    processes: str
    rank: str
    head: str
    port: str = ""
    """Of the head; empty: the launcher's."""


def of_trainjob(count: int) -> Nodes:
    """Give the variables that Kubeflow Trainer sets in each container; the launch script expands them."""
    return Nodes(
        count > 1, "$PET_NNODES", "$PET_NPROC_PER_NODE", "$PET_NODE_RANK", "$PET_MASTER_ADDR", "$PET_MASTER_PORT"
    )


def of_environment(count: int, processes: int, env: Mapping[str, str]) -> Nodes:
    """Give what *env* says of this machine, as one of *count* nodes or alone."""
    rank = env.get("NODE_RANK") or env.get("SLURM_NODEID") or "0"
    head, port = env.get("MASTER_ADDR") or "localhost", env.get("MASTER_PORT") or ""
    return Nodes(count > 1, str(count), str(processes), rank if count > 1 else "0", head, port)


def launched(command: Sequence[str], launcher: Launcher, nodes: Nodes, *, rdzv_id: str) -> list[str]:
    """Give what starts *command* on one node under *launcher*; *command* itself where that does nothing."""
    if isinstance(launcher, FaultTolerance):
        return ["ft_launcher", *_fault_tolerance(launcher), *_torchrun(launcher, nodes, rdzv_id), *_program(command)]
    if isinstance(launcher, Torchrun):
        return ["torchrun", *_torchrun(launcher, nodes, rdzv_id), *_program(command)]
    return list(command)


def _torchrun(launcher: Torchrun | FaultTolerance, nodes: Nodes, rdzv_id: str) -> list[str]:
    return [
        *("--nnodes", nodes.count),
        *("--nproc-per-node", nodes.processes),
        *("--node-rank", nodes.rank),
        *("--rdzv-backend", launcher.rdzv_backend),
        *("--rdzv-endpoint", _endpoint(launcher.rdzv_port, nodes)),
        *("--rdzv-id", str(launcher.rdzv_id or rdzv_id)),
        *("--tee", "3"),
    ]


def _endpoint(port: int, nodes: Nodes) -> str:
    if not nodes.several:
        return "localhost:0"
    return f"{nodes.head}:{nodes.port if nodes.port and port == _DEFAULT_PORT else port}"


def _program(command: Sequence[str]) -> list[str]:
    """Give *command* as torchrun takes it: a Python file or ``-m`` module, else any program."""
    program, *arguments = command
    is_python = _PYTHON.fullmatch(os.path.basename(program))
    if is_python and arguments and (arguments[0] == "-m" or not arguments[0].startswith("-")):
        return arguments
    return ["--no-python", *command]


def _fault_tolerance(launcher: FaultTolerance) -> list[str]:
    given = {
        "--ft-workload_check_interval": launcher.workload_check_interval,
        "--ft-initial_rank_heartbeat_timeout": launcher.initial_rank_heartbeat_timeout,
        "--ft-rank_heartbeat_timeout": launcher.rank_heartbeat_timeout,
        "--ft-rank_termination_signal": launcher.rank_termination_signal,
        "--ft-log_level": launcher.log_level,
        "--max-restarts": launcher.max_restarts,
    }
    said = [part for option, value in given.items() if value is not None for part in (option, str(value))]
    return said or ["--ignore-missing-fault-tol-cfg"]
