"""Jobs as processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from nemo_run.core.execution._checks import check_count
from nemo_run.core.execution._torchrun import Nodes, launched, of_environment
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.launcher import FaultTolerance, Launcher, Torchrun
from nemo_run.exceptions import ConfigError

_OF_TORCHRUN = ("auto", "gpu", "cpu", "xpu")
"""What torchrun takes for a number of processes besides one."""


@dataclass(kw_only=True, repr=False)
class LocalExecutor(Executor):
    """Runs jobs as processes on this machine."""

    ntasks_per_node: int = 1
    """How many processes torchrun starts."""
    nodes: int = 1
    """
    How many nodes torchrun is told. A script is run on each of them, this machine being one; they
    meet at ``MASTER_ADDR`` and ``MASTER_PORT``, and ``NODE_RANK`` or ``SLURM_NODEID`` says which is which.
    """

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        """Take a job of an experiment."""
        self.experiment_id = exp_id
        self.experiment_dir = exp_dir
        self.job_dir = os.path.join(exp_dir, task_dir)

    def nnodes(self) -> int:
        """Give the number of nodes."""
        return self.nodes

    def nproc_per_node(self) -> int:
        """Give the number of processes on each node."""
        return self.ntasks_per_node

    def launcher_command(self, cmd: Sequence[str]) -> list[str]:
        """
        Give what runs *cmd* under this executor's launcher: torchrun, a profiler, or nothing.

        Raises:
            ConfigError: torchrun is told of several nodes, and nothing says where they meet; or a count is no number.
        """
        launcher = self.get_launcher()
        check_count("nodes", self.nodes, least=1)
        processes: Any = self.ntasks_per_node
        if processes not in _OF_TORCHRUN:
            check_count("ntasks_per_node", processes, least=1)
        nodes = of_environment(self.nnodes(), self.nproc_per_node(), os.environ)
        command = launched(cmd, launcher, nodes, rdzv_id=self._meeting(launcher, nodes))
        if prefix := self.get_launcher_prefix():
            entrypoint, postfix = self.get_nsys_entrypoint()
            return [entrypoint, *prefix, *command, *([postfix] if postfix else [])]
        return command

    def _meeting(self, launcher: Launcher, nodes: Nodes) -> str:
        """Give an id by which the agents of one job know each other: the same on all nodes, and in equal jobs."""
        if not nodes.several:
            place = self.experiment_id or ""
        elif "MASTER_ADDR" in os.environ or not isinstance(launcher, Torchrun | FaultTolerance) or launcher.rdzv_id:
            place = f"{nodes.head}:{nodes.port}"
        else:
            raise ConfigError(
                "nodes",
                self.nodes,
                "this machine is one of them, and nothing says where they meet: set MASTER_ADDR, MASTER_PORT and"
                " NODE_RANK in each node's environment; for more processes on this machine there is ntasks_per_node",
            )
        return str(crc32(place.encode()) % 10000 + 1)
