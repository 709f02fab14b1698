"""The file that has every line of every rank."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from nemo_run._kube.demux import LogLine

ALL_RANKS = "log-allranks_0.out"
_CHUNK = 1 << 16


class RankLog:
    """
    Writes each line of each pod once to ``log-allranks_0.out`` in a job's directory.

    Following a job anew begins with the first line that its pods still have.
    Lines that the file has already, from when it was followed before, are not
    written a second time.
    """

    def __init__(self, job_dir: Path, container: str) -> None:
        self._path = job_dir / ALL_RANKS
        self._container = container
        self._before = 0
        self._replays: dict[str, Iterator[bytes]] = {}
        self._gaps: dict[str, list[bytes]] = {}

    def __enter__(self) -> RankLog:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._path, "ab+", buffering=0)
        self._before = _drop_half_a_line(self._file)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pod, gaps in self._gaps.items():
            self._file.write(b"".join(gap for gap in gaps if gap not in self._replays[pod]))
        self._file.close()

    def pods(self) -> set[str]:
        """Name the pods of which the file had lines before."""
        return {line[5:].split(b"/", 1)[0].decode() for line in _lines(self._path, b"[pod/", self._before)}

    def write(self, line: LogLine) -> None:
        """Take the next line of a pod."""
        prefix = f"[pod/{line.pod}/{self._container}] " if line.pod else ""
        text = f"{prefix}{line.text}\n".encode("utf-8", "replace")
        if not self._before:
            self._file.write(text)
            return
        if line.pod not in self._replays:
            self._replays[line.pod] = _lines(self._path, prefix.encode(), self._before)
        if line.gap:
            # The file may have what cannot be had any more: the next line tells.
            self._gaps.setdefault(line.pod, []).append(text)
            return
        gaps = self._gaps.pop(line.pod, ())
        # Where its log was rotated meanwhile, a pod begins later than the file does.
        if any(old == text for old in self._replays.get(line.pod, ())):
            return
        self._file.write(b"".join((*gaps, text)))


def _lines(path: Path, prefix: bytes, end: int) -> Iterator[bytes]:
    """Give the lines before *end* that begin with *prefix*."""
    with open(path, "rb") as file:
        for line in file:
            end -= len(line)
            if end < 0:
                return
            if line.startswith(prefix):
                yield line


def _drop_half_a_line(file: BinaryIO) -> int:
    """Cut off what a writer left that was killed in the middle of a line, and give the size."""
    size = end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(end - _CHUNK, 0)
        file.seek(start)
        if (found := file.read(end - start).rfind(b"\n")) >= 0:
            end = start + found + 1
            break
        end = start
    if end != size:
        file.truncate(end)
    return end
