"""What there is of a kind of object and each change to it, for as long as somebody wants to know."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from nemo_run._kube.streams import LogStream
from nemo_run._kube.waiting import Clock

Json = dict[str, Any]

SPAN = 60.0
"""Seconds of one watch request: a connection that died silently costs no more than this."""
PAUSE = 1.0
"""Seconds between two watch requests of which the first gave nothing."""


class Event(NamedTuple):
    """A change: ADDED, MODIFIED or DELETED, and the object after it."""

    type: str
    object: Json


class Watch:
    """
    Gives what is there as ADDED, then each change.

    Ended and broken requests are resumed; where the server has forgotten the
    place, it lists again and gives what differs. So does one that is iterated
    again after an error.
    """

    def __init__(
        self,
        fetch: Callable[[], tuple[list[Json], str]],
        follow: Callable[[str, float, Callable[[LogStream], None]], Iterator[Event]],
        *,
        timeout: float,
        clock: Clock,
    ) -> None:
        """
        Take how to list, and how to watch from a version on for some seconds.

        *follow* tells of the stream that it has opened, and gives a last ERROR
        event where the server has forgotten the version.
        """
        self.known: dict[str, Json] = {}
        """The objects that are there, by uid."""
        self.listed = False
        """Whether ``known`` has been complete once."""
        self._fetch = fetch
        self._follow = follow
        self._timeout = timeout
        self._clock = clock
        self._closed = threading.Event()
        self._stream: LogStream | None = None

    def __iter__(self) -> Iterator[Event]:
        """Give the events until the time is over, or another thread closes the watch."""
        deadline = self._clock.now() + self._timeout
        version = ""
        while not self._closed.is_set():
            if not version:
                objects, version = self._fetch()
                self.listed = True
                yield from _differences(self.known, objects)
            if (left := deadline - self._clock.now()) <= 0:
                return
            quiet = True
            for event in self._follow(version, min(left, SPAN), self._opened):
                quiet = event.type == "ERROR"
                version = "" if event.type == "ERROR" else event.object["metadata"]["resourceVersion"]
                if event.type in ("ADDED", "MODIFIED", "DELETED"):
                    _note(self.known, event)
                    yield event
            if quiet and not self._closed.is_set():
                self._clock.sleep(min(PAUSE, left))

    def close(self) -> None:
        """End the watch, also under a thread that waits for its next event."""
        self._closed.set()
        if (stream := self._stream) is not None:
            stream.close()

    def _opened(self, stream: LogStream) -> None:
        self._stream = stream
        if self._closed.is_set():
            with contextlib.suppress(OSError):
                stream.close()


def _note(known: dict[str, Json], event: Event) -> None:
    uid = event.object["metadata"].get("uid", "")
    if event.type == "DELETED":
        known.pop(uid, None)
    else:
        known[uid] = event.object


def _differences(known: dict[str, Json], objects: list[Json]) -> Iterator[Event]:
    """Bring *known* up to *objects*, giving each difference as an event."""
    now = {item["metadata"].get("uid", ""): item for item in objects}
    for uid in [uid for uid in known if uid not in now]:
        yield Event("DELETED", known.pop(uid))
    for uid, item in now.items():
        before = known.get(uid)
        known[uid] = item
        if before is None:
            yield Event("ADDED", item)
        elif before["metadata"].get("resourceVersion") != item["metadata"].get("resourceVersion"):
            yield Event("MODIFIED", item)
