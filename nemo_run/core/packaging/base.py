"""What every packager is: it turns code on this machine into one archive for a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nemo_run.config import ConfigurableMixin


@dataclass(kw_only=True)
class Packager(ConfigurableMixin):
    """
    Packs nothing: the job runs the code that its image, or this machine, has.

    Subclasses override `package`.
    """

    debug: bool = False
    """Ask components and executors for their debug settings."""
    symlink_from_remote_dir: str | None = None
    """A directory on the cluster's login node to link the package from; Slurm only, kept for saved configs."""

    def package(self, path: Path, job_dir: str, name: str) -> str:
        """Pack the code at *path* into ``<job_dir>/<name>.tar.gz`` and give that path; ``""`` if there is nothing."""
        return ""

    def setup(self) -> None:
        """Prepare the machine that the job starts on; called there before it starts."""
