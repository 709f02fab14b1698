"""Packs what is committed in a git repository."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nemo_run.core.packaging import _tar
from nemo_run.core.packaging._git import Repository
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError, PackagingError

logger = logging.getLogger(__name__)

_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1"
_LFS_POINTER_MAX = 1024
_SHOWN = 20


@dataclass(kw_only=True)
class GitArchivePackager(Packager):
    """
    Packs what is committed in the git repository that the job is started from.

    Nothing uncommitted is packed but what ``include_pattern`` names. ``export-ignore`` rules hold.
    """

    basepath: str = ""
    """A path in the repository to pack; empty: where the job is started from."""
    subpath: str = ""
    """Pack only what is below this path of the repository; it becomes the top of the archive."""
    ref: str = "HEAD"
    """The commit, branch or tag to pack."""
    include_submodules: bool = True
    """Pack submodules too, nested ones as well: for ``HEAD`` what is checked out in them, else what *ref* records."""
    include_pattern: str | list[str] = ""
    """Files to pack besides, as in `PatternPackager`."""
    include_pattern_relative_path: str | list[str] = ""
    """What their names are relative to, one path for each pattern; empty: the repository."""
    check_uncommitted_changes: bool = False
    """Refuse to pack while tracked files are changed."""
    check_untracked_files: bool = False
    """Refuse to pack while there are files that git neither tracks nor ignores."""

    def package(self, path: Path, job_dir: str, name: str) -> str:
        """
        Pack the code into ``<job_dir>/<name>.tar.gz`` and give that path.

        Raises:
            NoRepository: *path* is in no git repository.
            PackagingError: a check refuses, a submodule is not there, or git fails.
            ConfigError: the ref, the subpath or the patterns are wrong.
        """
        repository = Repository.around(Path(self.basepath or path))
        self._check(repository)
        with ExitStack() as files:
            entries = self._committed(repository, repository.tree(self.ref), _clean(self.subpath), files)
            _warn_of_lfs(entries)
            entries |= self._included(repository.root)
            return _tar.write_archive(Path(job_dir, f"{name}.tar.gz"), entries)

    def _check(self, repository: Repository) -> None:
        if self.check_uncommitted_changes and (files := repository.uncommitted()):
            raise PackagingError(
                "Your repo has uncommitted changes. Please commit your changes or set check_uncommitted_changes to"
                f" False to proceed with packaging. Changed: {_some(files)}"
            )
        if self.check_untracked_files and (files := repository.untracked()):
            raise PackagingError(
                "Your repo has untracked files. Please track your files via git or set check_untracked_files to"
                f" False to proceed with packaging. Untracked: {_some(files)}"
            )

    def _committed(self, repository: Repository, commit: str, subpath: str, files: ExitStack) -> _tar.Entries:
        spool = _tar.spool(files)
        repository.archive(commit, subpath, spool)
        spool.seek(0)
        entries = _tar.read_archive(spool, files)
        if self.include_submodules:
            for path, recorded in repository.submodules(commit, subpath).items():
                below = self._submodule(repository, path, recorded, files)
                entries |= {f"{path}/{name}": entry for name, entry in below.items()}
        if not subpath:
            return entries
        return {name[len(subpath) + 1 :]: entry for name, entry in entries.items() if name.startswith(f"{subpath}/")}

    def _submodule(self, parent: Repository, path: str, recorded: str, files: ExitStack) -> _tar.Entries:
        root = parent.root / path
        if not (root / ".git").exists():
            raise PackagingError(
                f"{parent.root}: the submodule {path} is not checked out; run"
                " `git submodule update --init --recursive`, or give include_submodules=False"
            )
        repository = Repository(root)
        commit = repository.tree("HEAD") if self.ref == "HEAD" else recorded
        if commit != recorded:
            logger.warning("the submodule %s is packed as checked out, %s, not as recorded, %s", path, commit, recorded)
        return self._committed(repository, commit, "", files)

    def _included(self, root: Path) -> _tar.Entries:
        entries: _tar.Entries = {}
        names = ("include_pattern", "include_pattern_relative_path")
        for pattern, relative in _tar.pairs(self.include_pattern, self.include_pattern_relative_path, names):
            found = _tar.files_matching(pattern, relative or str(root), root if relative else Path.cwd())
            if not found:
                _tar.tell_unmatched(pattern)
            entries |= found
        return entries


def _clean(subpath: str) -> str:
    """Give *subpath* without ``./`` and a trailing slash; empty for the whole repository."""
    path = PurePosixPath(subpath)
    if path.is_absolute() or ".." in path.parts:
        raise ConfigError("subpath", subpath, "is a path below the repository, relative and without '..'")
    return "" if path == PurePosixPath() else str(path)


def _warn_of_lfs(entries: _tar.Entries) -> None:
    pointers = [name for name, entry in entries.items() if _is_lfs_pointer(entry)]
    if pointers:
        logger.warning(
            "%d files are Git LFS pointers, not their content (run `git lfs pull`): %s", len(pointers), _some(pointers)
        )


def _is_lfs_pointer(entry: _tar.Entry) -> bool:
    if entry.open is None or not len(_LFS_POINTER) <= entry.info.size <= _LFS_POINTER_MAX:
        return False
    with entry.open() as content:
        return content.read(len(_LFS_POINTER)) == _LFS_POINTER


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(os.fspath(name) for name in sorted(names)[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
