"""Archives that are equal to the byte for equal content, written with ``tarfile`` alone."""

from __future__ import annotations

import copy
import glob
import gzip
import logging
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nemo_run.exceptions import ConfigError, PackagingError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """A member of an archive to be, and where its bytes come from."""

    info: tarfile.TarInfo
    open: Callable[[], IO[bytes]] | None = None


Entries = dict[str, Entry]
"""Entries by their name in the archive; what is added later under a name replaces what was there."""


def write_archive(target: Path, entries: Mapping[str, Entry]) -> str:
    """
    Write *entries*, sorted by name, to *target* as ``tar.gz`` and give its path.

    *target* is replaced at once, when everything is written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as raw:
        try:
            with (
                gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
            ):
                for name in sorted(entries):
                    _add(archive, name, entries[name])
            os.replace(raw.name, target)
        except BaseException:
            os.unlink(raw.name)
            raise
    return str(target)


def read_archive(source: IO[bytes], files: ExitStack) -> Entries:
    """Give the entries of the tar that *source* holds, plain or packed by gzip, for as long as *files* is open."""
    plain = source
    packed = source.read(2) == b"\x1f\x8b"
    source.seek(0)
    if packed:
        # Entries are read in another order than they lie in, which gzip can only do by starting anew each time.
        plain = spool(files)
        with gzip.GzipFile(fileobj=source) as content:
            shutil.copyfileobj(content, plain)
        plain.seek(0)
    archive = files.enter_context(tarfile.TarFile(fileobj=plain))
    entries = {}
    for info in archive:
        name = os.path.normpath(info.name)
        if name != ".":
            entries[name] = Entry(info, _opener(archive, info) if info.isreg() else None)
    return entries


def spool(files: ExitStack) -> IO[bytes]:
    """Give a file without a name that is there until *files* is closed."""
    return files.enter_context(tempfile.TemporaryFile())  # the stack is the context


def files_matching(pattern: str, relative_to: str, base: Path) -> Entries:
    """
    Give the files that *pattern* matches, and those below directories that it matches.

    Their names in the archive are relative to *relative_to*; both are relative to *base*.

    Raises:
        ConfigError: a match is not below *relative_to*.
    """
    root = os.path.normpath(base / relative_to)
    entries: Entries = {}
    for match in sorted(glob.glob(os.path.normpath(base / pattern), recursive=True)):
        for path in _files(match):
            name = os.path.relpath(path, root)
            if name.startswith(".."):
                raise ConfigError("include_pattern", pattern, f"matches {path}, which is not below {root}")
            entries[name] = _from_file(path, name)
    return entries


def tell_unmatched(pattern: str) -> None:
    """Warn that a pattern, one of several, matches nothing."""
    logger.warning("no file matches %s: nothing of it is packed", pattern)


def pairs(patterns: str | list[str], relative: str | list[str], names: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """
    Give each pattern with its relative path, leaving out empty patterns.

    Raises:
        ConfigError: there are more of the one than of the other.
    """
    several = [patterns] if isinstance(patterns, str) else patterns
    others = [relative] if isinstance(relative, str) else relative
    if len(several) != len(others):
        raise ConfigError(names[0], patterns, f"has another length than {names[1]}={relative!r}; write one for each")
    return ((pattern, other) for pattern, other in zip(several, others, strict=True) if pattern)


def _add(archive: tarfile.TarFile, name: str, entry: Entry) -> None:
    info = copy.copy(entry.info)
    info.name = name
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = int(info.mtime)
    info.mode = 0o755 if info.isdir() or info.mode & 0o111 else 0o644
    info.pax_headers = {}
    if entry.open is None:
        archive.addfile(info)
        return
    with entry.open() as content:
        archive.addfile(info, content)


def _opener(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        content = archive.extractfile(info)
        if content is None:
            raise PackagingError(f"{info.name} has no content in its archive")
        return content

    return opened


def _files(path: str) -> Iterable[str]:
    """Give *path* if it is a file or a link, and every file and link below it if it is a directory."""
    if os.path.islink(path) or not os.path.isdir(path):
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        yield from (os.path.join(folder, name) for name in sorted(files + links))


def _from_file(path: str, name: str) -> Entry:
    status = os.lstat(path)
    info = tarfile.TarInfo(name)
    info.mode, info.mtime = status.st_mode, int(status.st_mtime)
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        return Entry(info)
    if not stat.S_ISREG(status.st_mode):
        raise PackagingError(f"{path} is neither a file, a link nor a directory, and cannot be packed")
    info.size = status.st_size
    return Entry(info, lambda: open(path, "rb"))
