"""
Which local files are to be sent, and as what: trees, workdirs with their ignore rules.

Lists are sorted and hold directories, files and links themselves; nothing is
opened here but ``.gitignore`` files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    Rules = tuple[tuple[PurePosixPath, GitIgnoreSpec], ...]


@dataclass(frozen=True)
class SourceFile:
    """A local file, directory or link, and the relative path that it gets on the volume."""

    path_in_archive: PurePosixPath
    local: Path


def directory_files(root: Path, *, prefix: str | PurePosixPath = "") -> list[SourceFile]:
    """
    List all that lies below *root*, sorted, each path with *prefix* before it.

    Links are listed, not followed. *root* itself is listed only where a prefix names it.

    Raises:
        OSError: a directory cannot be read; a list without its files would look complete.
    """
    return _listed(root, PurePosixPath(prefix), lambda directory, name, is_dir: False)


def workdir_files(root: Path, *, prefix: str | PurePosixPath = "") -> tuple[list[SourceFile], int]:
    """
    List a working directory as git sees it, and tell how many entries its rules left out.

    ``.git`` is left out and not counted. ``.gitignore`` files below *root* hold, nested ones
    too; those above it and the user's global rules do not, so that the same directory gives
    the same list on every machine. A directory that is left out counts as one.
    """
    ignored = _Ignored(root)
    return _listed(root, PurePosixPath(prefix), ignored), ignored.skipped


class _Ignored:
    """Says of each entry of a directory whether the ``.gitignore`` files above it leave it out; counts those."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rules: dict[PurePosixPath, Rules] = {}
        self.skipped = 0

    def __call__(self, directory: PurePosixPath, name: str, is_dir: bool) -> bool:
        if name == ".git":
            return True
        rules = self._rules_in(directory)
        if not rules or not _left_out(directory / name, is_dir, rules):
            return False
        self.skipped += 1
        return True

    def _rules_in(self, directory: PurePosixPath) -> Rules:
        """Give the rules that hold in *directory*, the nearest first."""
        if directory not in self._rules:
            above = self._rules_in(directory.parent) if directory.parts else ()
            self._rules[directory] = _own_rules(self._root / directory, directory) + above
        return self._rules[directory]


def _own_rules(local: Path, directory: PurePosixPath) -> Rules:
    try:
        text = (local / ".gitignore").read_text("utf-8", "surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return ()
    from pathspec import GitIgnoreSpec

    # To pathspec `logs/**` is also `logs/` itself; to git it is all that lies below, so that `!logs/keep` can hold.
    lines = [f"{line}/*" if line.endswith("/**") else line for line in text.splitlines()]
    return ((directory, GitIgnoreSpec.from_lines(lines)),)


def _left_out(path: PurePosixPath, is_dir: bool, rules: Rules) -> bool:
    """Ask the nearest rules first: the first that know the path decide, as in git."""
    for directory, spec in rules:
        below = str(path.relative_to(directory)) + ("/" if is_dir else "")
        verdict = spec.check_file(below).include
        if verdict is not None:
            return verdict
    return False


def _listed(root: Path, head: PurePosixPath, leave_out: Callable[[PurePosixPath, str, bool], bool]) -> list[SourceFile]:
    """List what lies below *root*, each directory before what it holds; those left out are not entered."""
    found = [SourceFile(head, root)] if head.parts else []
    waiting = [(PurePosixPath(), os.fspath(root), True)]
    while waiting:
        path, local, is_dir = waiting.pop()
        if path.parts:
            found.append(SourceFile(head / path if head.parts else path, Path(local)))
        if is_dir:
            waiting += reversed(
                [
                    (path / name, below, is_dir)
                    for name, below, is_dir in _entries(local)
                    if not leave_out(path, name, is_dir)
                ]
            )
    return found


def _entries(directory: str) -> list[tuple[str, str, bool]]:
    with os.scandir(directory) as entries:
        return sorted((entry.name, entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries)
