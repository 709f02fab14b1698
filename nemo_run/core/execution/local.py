"""Jobs as processes on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from nemo_run.core.execution._torchrun import launched, of_environment
from nemo_run.core.execution.base import Executor


@dataclass(kw_only=True)
class LocalExecutor(Executor):
    """Runs jobs as processes on this machine."""

    ntasks_per_node: int = 1
    """How many processes torchrun starts."""
    nodes: int = 1
    """How many nodes torchrun is told; they are all this machine."""

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
        """Give what runs *cmd* under this executor's launcher: torchrun, a profiler, or nothing."""
        nodes = of_environment(self.nnodes(), self.nproc_per_node(), os.environ)
        # Made from the experiment's id, so that equal jobs have equal commands.
        rdzv_id = str(crc32((self.experiment_id or "").encode()) % 10000 + 1)
        command = launched(cmd, self.get_launcher(), nodes, rdzv_id=rdzv_id)
        if prefix := self.get_launcher_prefix():
            entrypoint, postfix = self.get_nsys_entrypoint()
            return [entrypoint, *prefix, *command, *([postfix] if postfix else [])]
        return command
