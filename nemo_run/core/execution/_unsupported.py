"""Executors that scripts and saved experiments name, and that this package does not run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

from nemo_run.core.execution.base import Executor
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError


def git_packager() -> Packager:
    """Give the packager that these executors have unless told otherwise."""
    from nemo_run.core.packaging.git import GitArchivePackager

    return GitArchivePackager()


@dataclass(kw_only=True)
class UnsupportedExecutor(Executor):
    """An executor that can be built, cloned, saved, loaded and asked about; it is refused when a job is given to it."""

    packager: Packager = field(default_factory=git_packager)

    def refuse(self) -> NoReturn:
        """Say what to use instead."""
        raise ConfigError(
            "executor",
            type(self).__name__,
            "nemo_run runs jobs on Kubernetes (KubeflowExecutor, KubeRayExecutor) and on this machine (LocalExecutor);"
            " use one of these, or NVIDIA's NeMo-Run 0.12 for this one",
        )

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        """Refuse the job."""
        self.refuse()

    def launch(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse the job."""
        self.refuse()
