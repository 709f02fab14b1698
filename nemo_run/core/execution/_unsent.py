"""Files that a command names and that nobody packed: most often a typing error, seen before the job fails of it."""

from __future__ import annotations

import difflib
import os
import posixpath
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

_SCRIPTS = (".py", ".sh", ".bash")
_CODE = "code/"


def unsent(command: Sequence[str], sent: Collection[str], *, here: Path, local: str | None = None) -> Iterator[str]:
    """
    Say which relative paths in *command* are not among what the packager packed, and what may have been meant.

    Looked at are names of scripts, and of files that are there on this machine, below *here*.

    Args:
        sent: what lies below the code directory; the packager's files are those below ``code/``.
        local: a directory below *here* that is sent in another way.
    """
    packed = [path.removeprefix(_CODE) for path in sent if path.startswith(_CODE)]
    if not packed:
        return
    for path in dict.fromkeys(_paths(command, here)):
        if local and path.startswith(f"{local.rstrip('/')}/"):
            continue
        if posixpath.normpath(_CODE + path) not in sent:
            near = _nearest(posixpath.normpath(path), packed)
            hint = f"; did you mean {near!r}?" if near else ""
            yield f"{path!r} is not among the files that the packager packed{hint}"


def _paths(command: Sequence[str], here: Path) -> Iterator[str]:
    for number, argument in enumerate(command):
        path = argument.partition("=")[2] if argument.startswith("-") else argument
        if not path or os.path.isabs(path) or any(char in path for char in "$\n\0") or len(path) > 255:
            continue
        suffix = PurePosixPath(path).suffix
        named = suffix in _SCRIPTS and not argument.startswith("-") and command[number - 1 : number] != ["-c"]
        if named or (suffix and (here / path).is_file()):
            yield path


def _nearest(path: str, packed: Sequence[str]) -> str | None:
    """Give the packed file of that name in another directory, else the one that is spelled most alike."""
    name = posixpath.basename(path)
    if same := sorted(other for other in packed if posixpath.basename(other) == name):
        return same[0]
    by_name = {posixpath.basename(other): other for other in packed}
    if near := difflib.get_close_matches(path, packed, n=1):
        return near[0]
    return next((by_name[other] for other in difflib.get_close_matches(name, by_name, n=1)), None)
