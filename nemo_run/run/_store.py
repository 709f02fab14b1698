"""
Files under ``$NEMORUN_HOME``: written whole or not at all, one writer at a time.

A reader never sees half a file: a new text is written beside the old one and
renamed over it. Writers of a shared file take turns through a lock beside it. A
file that cannot be read is reported and kept under another name, never written over.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

logger = logging.getLogger("nemo_run")

PRIVATE = 0o600
"""For files that may hold values of environment variables."""


def write_private(path: Path, text: str, *, durable: bool = False) -> None:
    """Write *text* to *path* so that only its owner may read it."""
    write_text(path, text, mode=PRIVATE, durable=durable)


def write_text(path: Path, text: str, *, mode: int = 0o666, durable: bool = False) -> None:
    """
    Write *text* to *path*, whole or not at all; the umask takes from *mode*.

    What is *durable* outlives not only this process but also a machine that loses power.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """
    Hold the lock that belongs to *path*, waiting for whoever has it.

    The lock is the system's: it ends with its holder, however that ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.parent / f"{path.name}.lock", os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ModuleNotFoundError:  # not a POSIX system: one process at a time is all that is promised there
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)


Make = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Gives new records for old ones."""


@dataclass(eq=False)
class _Change:
    """Waits to be written; whoever has the turn writes for all that wait."""

    make: Make
    written: bool = False
    error: Exception | None = None


class _Shared:
    """What the threads of this process share of one file of records."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.waiting: deque[_Change] = deque()
        self.read: tuple[Any, dict[str, Any]] = (None, {})

    def take(self) -> Iterator[_Change]:
        with suppress(IndexError):
            while True:
                yield self.waiting.popleft()


_files: dict[Path, _Shared] = defaultdict(_Shared)


class Records:
    """One JSON file of records by key, shared by every process that uses this home."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._shared = _files[path]

    def read(self) -> Mapping[str, Any]:
        """Give all records; an unreadable file is reported and counts as empty."""
        try:
            return self._read()
        except FileNotFoundError:
            return {}
        except ValueError as error:
            logger.error("%s cannot be read, its jobs are unknown here: %s", self.path, error)
            return {}

    def get(self, key: str) -> Any | None:
        """Give the record of *key*, None if there is none."""
        return self.read().get(key)

    def put(self, key: str, record: Any) -> None:
        """Keep *record* under *key*."""
        self.change(lambda records: {**records, key: record})

    def merge(self, key: str, facts: Mapping[str, Any]) -> None:
        """Add *facts* to the record of *key*, which keeps all else it holds."""
        self.change(lambda records: {**records, key: {**(records.get(key) or {}), **facts}})

    def change(self, make: Make) -> None:
        """Replace all records by what *make* gives for them, while no other process writes."""
        mine = _Change(make)
        self._shared.waiting.append(mine)
        with self._shared.turn:
            if not mine.written:
                self._write_all()
        if mine.error:
            raise mine.error

    def _write_all(self) -> None:
        """Write for every thread that waits, at once: each alone would write the whole file again."""
        batch = list(self._shared.take())
        try:
            with locked(self.path):
                self._sweep()
                records = self._present()
                for change in batch:
                    records = dict(change.make(records))
                write_private(self.path, json.dumps(records, indent=1), durable=True)
        except Exception as error:
            for change in batch:
                change.error = error
        except BaseException:  # this thread's alone: the others write theirs themselves
            self._shared.waiting.extend(batch)
            raise
        for change in batch:
            change.written = True

    def _present(self) -> dict[str, Any]:
        try:
            return dict(self._read())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            self._set_aside(error)
            return {}

    def _read(self) -> dict[str, Any]:
        """Parse the file if it is another than the last time: each new text is a new file."""
        status = os.stat(self.path)
        identity = status.st_ino, status.st_mtime_ns, status.st_size
        known, records = self._shared.read
        if known != identity:
            records = _parse(self.path)
            self._shared.read = identity, records
        return records

    def _set_aside(self, error: ValueError) -> None:
        kept = self.path.with_name(f"{self.path.name}.corrupt-{time.time_ns()}")
        os.rename(self.path, kept)
        logger.error("%s cannot be read (%s): kept as %s, starting a new one", self.path, error, kept.name)

    def _sweep(self) -> None:
        """Remove what a writer left that was killed while it wrote."""
        for leftover in self.path.parent.glob(f".{self.path.name}.*.tmp"):
            with suppress(FileNotFoundError):
                leftover.unlink()


def _parse(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    records = json.loads(text) if text.strip() else {}
    if not isinstance(records, dict):
        raise ValueError(f"a JSON object was expected, not a {type(records).__name__}")
    return records
