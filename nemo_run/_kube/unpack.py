"""
The tar archive of what comes back from a volume.

It is not trusted: one with a member that is absolute, has ``..`` or would be
written through a link is refused, and nothing is written before all members
have been looked at. Devices, pipes and links that lead out are what jobs leave
in good faith: they stay where they are, and all else comes.

Files appear whole, by rename. (tarfile's own filters came with Python 3.12 and
write in place.)
"""

from __future__ import annotations

import logging
import os
import posixpath
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from nemo_run.exceptions import TransferError

logger = logging.getLogger(__name__)

Skip = Callable[[PurePosixPath, tarfile.TarInfo], bool]

_CHUNK = 256 * 1024
_NAMED = 5
"""Of what is left behind, how many a warning names."""


@dataclass(frozen=True)
class Fetched:
    """What came back: files and links written, their bytes, and how many were skipped."""

    files: int
    bytes: int
    skipped: int


def unpack(archive: IO[bytes], dest: Path, *, source: PurePosixPath, skip: Skip | None = None) -> Fetched:
    """
    Write what the plain tar *archive* of the remote directory *source* holds to below *dest*.

    Links with an absolute path below *source* become relative. A member for which *skip* holds
    stays out; so does all that lies below a directory for which it holds. Devices, pipes and links that lead
    out stay out with a warning.

    Raises:
        TransferError: the archive is broken or unsafe (then nothing is written), or *dest* cannot be written.
    """
    archive.seek(0)
    try:
        with tarfile.open(fileobj=archive, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
            members = _members(tar, archive)
            wanted, skipped = _chosen(members, skip)
            everything = dict(members)
            _refuse_unsafe(wanted, everything)
            left = {path: why for path, member in wanted if (why := _why_left(path, member, source, everything))}
            writer = _Writer(tar, dest, source)
            left |= writer.write([(path, member) for path, member in wanted if path not in left])
    except tarfile.TarError as error:
        raise TransferError(f"what came from {source} is no whole tar archive: {error}") from error
    except OSError as error:
        raise TransferError(f"cannot write what came from {source} to {dest}: {error}") from error
    _tell(left, source)
    return Fetched(writer.files, writer.bytes, skipped + len(left))


Members = Sequence[tuple[PurePosixPath, tarfile.TarInfo]]


def _members(tar: tarfile.TarFile, archive: IO[bytes]) -> Members:
    """Read all headers, and the empty block after them: tarfile takes any nonsense there for the end."""
    members = [(PurePosixPath(member.name), member) for member in tar.getmembers()]
    archive.seek(tar.offset)
    if archive.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it ends without an end")
    return [(path, member) for path, member in members if path.parts]


def _chosen(members: Members, skip: Skip | None) -> tuple[Members, int]:
    """Leave out what *skip* wants left out, and tell how many files and links that were."""
    if skip is None:
        return members, 0
    wanted: list[tuple[PurePosixPath, tarfile.TarInfo]] = []
    left_out: set[PurePosixPath] = set()
    skipped = 0
    for path, member in members:
        if not left_out.isdisjoint(path.parents) or skip(path, member):
            left_out.add(path)
            skipped += not member.isdir()
        else:
            wanted.append((path, member))
    return wanted, skipped


def _refuse_unsafe(members: Members, everything: Mapping[PurePosixPath, tarfile.TarInfo]) -> None:
    links = {path for path, member in members if member.issym()}
    for path, member in members:
        if path.is_absolute() or ".." in path.parts:
            raise _unsafe(path, "leads out of the destination")
        if not links.isdisjoint(path.parents):
            raise _unsafe(path, "would be written through a link")
        if member.islnk():
            first = everything.get(PurePosixPath(member.linkname))
            if first is None or first.islnk():
                raise _unsafe(path, f"is a hard link to {member.linkname!r}, which is no file of the archive")


def _why_left(
    path: PurePosixPath,
    member: tarfile.TarInfo,
    source: PurePosixPath,
    everything: Mapping[PurePosixPath, tarfile.TarInfo],
) -> str:
    """Say why *member* cannot come along; nothing if it can."""
    if member.issym():
        return "" if _link_text(path, member, source) is not None else f"a link that leads out, to {member.linkname!r}"
    if member.isreg() or member.isdir():
        return ""
    if member.islnk():
        plain = everything[PurePosixPath(member.linkname)].isreg()
        return "" if plain else f"a hard link to {member.linkname!r}, which is no plain file"
    return "a device or a pipe"


def _tell(left: Mapping[PurePosixPath, str], source: PurePosixPath) -> None:
    if left:
        named = [f"{str(path)!r} ({why})" for path, why in list(left.items())[:_NAMED]]
        more = [f"{len(left) - _NAMED} more"] if len(left) > _NAMED else []
        logger.warning("%d left behind in %s: %s", len(left), source, ", ".join([*named, *more]))


def _link_text(path: PurePosixPath, member: tarfile.TarInfo, source: PurePosixPath) -> str | None:
    """Give the text of a link as it is to be written; None if it leads out."""
    text = member.linkname
    if posixpath.isabs(text):
        below = posixpath.relpath(posixpath.normpath(text), source)
        text = posixpath.relpath(below, path.parent)
    else:
        below = posixpath.normpath(posixpath.join(path.parent, text))
    return None if below == ".." or below.startswith("../") else text


def _unsafe(path: PurePosixPath, why: str) -> TransferError:
    return TransferError(f"refused to unpack {str(path)!r}: it {why}; nothing was written")


class _Writer:
    """Writes members below a directory, never through a link, links last."""

    def __init__(self, tar: tarfile.TarFile, dest: Path, source: PurePosixPath) -> None:
        self._tar = tar
        self._dest = dest
        self._source = source
        self._real: set[PurePosixPath] = set()
        self.files = 0
        self.bytes = 0

    def write(self, members: Members) -> dict[PurePosixPath, str]:
        """Write them, and tell which links had to be taken back, and why."""
        self._dest.mkdir(parents=True, exist_ok=True)
        for path, member in members:
            if member.isdir():
                self._directory(path)
            elif not member.issym():
                self._file(path, member)
        links = [path for path, member in members if member.issym() and self._link(path, member)]
        return dict.fromkeys(self._taken_back(links), "a link that leads out, by way of others")

    def _directory(self, path: PurePosixPath) -> Path:
        """Make *path* and what is above it; each must be a real directory."""
        for part in (*reversed(path.parents[:-1]), path):
            if part in self._real or not part.parts:
                continue
            local = self._dest / part
            local.mkdir(exist_ok=True)
            if local.is_symlink():
                raise TransferError(f"refused to write through the link {local}: remove it first")
            self._real.add(part)
        return self._dest / path

    def _file(self, path: PurePosixPath, member: tarfile.TarInfo) -> None:
        """Write a file; a hard link becomes a file of its own, with the content of its first name."""
        content = self._tar.extractfile(member)
        if content is None:
            raise tarfile.ReadError(f"{str(path)!r} has no content")
        local = self._directory(path.parent) / path.name
        mode = 0o777 if member.mode & 0o111 else 0o666
        with content, _appearing(local) as part:
            with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as out:
                shutil.copyfileobj(content, out, _CHUNK)
                self.bytes += out.tell()
            os.utime(part, (member.mtime, member.mtime))
        self.files += 1

    def _link(self, path: PurePosixPath, member: tarfile.TarInfo) -> bool:
        text = _link_text(path, member, self._source)
        if text is None:
            return False
        with _appearing(self._directory(path.parent) / path.name) as part:
            part.symlink_to(text)
        self.files += 1
        return True

    def _taken_back(self, links: Sequence[PurePosixPath]) -> list[PurePosixPath]:
        """Remove links that lead out by way of others, which their texts alone do not show."""
        root = self._dest.resolve()
        kept, out = list(links), []
        while bad := [path for path in kept if not Path(os.path.realpath(self._dest / path)).is_relative_to(root)]:
            for path in bad:
                (self._dest / path).unlink()
                kept.remove(path)
            out += bad
        self.files -= len(out)
        return out


@contextmanager
def _appearing(local: Path) -> Iterator[Path]:
    """Give a name to write to; what is there gets the name *local* at the end, or goes away after an error."""
    part = local.with_name(f".nemo-run-{secrets.token_hex(6)}")
    try:
        yield part
        part.replace(local)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()
