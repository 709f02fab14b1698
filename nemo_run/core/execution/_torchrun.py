"""
A node's command under torchrun, ft_launcher and nsys.

Where a node stands among the others is known in the container only: Kubeflow
Trainer sets ``PET_*`` there, and the launch script expands them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from nemo_run.core.execution.launcher import FaultTolerance, Launcher, Torchrun

_DEFAULT_PORT = 29500


def launched(command: Sequence[str], launcher: Launcher, *, nodes: int, job: str) -> list[str]:
    """Give what starts *command* on one node under *launcher*; *command* itself where that does nothing."""
    if isinstance(launcher, FaultTolerance):
        return ["ft_launcher", *_fault_tolerance(launcher), *_torchrun(launcher, nodes, job), *_program(command)]
    if isinstance(launcher, Torchrun):
        return ["torchrun", *_torchrun(launcher, nodes, job), *_program(command)]
    return list(command)


def _torchrun(launcher: Torchrun | FaultTolerance, nodes: int, job: str) -> list[str]:
    return [
        *("--nnodes", "$PET_NNODES"),
        *("--nproc-per-node", "$PET_NPROC_PER_NODE"),
        *("--node-rank", "$PET_NODE_RANK"),
        *("--rdzv-backend", launcher.rdzv_backend),
        *("--rdzv-endpoint", _endpoint(launcher.rdzv_port, nodes)),
        *("--rdzv-id", str(launcher.rdzv_id or job or "nemo-run")),
        *("--tee", "3"),
    ]


def _endpoint(port: int, nodes: int) -> str:
    if nodes == 1:
        return "localhost:0"
    return f"$PET_MASTER_ADDR:{'$PET_MASTER_PORT' if port == _DEFAULT_PORT else port}"


def _program(command: Sequence[str]) -> list[str]:
    """Give *command* as torchrun takes it: a Python file or ``-m`` module, else any program."""
    program, *arguments = command
    is_python = os.path.basename(program) in ("python", "python3")
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
