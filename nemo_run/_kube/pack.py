"""
The tar archive of what is sent to a volume.

Both kinds of tar read it: GNU headers (busybox skips pax ones, and long names
with them). Modes are 0755 and 0644, since a root copy pod and a uid-1000
workload must both work with the files; owners are left to who unpacks.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from nemo_run._kube.tree import SourceFile
from nemo_run.exceptions import TransferError

logger = logging.getLogger(__name__)


Member = tuple[tarfile.TarInfo, Path | None]
"""What goes into an archive, and the file whose content it has."""


@dataclass(frozen=True)
class Plan:
    """What goes into an archive: files (and links), their bytes, and every directory, parents first."""

    files: int
    bytes: int
    directories: tuple[PurePosixPath, ...]
    members: Sequence[Member] = field(default=(), compare=False, repr=False)


def planned(files: Iterable[SourceFile]) -> Plan:
    """
    Look at *files*, without reading them, and say what goes into their archive.

    Raises:
        TransferError: a file is not there or cannot be read; a path leads out of the archive.
    """
    sources = {source.path_in_archive: source.local for source in files}
    planner = _Planner(_Places(sources))
    for path, local in sorted(sources.items()):
        planner.add(path, local)
    return Plan(planner.files, planner.bytes, tuple(planner.directories), planner.members)


def pack(
    plan: Plan, out: IO[bytes], *, last: str, compress: bool, progress: Callable[[int], None] = lambda size: None
) -> None:
    """
    Write the tar of *plan* to *out*, with an empty file called *last* at its end.

    GNU tar takes an archive that was cut between two members for a whole one and exits with 0.
    Only who finds *last* on the other side knows that all of it has arrived.
    *progress* is told of the bytes of files as they are read.

    Raises:
        TransferError: a file cannot be read, or gets shorter meanwhile.
    """
    try:
        with ExitStack() as stack:
            raw = (
                stack.enter_context(gzip.GzipFile("", "wb", compresslevel=1, fileobj=out, mtime=0)) if compress else out
            )
            tar = stack.enter_context(
                tarfile.open(
                    mode="w",
                    fileobj=raw,
                    format=tarfile.GNU_FORMAT,
                    encoding="utf-8",
                    errors="surrogateescape",
                )
            )
            for member, local in plan.members:
                _write(tar, member, local, progress)
            tar.addfile(_member(last, 0o644))
    except OSError as error:
        raise TransferError(f"cannot write the archive: {error}") from error


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, local: Path | None, progress: Callable[[int], None]) -> None:
    if local is None:
        tar.addfile(member)
        return
    try:
        with local.open("rb") as content:
            facts = os.fstat(content.fileno())
            member.mode = 0o755 if facts.st_mode & 0o111 else 0o644
            member.size = facts.st_size
            member.mtime = int(facts.st_mtime)
            tar.addfile(member, _Counted(content, progress))
    except OSError as error:
        raise TransferError(f"cannot pack {local}: {error}") from error


@dataclass(frozen=True)
class _Counted:
    """A file that tells how much of it is read."""

    content: IO[bytes]
    progress: Callable[[int], None]

    def read(self, size: int = -1) -> bytes:
        data = self.content.read(size)
        self.progress(len(data))
        return data


class _Planner:
    """Lists members, each after its parent directories, and counts them."""

    def __init__(self, places: _Places) -> None:
        self._places = places
        self.members: list[Member] = []
        self.files = 0
        self.bytes = 0
        self.directories: dict[PurePosixPath, None] = {}

    def add(self, path: PurePosixPath, local: Path) -> None:
        if path.is_absolute() or not path.parts or ".." in path.parts:
            raise TransferError(f"{str(path)!r} is no path below the destination ({local})")
        if path.parent not in self.directories:
            for parent in reversed(path.parents[:-1]):
                self._directory(parent)
        try:
            self._add(path, local, local.lstat())
        except OSError as error:
            raise TransferError(f"cannot pack {local}: {error}") from error

    def _add(self, path: PurePosixPath, local: Path, facts: os.stat_result) -> None:
        if stat.S_ISDIR(facts.st_mode):
            self._directory(path)
        elif stat.S_ISREG(facts.st_mode):
            self._file(path, local, facts.st_size)
        elif stat.S_ISLNK(facts.st_mode):
            self._link(path, local, int(facts.st_mtime))
        else:
            logger.warning("left out %s: neither a file nor a directory nor a link", local)

    def _directory(self, path: PurePosixPath) -> None:
        if path not in self.directories:
            self.directories[path] = None
            self.members.append((_member(str(path), 0o755, tarfile.DIRTYPE), None))

    def _file(self, path: PurePosixPath, local: Path, size: int) -> None:
        if not os.access(local, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        self.members.append((_member(str(path), 0o644), local))
        self.files += 1
        self.bytes += size

    def _link(self, path: PurePosixPath, local: Path, mtime: int) -> None:
        target = self._places.link(path, local)
        text = os.readlink(local)
        if target is None and not local.is_file():
            logger.warning(
                "%s is a link to %s, which is not among the files to send: sent as a link, for the job to find there"
                " what its own container has",
                local,
                text,
            )
            target = text
        if target is not None:
            member = _member(str(path), 0o777, tarfile.SYMTYPE)
            member.linkname = target
            member.mtime = mtime
            self.members.append((member, None))
            self.files += 1
        else:
            logger.warning("%s is a link to %s, which is not among the files to send: sending its content", local, text)
            self._file(path, local, local.stat().st_size)


class _Places:
    """Knows where local files and directories go in the archive, and so where a link leads there."""

    def __init__(self, sources: Mapping[PurePosixPath, Path]) -> None:
        self._archived: dict[str, PurePosixPath] = {}
        for path, local in sources.items():
            self._learn(path, local)

    def _learn(self, path: PurePosixPath, local: Path) -> None:
        """Note *path*, and the directories above it for as long as both sides call them the same."""
        where = os.path.abspath(local)
        self._archived[where] = path
        while path.parts and path.name == os.path.basename(where):
            path, where = path.parent, os.path.dirname(where)
            if where in self._archived:
                return
            self._archived[where] = path

    def link(self, path: PurePosixPath, local: Path) -> str | None:
        """Give the text of the link at *path*, the same wherever it can stay; None if it leads out of the archive."""
        text = os.readlink(local)
        place = self._place(local, text)
        inside = _inside(path, text)
        if place is None:
            dangling = not local.exists()
            return text if dangling and inside is not None else None
        return text if inside == place else os.path.relpath(place, path.parent)

    def _place(self, local: Path, text: str) -> PurePosixPath | None:
        """Find in the archive what *local* leads to: as it is written, else after the links on the way there."""
        target = os.path.join(os.path.dirname(os.path.abspath(local)), text)
        way, name = os.path.split(os.path.normpath(target))
        for candidate in (
            os.path.normpath(target),
            os.path.join(os.path.realpath(way), name),
            os.path.realpath(target),
        ):
            if candidate in self._archived:
                return self._archived[candidate]
        return None


def _inside(path: PurePosixPath, text: str) -> PurePosixPath | None:
    """Give the place in the archive that a relative link at *path* names; None if it is none."""
    if os.path.isabs(text):
        return None
    place = os.path.normpath(os.path.join(path.parent, text))
    return None if place == ".." or place.startswith("../") else PurePosixPath(place)


def _member(name: str, mode: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mode = mode
    member.type = kind
    return member
