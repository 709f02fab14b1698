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
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger("nemo_run")

PRIVATE = 0o600
"""For files that may hold values of environment variables."""


def write_private(path: Path, text: str) -> None:
    """Write *text* to *path* so that only its owner may read it."""
    write_text(path, text, mode=PRIVATE)


def write_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write *text* to *path*, whole or not at all; the umask takes from *mode*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
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


class Records:
    """One JSON file of records by key, shared by every process that uses this home."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """Give all records; an unreadable file is reported and counts as empty."""
        try:
            return _parse(self.path)
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

    def change(self, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        """Replace all records by what *change* makes of them, while no other process writes."""
        with locked(self.path):
            self._sweep()
            try:
                records = _parse(self.path)
            except FileNotFoundError:
                records = {}
            except ValueError as error:
                self._set_aside(error)
                records = {}
            write_private(self.path, json.dumps(change(records), indent=1))

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
