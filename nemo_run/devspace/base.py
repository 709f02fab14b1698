"""A development space on a Slurm cluster, as a value only."""

from __future__ import annotations

from typing import NoReturn

from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import ConfigError


class DevSpace:
    """Describes a development space; it can be built, not launched."""

    def __init__(
        self,
        name: str,
        executor: Executor,
        cmd: str = "launch_devspace",
        use_packager: bool = False,
        env_vars: dict[str, str] | None = None,
        add_workspace_to_pythonpath: bool = True,
    ) -> None:
        self.name = name
        self.executor = executor
        self.cmd = cmd
        self.use_packager = use_packager
        self.env_vars = env_vars
        self.add_workspace_to_pythonpath = add_workspace_to_pythonpath

    @classmethod
    def connect(cls, host: str, path: str) -> NoReturn:
        """Refuse to connect to the space at *host*."""
        _refuse()

    def launch(self) -> NoReturn:
        """Refuse to launch."""
        _refuse()

    def execute_cmd(self) -> NoReturn:
        """Refuse to launch."""
        _refuse()


def _refuse() -> NoReturn:
    raise ConfigError(
        "DevSpace", "launch", "nemo_run has no development spaces; run a job that sleeps and use `kubectl exec` instead"
    )
