"""
A container's log as the kubelet keeps it: one file for each start, a timestamp before each line.

The format is that of the container runtime interface: ``<RFC 3339 nano> stdout F <line>``,
with ``P`` for a part of a line that was too long or is not finished.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST = 16384
"""Longer lines are stored in parts (containerd's max_container_log_line_size)."""
_CHUNK = 1 << 20


@dataclass(frozen=True)
class LogQuery:
    """What of a log is wanted: the parameters of a pod's ``log`` subresource."""

    follow: bool = False
    since_time: datetime.datetime | None = None
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None


class LogFile:
    """Is written to by one container and read by any number of clients at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.finished = False
        self._file = path.open("ab", buffering=0)
        self._rest = b""
        self._last = 0
        self._changed = asyncio.Event()

    def feed(self, data: bytes) -> None:
        """Store what the container wrote."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        entries = [entry for line in lines for entry in self._entries(line, b"F")]
        while len(self._rest) >= LONGEST:
            entries.append(self._entry(self._rest[:LONGEST], b"P"))
            self._rest = self._rest[LONGEST:]
        if entries:
            self._file.write(b"".join(entries))
            self._tell()

    def finish(self) -> None:
        """Store what is left of the last line; nothing more will come, and who follows the log gets to its end."""
        if self._rest:
            self._file.write(b"".join(self._entries(self._rest, b"F")))
            self._rest = b""
        self._file.close()
        self.finished = True
        self._tell()

    async def read(self, query: LogQuery) -> AsyncIterator[bytes]:
        """Give what *query* asks for in pieces, and with ``follow`` all that comes until the container ends."""
        if not self.path.exists():
            # What the kubelet sends instead of a log that it has deleted.
            yield b'failed to try resolving symlinks in path "%s": no such file or directory' % bytes(self.path)
            return
        left = query.limit_bytes
        whole = True
        async for entries in self._batches(query):
            text, whole = _rendered(entries, query.timestamps, whole)
            if left is not None:
                text = text[:left]
                left -= len(text)
            if text:
                yield text
            if left == 0:
                return

    async def _batches(self, query: LogQuery) -> AsyncIterator[list[bytes]]:
        since = _second(query.since_time) if query.since_time else b""
        with self.path.open("rb") as file:
            size = self.path.stat().st_size
            entries = [entry for entry in _split(file.read(size)) if entry[:19] >= since]
            if query.tail_lines is not None:
                entries = _tail(entries, query.tail_lines)
            for start in range(0, len(entries), 512):
                yield entries[start : start + 512]
            rest = b""
            while query.follow:
                changed, finished = self._changed, self.finished
                if data := file.read(_CHUNK):
                    whole, end, rest = (rest + data).rpartition(b"\n")
                    yield _split(whole + end)
                elif finished:
                    return
                else:
                    await changed.wait()

    def _entries(self, line: bytes, last: bytes) -> Iterator[bytes]:
        while len(line) > LONGEST:
            yield self._entry(line[:LONGEST], b"P")
            line = line[LONGEST:]
        yield self._entry(line, last)

    def _entry(self, line: bytes, tag: bytes) -> bytes:
        self._last = max(self._last + 1, time.time_ns())
        return b"%s stdout %s %s\n" % (_stamp(self._last), tag, line)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _stamp(nanoseconds: int) -> bytes:
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{rest:09d}Z", time.gmtime(seconds)).encode()


def _second(moment: datetime.datetime) -> bytes:
    """Give a time in UTC without its fraction: the API's times have none."""
    return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S").encode()


def _split(data: bytes) -> list[bytes]:
    return [entry + b"\n" for entry in data.split(b"\n")[:-1]]


def _tail(entries: list[bytes], lines: int) -> list[bytes]:
    """Give the entries of the last so many whole lines."""
    start = len(entries)
    while start > 0 and lines >= 0:
        if _tag(entries[start - 1]) == b"F":
            if lines == 0:
                break
            lines -= 1
        start -= 1
    return entries[start:]


def _tag(entry: bytes) -> bytes:
    return entry.split(b" ", 3)[2]


def _rendered(entries: list[bytes], timestamps: bool, whole: bool) -> tuple[bytes, bool]:
    """Join *entries*; *whole* tells if the one before them ended its line."""
    pieces = []
    for entry in entries:
        stamp, _, tag, line = entry.split(b" ", 3)
        if timestamps and whole:
            pieces += [stamp, b" "]
        whole = tag == b"F"
        pieces.append(line if whole else line[:-1])
    return b"".join(pieces), whole
