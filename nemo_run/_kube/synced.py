"""
What an earlier copy of a directory left on a volume, and so what another copy has to send and may remove.

The list lies beside the files, as JSON. Only what it names is ever removed: the
rest was written by jobs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One file, link or directory as it was sent."""

    size: int
    mode: int
    sha256: str
    """Of a file's content; of a link's text and what it leads to; empty for a directory."""
    mtime_ns: int = field(default=0, compare=False)
    """When the local file was changed: as long as that stays, it need not be read again. 0: it has to be."""

    @property
    def is_directory(self) -> bool:
        """Tell whether it is a directory, which matters for how it is removed."""
        return not self.sha256


Entries = Mapping[PurePosixPath, Entry]


@dataclass(frozen=True)
class Changes:
    """What to do about the difference between two lists."""

    send: tuple[PurePosixPath, ...]
    remove: tuple[PurePosixPath, ...]
    """What was sent once and is not there any more, or is of another kind; what lies deepest first."""

    def __bool__(self) -> bool:
        return bool(self.send or self.remove)


def changes(before: Entries, now: Entries, *, trusted: bool = True) -> Changes:
    """
    Compare what was sent with what there is.

    Args:
        trusted: whether what *before* names lies there as it says; if not, all is sent again.
    """
    send = [path for path, entry in now.items() if not trusted or before.get(path) != entry]
    remove = [path for path, entry in before.items() if _is_in_the_way(entry, now.get(path))]
    return Changes(tuple(sorted(send)), tuple(sorted(remove, key=lambda path: (-len(path.parts), path))))


def _is_in_the_way(before: Entry, now: Entry | None) -> bool:
    return now is None or now.is_directory != before.is_directory


def text(entries: Entries) -> str:
    """Give the list as it is kept."""
    rows = [
        [str(path), entry.size, entry.mode, entry.sha256, entry.mtime_ns] for path, entry in sorted(entries.items())
    ]
    return json.dumps({"version": VERSION, "files": rows}, separators=(",", ":")) + "\n"


def entries(content: str | bytes) -> dict[PurePosixPath, Entry] | None:
    """Read a list; None if it is none, or names a path that leads out of its directory."""
    try:
        document: Any = json.loads(content)
        if document["version"] != VERSION:
            return None
        found = {
            PurePosixPath(path): Entry(int(size), int(mode), str(sha), int(mtime_ns))
            for path, size, mode, sha, mtime_ns in document["files"]
        }
    except (ValueError, TypeError, KeyError):
        return None
    if any(path.is_absolute() or not path.parts or ".." in path.parts for path in found):
        return None
    return found
