"""
The tar archive of what is sent to a volume.

Both kinds of tar read it: GNU headers (busybox skips pax ones, and long names
with them). Modes are 0755 and 0644, since a root copy pod and a uid-1000
workload must both work with the files; owners are left to who unpacks.
"""

from __future__ import annotations

import gzip
import logging
import os
import stat
import tarfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from nemo_run._kube.tree import SourceFile
from nemo_run.exceptions import TransferError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Packed:
    """What an archive holds: files (and links), their bytes, and every directory, parents first."""

    files: int
    bytes: int
    directories: tuple[PurePosixPath, ...]


def pack(files: Iterable[SourceFile], out: IO[bytes], *, last: str, compress: bool) -> Packed:
    """
    Write a tar of *files* to *out*, with an empty file called *last* at its end.

    GNU tar takes an archive that was cut between two members for a whole one and exits with 0.
    Only who finds *last* on the other side knows that all of it has arrived.

    Raises:
        TransferError: a file cannot be read, or gets shorter meanwhile.
    """
    sources = {source.path_in_archive: source.local for source in files}
    try:
        packer = _packed(sources, out, last, compress)
    except OSError as error:
        raise TransferError(f"cannot write the archive: {error}") from error
    return Packed(packer.files, packer.bytes, tuple(packer.directories))


def _packed(sources: Mapping[PurePosixPath, Path], out: IO[bytes], last: str, compress: bool) -> _Packer:
    with ExitStack() as stack:
        raw = stack.enter_context(gzip.GzipFile("", "wb", compresslevel=1, fileobj=out, mtime=0)) if compress else out
        tar = stack.enter_context(
            tarfile.open(
                mode="w",
                fileobj=raw,
                format=tarfile.GNU_FORMAT,
                encoding="utf-8",
                errors="surrogateescape",
            )
        )
        packer = _Packer(tar, _Places(sources))
        for path, local in sorted(sources.items()):
            packer.add(path, local)
        tar.addfile(_member(last, 0o644))
    return packer


class _Packer:
    """Adds members, each after its parent directories, and counts them."""

    def __init__(self, tar: tarfile.TarFile, places: _Places) -> None:
        self._tar = tar
        self._places = places
        self.files = 0
        self.bytes = 0
        self.directories: dict[PurePosixPath, None] = {}

    def add(self, path: PurePosixPath, local: Path) -> None:
        if path.is_absolute() or not path.parts or ".." in path.parts:
            raise TransferError(f"{str(path)!r} is no path below the destination ({local})")
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
            self._file(path, local)
        elif stat.S_ISLNK(facts.st_mode):
            self._link(path, local, int(facts.st_mtime))
        else:
            logger.warning("left out %s: neither a file nor a directory nor a link", local)

    def _directory(self, path: PurePosixPath) -> None:
        if path not in self.directories:
            self.directories[path] = None
            self._tar.addfile(_member(str(path), 0o755, tarfile.DIRTYPE))

    def _file(self, path: PurePosixPath, local: Path) -> None:
        with local.open("rb") as content:
            facts = os.fstat(content.fileno())
            member = _member(str(path), 0o755 if facts.st_mode & 0o111 else 0o644)
            member.size = facts.st_size
            member.mtime = int(facts.st_mtime)
            self._tar.addfile(member, content)
        self.files += 1
        self.bytes += facts.st_size

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
            self._tar.addfile(member)
            self.files += 1
        else:
            logger.warning("%s is a link to %s, which is not among the files to send: sending its content", local, text)
            self._file(path, local)


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
