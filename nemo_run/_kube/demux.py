"""Log lines of many pods, put right: bytes to text, what is new after a reconnect, whose lines to show; no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import lru_cache
from typing import NamedTuple

GAP = "--- lines may be missing ---"
"""How begins what stands where a log could not be read without a hole."""

LONGEST_LINE = 1 << 20
"""Bytes after which a line is given in pieces: one without an end must not fill the memory."""

_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)(?: |\Z)")
_RANK = re.compile(r"\[default(\d+)\]:")


class LogLine(NamedTuple):
    """One line that a pod's container wrote."""

    pod: str
    node_index: int | None
    text: str
    at: str = ""
    """When the container wrote it (RFC 3339), as the kubelet says."""
    gap: bool = False
    """Whether it stands for lines that may be missing."""

    @property
    def moment(self) -> tuple[int, int] | None:
        """Give ``at`` as seconds since the epoch and nanoseconds."""
        found = _STAMPED.fullmatch(self.at)
        if not found:
            return None
        second, fraction, zone = found.groups("")
        return _epoch(second, zone), int(fraction.ljust(9, "0"))


@lru_cache(maxsize=64)
def _epoch(second: str, zone: str) -> int:
    return int(datetime.fromisoformat(second + zone.replace("Z", "+00:00")).timestamp())


def stamped(text: str) -> tuple[str, str]:
    """Split the kubelet's timestamp off a line; "" where there is none."""
    found = _STAMPED.match(text)
    return (text[: found.end(3)], text[found.end() :]) if found else ("", text)


def gap(pod: str, node: int | None, first: int, last: int) -> LogLine:
    """Give what stands for the lines of a pod's container that cannot be had, by which of its starts wrote them."""
    attempts = f"attempt {first}" if first == last else f"attempts {first} to {last}"
    return LogLine(pod, node, f"{GAP} pod {pod}, {attempts}", gap=True)


class Lines:
    """Bytes in any pieces, out as lines of text; what is no UTF-8 becomes U+FFFD."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Give the lines that *chunk* completes."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
        if len(self._rest) >= self._longest:
            yield from self.finish()

    def finish(self) -> Iterator[str]:
        """Give what is left without a line's end."""
        rest, self._rest = self._rest, b""
        if rest:
            yield rest.decode("utf-8", "replace")


class Resume:
    """
    Which lines of a container's log are new, when it is read again and again.

    The API resumes at whole seconds, so that the last one comes again. Lines up
    to the one seen last, found by its timestamp and how many had the same, are
    dropped. Where a later line comes without it, something lies between: the log
    was rotated, or is another container's by now. Then ``missed`` is set, the
    line is not taken, and the caller looks elsewhere before it lets go.
    """

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._same = 0
        self._highest: tuple[int, int] | None = None
        self._lowest: tuple[int, int] | None = None
        self._floor: tuple[int, int] | None = None
        self._met = 0
        self.seeking = False
        """Whether the line seen last has yet to come again."""
        self.missed = False

    @property
    def since(self) -> str | None:
        """Give the ``sinceTime`` to ask for: the second of the line seen last."""
        if self._last is None:
            return None
        return datetime.fromtimestamp(self._last[0], timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

    def reattach(self) -> None:
        """Take what comes now as read again."""
        self.seeking = self._last is not None
        self.missed = False
        self._met = 0
        self._floor = self._lowest

    def let_go(self) -> None:
        """Seek the line seen last no more: what is later than all that was seen is new."""
        self._last = None
        self.seeking = self.missed = False

    def is_new(self, line: LogLine) -> bool:
        """Take *line* if it is new, or tell that it is not."""
        moment = line.moment
        if moment is None:
            return True
        if self._highest is not None and (self.seeking or self._last is None):
            if self._floor is not None and moment < self._floor:
                # From a container that ended before we came.
                self._lowest = min(moment, self._lowest or moment)
                return True
            if moment == self._last:
                self._met += 1
                self.seeking = self._met < self._same
                return False
            if moment <= self._highest or self.seeking:
                self.missed = moment > self._highest
                return False
        self._same = self._same + 1 if moment == self._last else 1
        self._last = moment
        if self._highest is None or moment > self._highest:
            self._highest = moment
        if self._lowest is None or moment < self._lowest:
            self._lowest = moment
        return True


class RankFilter:
    """
    Choose whose lines to show of a job with *nodes* nodes.

    Where torchrun's prefixes are there: the first rank (set-up, configuration)
    and the last one (Megatron prints losses there). Lines without a prefix: the
    first node's.
    """

    def __init__(self, nodes: int, procs_per_node: int | None = None) -> None:
        self._last_node = max(nodes, 1) - 1
        self._last_local = None if procs_per_node is None else max(procs_per_node, 1) - 1
        self._highest = 0

    def shows(self, line: LogLine) -> bool:
        """Tell whether to show *line*."""
        node = line.node_index or 0
        if line.gap:
            return node in (0, self._last_node)
        found = _RANK.match(line.text)
        if found is None:
            return node == 0
        local = int(found[1])
        return (node, local) == (0, 0) or (node == self._last_node and local == self._local_of_last(local))

    def _local_of_last(self, local: int) -> int:
        """Give the last rank's local number: the highest that was seen, where nobody said how many there are."""
        if self._last_local is not None:
            return self._last_local
        self._highest = max(self._highest, local)
        return self._highest
