"""Packs the files that patterns match."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nemo_run.core.packaging import _tar
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import PackagingError


@dataclass(kw_only=True)
class PatternPackager(Packager):
    """
    Packs the files that patterns match.

    A pattern is one of the shell's, ``**`` included; a directory that it
    matches goes with all its files. Spaces and quotes stand for themselves.
    """

    include_pattern: str | list[str]
    """What to pack: a pattern, or several."""
    relative_path: str | list[str]
    """What the names in the archive are relative to: one path for each pattern."""

    def package(self, path: Path, job_dir: str, name: str) -> str:
        """
        Pack the files into ``<job_dir>/<name>.tar.gz`` and give that path.

        Raises:
            ConfigError: there are more patterns than relative paths, or a match lies outside of its own.
            PackagingError: there are patterns, and no file matches any of them.
        """
        names = ("include_pattern", "relative_path")
        pairs = list(_tar.pairs(self.include_pattern, self.relative_path, names))
        found = [_tar.files_matching(pattern, relative, Path.cwd()) for pattern, relative in pairs]
        if pairs and not any(found):
            patterns = ", ".join(repr(pattern) for pattern, _ in pairs)
            raise PackagingError(f"include_pattern: no file matches {patterns} in {Path.cwd()}, so there is no code")
        entries: _tar.Entries = {}
        for (pattern, _), matching in zip(pairs, found, strict=True):
            entries |= matching
            if not matching:
                _tar.tell_unmatched(pattern)
        return _tar.write_archive(Path(job_dir, f"{name}.tar.gz"), entries)
