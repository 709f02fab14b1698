"""
What an earlier copy of a directory left on a volume, and so what another copy has to send and may remove.

The list lies beside the files, as JSON. Only what it names is ever removed: the
rest was written by jobs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

VERSION = 1


@dataclass(frozen=True)
class Entry:
    """One file, link or directory as it was sent."""

    size: int
    mode: int
    sha256: str
    """Of a file's content; of a link's text and what it leads to; empty for a directory."""
    stamp: str = field(default="", compare=False)
    """What the local file system says of the file; it is read again once that is another, or where this is empty."""

    @property
    def is_directory(self) -> bool:
        """Tell whether it is a directory, which matters for how it is removed."""
        return not self.sha256


Entries = Mapping[str, Entry]
"""Entries by their path below the destination."""


@dataclass(frozen=True)
class Changes:
    """What to do about the difference between two lists."""

    send: tuple[str, ...]
    remove: tuple[str, ...]
    """What was sent once and is not there any more, or is of another kind; what lies deepest first."""

    def __bool__(self) -> bool:
        return bool(self.send or self.remove)


def changes(before: Entries, now: Entries, *, stale: Collection[str] = (), trusted: bool = True) -> Changes:
    """
    Compare what was sent with what there is.

    Args:
        stale: what does not lie there any more as *before* says; below a directory of them, nothing does.
        trusted: whether the rest does; if not, all is sent again.
    """
    known = before if trusted else {}
    send = [path for path, entry in now.items() if known.get(path) != entry or _is_within(path, stale)]
    remove = [path for path, entry in before.items() if _is_in_the_way(entry, now.get(path))]
    return Changes(tuple(sorted(send)), tuple(sorted(remove, key=lambda path: (-path.count("/"), path))))


def _is_within(path: str, stale: Collection[str]) -> bool:
    while stale and path:
        if path in stale:
            return True
        path = path.rpartition("/")[0]
    return False


def _is_in_the_way(before: Entry, now: Entry | None) -> bool:
    return now is None or now.is_directory != before.is_directory


def text(entries: Entries) -> str:
    """Give the list as it is kept."""
    rows = [[path, entry.size, entry.mode, entry.sha256, entry.stamp] for path, entry in sorted(entries.items())]
    return json.dumps({"version": VERSION, "files": rows}, separators=(",", ":")) + "\n"


def entries(content: str | bytes) -> dict[str, Entry] | None:
    """Read a list; None if it is none, or names a path that leads out of its directory."""
    try:
        document: Any = json.loads(content)
        if document["version"] != VERSION:
            return None
        found = {
            str(path): Entry(int(size), int(mode), str(sha), str(stamp))
            for path, size, mode, sha, stamp in document["files"]
        }
    except (ValueError, TypeError, KeyError):
        return None
    return None if any({"", ".", ".."}.intersection(path.split("/")) for path in found) else found
