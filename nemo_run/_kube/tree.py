"""
Which local files are to be sent, and as what: trees, workdirs with their ignore rules.

Lists are sorted and hold directories, files and links themselves; nothing is
opened here but ``.gitignore`` files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
    head = PurePosixPath(prefix)
    own = [SourceFile(head, root)] if head.parts else []
    return own + [SourceFile(head / path, root / path) for path, _ in _walk(root, lambda path, is_dir: False)]


def workdir_files(root: Path, *, prefix: str | PurePosixPath = "") -> tuple[list[SourceFile], int]:
    """
    List a working directory as git sees it, and tell how many entries its rules left out.

    ``.git`` is left out and not counted. ``.gitignore`` files below *root* hold, nested ones
    too; those above it and the user's global rules do not, so that the same directory gives
    the same list on every machine. A directory that is left out counts as one.
    """
    head = PurePosixPath(prefix)
    ignored = _Ignored(root)
    found = [SourceFile(head / path, root / path) for path, _ in _walk(root, ignored)]
    own = [SourceFile(head, root)] if head.parts else []
    return own + found, ignored.skipped


class _Ignored:
    """Says of each path whether the ``.gitignore`` files above it leave it out; counts those."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._rules: dict[PurePosixPath, Rules] = {}
        self.skipped = 0

    def __call__(self, path: PurePosixPath, is_dir: bool) -> bool:
        if path.name == ".git":
            return True
        if not _left_out(path, is_dir, self._rules_in(path.parent)):
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


def _walk(root: Path, leave_out: Callable[[PurePosixPath, bool], bool]) -> Iterator[tuple[PurePosixPath, bool]]:
    """Give the paths below *root*, each directory before what it holds; those left out are not entered."""
    waiting: list[tuple[PurePosixPath, bool]] = [(PurePosixPath(), True)]
    while waiting:
        path, is_dir = waiting.pop()
        if path.parts:
            yield path, is_dir
        if is_dir:
            waiting += reversed([entry for entry in _entries(root, path) if not leave_out(*entry)])


def _entries(root: Path, directory: PurePosixPath) -> list[tuple[PurePosixPath, bool]]:
    with os.scandir(root / directory) as entries:
        return sorted((directory / entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
