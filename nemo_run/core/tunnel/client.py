"""
Ways to a Slurm login node, as values only.

Launchers that also serve Slurm build them; whatever would connect is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

from nemo_run.config import ConfigurableMixin
from nemo_run.exceptions import ConfigError


@dataclass
class RunResult:
    """What a command on the other side gave."""

    stdout: str = ""
    stderr: str = ""
    exited: int = 0


@dataclass(kw_only=True)
class PackagingJob(ConfigurableMixin):
    """A job's package on the other side."""

    symlink: bool = False
    src_path: str | None = None
    dst_path: str | None = None


@dataclass(kw_only=True)
class Tunnel(ConfigurableMixin):
    """A way to a login node; nothing goes through it."""

    job_dir: str
    host: str
    user: str
    packaging_jobs: dict[str, PackagingJob] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Give the name that this way is known by."""
        return f"{self.user}@{self.host}"

    def refuse(self) -> NoReturn:
        """Say what to use instead."""
        raise ConfigError(
            "tunnel",
            type(self).__name__,
            "nemo_run reaches Kubernetes without tunnels; for Slurm use NVIDIA's NeMo-Run 0.12",
        )

    def connect(self) -> None:
        """Refuse to connect."""
        self.refuse()

    def run(self, command: str, hide: bool = True, warn: bool = False, **kwargs: Any) -> RunResult:
        """Refuse to run a command."""
        self.refuse()

    def put(self, local_path: str, remote_path: str) -> None:
        """Refuse to copy a file there."""
        self.refuse()

    def get(self, remote_path: str, local_path: str) -> None:
        """Refuse to copy a file from there."""
        self.refuse()

    def cleanup(self) -> None:
        """Close what was opened: nothing."""


@dataclass(kw_only=True)
class LocalTunnel(Tunnel):
    """The login node is this machine."""

    host: str = field(init=False, default="localhost")
    user: str = field(init=False, default="")


@dataclass(kw_only=True)
class SSHTunnel(Tunnel):
    """The login node is reached with SSH."""

    port: int | None = None
    identity: str | None = None
    shell: str | None = None
    pre_command: str | None = None


class Callback:
    """Called while a tunnel is kept alive; there is none to keep."""

    def setup(self, tunnel: Tunnel) -> None:
        """Take the tunnel."""
        self.tunnel = tunnel

    def on_start(self) -> None:
        """Act at the start."""

    def on_interval(self) -> None:
        """Act now and then."""

    def on_stop(self) -> None:
        """Act at the end."""

    def on_error(self, error: Exception) -> None:
        """Act on an error."""
