"""What happens to stored objects, in order: the history that watches read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nemo_run._kube.resources import Resource
from nemo_run.testing._errors import ApiError

Json = dict[str, Any]
Test = Callable[[Json], bool]

HISTORY = 5000
"""So many changes are kept; a watch that starts before the oldest of them gets 410."""


@dataclass(frozen=True)
class Event:
    """One change: ADDED, MODIFIED or DELETED, with the object after it (DELETED: as it last was)."""

    type: str
    object: Json
    kind: Resource
    version: int
    old: Json | None = None


class Subscription:
    """
    Events as an async iterator, from the moment it was made until :meth:`close`.

    An object that a change takes out of what *wanted* accepts is told as DELETED, one that it brings in as ADDED.
    """

    def __init__(self, wanted: Callable[[Event], Event | None], close: Callable[[Subscription], None]) -> None:
        self._wanted = wanted
        self._close = close
        self._queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def feed(self, event: Event) -> None:
        """Pass *event* on if it is wanted."""
        if (seen := self._wanted(event)) is not None:
            self._queue.put_nowait(seen)

    def close(self) -> None:
        """End the iteration after what has been fed so far."""
        self._close(self)
        self._queue.put_nowait(None)

    def __aiter__(self) -> Subscription:
        return self

    def next_waiting(self) -> Event | None:
        """Give the next event that has been fed already, None if there is none."""
        return None if self._queue.empty() else self._queue.get_nowait()

    async def __anext__(self) -> Event:
        event = await self._queue.get()
        if event is None:
            raise StopAsyncIteration
        return event


class Changes:
    """The numbered history of one store, and those who listen to it."""

    def __init__(self) -> None:
        self.version = 0
        self._horizon = 0
        self._history: deque[Event] = deque(maxlen=HISTORY)
        self._listeners: list[Subscription] = []

    def next_version(self) -> int:
        """Give the number of the change that is being made."""
        self.version += 1
        return self.version

    def record(self, event: Event) -> None:
        """Keep *event* and tell the listeners."""
        if len(self._history) == HISTORY:
            self._horizon = self._history[0].version
        self._history.append(event)
        for listener in list(self._listeners):
            listener.feed(event)

    def compact(self) -> None:
        """Forget the history: every watch from an older version gets 410 Expired."""
        self._horizon = self.version
        self._history.clear()

    def check(self, version: int, message: str) -> None:
        """
        Return if what changed after *version* is still known.

        Raises:
            ApiError: it is not: 410 with *message*.
        """
        if version < self._horizon:
            raise ApiError(410, "Expired", message)

    def subscribe(
        self, wanted: Callable[[Event], Event | None], *, since: int | None = None, initial: list[Event] | None = None
    ) -> Subscription:
        """
        Listen from now on, after *initial*, or after every change later than *since*.

        Raises:
            ApiError: the changes after *since* are no longer known (410).
        """
        if since is not None:
            self.check(since, f"too old resource version: {since} ({self._horizon})")
        subscription = Subscription(wanted, self._forget)
        past = initial if since is None else [event for event in self._history if event.version > since]
        for event in past or []:
            subscription.feed(event)
        self._listeners.append(subscription)
        return subscription

    def close(self) -> None:
        """End every subscription."""
        for listener in list(self._listeners):
            listener.close()

    def _forget(self, subscription: Subscription) -> None:
        if subscription in self._listeners:
            self._listeners.remove(subscription)


def selecting(kind: Resource | None, namespace: str, test: Test) -> Callable[[Event], Event | None]:
    """Give the filter of a watch on *kind* (None: all) in *namespace* ("": all) for objects that pass *test*."""

    def wanted(event: Event) -> Event | None:
        if kind is not None and event.kind != kind:
            return None
        if namespace and event.object["metadata"].get("namespace") != namespace:
            return None
        before = event.old is not None and test(event.old)
        after = event.type != "DELETED" and test(event.object)
        if event.type == "DELETED":
            return event if before or (event.old is None and test(event.object)) else None
        if not before and not after:
            return None
        shown = "MODIFIED" if before and after else "ADDED" if after else "DELETED"
        return event if shown == event.type else Event(shown, event.object, event.kind, event.version, event.old)

    return wanted
