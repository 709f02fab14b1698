"""Packs what several packagers pack into one archive."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from nemo_run.core.packaging import _tar
from nemo_run.core.packaging.base import Packager


@dataclass(kw_only=True)
class HybridPackager(Packager):
    """
    Packs what several packagers pack into one archive, each below its folder.

    Where two of them have a file of the same name at the same place, the later one's stays.
    """

    sub_packagers: dict[str, Packager] = field(default_factory=dict)
    """The packagers, by the folder that each one's files go to."""
    extract_at_root: bool = False
    """Leave the folders out: everything goes to the top."""

    def package(self, path: Path, job_dir: str, name: str) -> str:
        """Pack everything into ``<job_dir>/<name>.tar.gz`` and give that path."""
        entries: _tar.Entries = {}
        with ExitStack() as files:
            scratch = files.enter_context(tempfile.TemporaryDirectory(prefix="nemo_run-"))
            for number, (folder, packager) in enumerate(self.sub_packagers.items()):
                part = packager.package(path, scratch, f"{name}_{number}")
                prefix = "" if self.extract_at_root else f"{folder}/"
                if part:
                    packed = _tar.read_archive(files.enter_context(open(part, "rb")), files)
                    entries |= {f"{prefix}{member}": entry for member, entry in packed.items()}
            return _tar.write_archive(Path(job_dir, f"{name}.tar.gz"), entries)
