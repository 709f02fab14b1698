"""
Faults that a test asks LocalKube for: refusals, delays, cut streams, pods that fail.

A fault is a value; :class:`Faults` holds those that are in force and counts how often each has struck.
The kubelet asks :meth:`Faults.for_pod` wherever a pod could fail.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from nemo_run.testing._refusals import By
from nemo_run.testing._selectors import label_test

Json = dict[str, Any]

_REASONS = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden"),
    404: ("NotFound", "the server could not find the requested resource"),
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version and try again"),
    410: ("Expired", "too old resource version"),
    422: ("Invalid", "the object is invalid"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "an error on the server has prevented the request from succeeding"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the server was unable to return a response in the time allotted"),
}


@dataclass(frozen=True)
class Respond:
    """Answer requests with an error instead of what they asked for."""

    status: int
    on: str = "* *"
    """Which requests: a method and a path pattern, ``"POST */trainjobs"``; with a ``?`` in it, of path and query."""
    times: int | None = None
    """How many requests at most; None: all."""
    skip: int = 0
    """How many such requests pass before."""
    retry_after: float | None = None
    """Seconds, sent as ``Retry-After``."""
    body: Any = None
    """Sent as it is (a str as text, else as JSON); None: a Status with *reason* and *message*."""
    reason: str = ""
    message: str = ""
    by: By | None = None
    """Who refuses: the answer (403) is worded as RBAC, a quota, PodSecurity or a webhook words it."""
    carried_out: bool = False
    """Do what was asked all the same: only the answer is lost."""

    def status_body(self) -> Any:
        """Give what is sent."""
        if self.body is not None:
            return self.body
        reason, message = _REASONS.get(self.status, ("", "the server says no"))
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message or message,
            "reason": self.reason or reason,
            "code": self.status,
        }


@dataclass(frozen=True)
class Delay:
    """Let requests wait before they are looked at."""

    seconds: float
    on: str = "* *"
    times: int | None = None
    skip: int = 0


@dataclass(frozen=True)
class Cut:
    """
    Break a connection off: a stream after so many bytes, any other request before it is answered.

    *what* is ``"exec"``, ``"watch"``, ``"log"``, or a method and a path pattern as in :class:`Respond`.
    """

    what: str
    after_bytes: int = 0
    times: int | None = 1
    skip: int = 0
    silent: bool = False
    """Keep the connection open but let nothing pass any more."""
    carried_out: bool = False
    """For requests that are no streams: do what was asked before breaking off."""


@dataclass(frozen=True)
class Pod:
    """
    Let pods fail as nodes and registries make them fail.

    *match* is a pattern of the pod's name, or a label selector if it holds a ``=``.
    """

    match: str
    kind: Literal["ImagePullBackOff", "OOMKilled", "Unschedulable", "FailedMount", "never-ready", "Evicted"]
    after: float = 0
    """Seconds after the start; only OOMKilled and Evicted wait."""
    times: int | None = None
    """How often at most, over all pods; None: whenever there is a chance."""

    def concerns(self, pod: Json) -> bool:
        """Tell whether *pod* is one of them."""
        if "=" in self.match:
            return label_test(self.match)(pod)
        return fnmatchcase(pod["metadata"]["name"], self.match)


@dataclass(frozen=True)
class Down:
    """Let Trainer's controller be away: TrainJobs stay as they are, and its webhook answers no create."""

    times: None = None


Fault = Respond | Delay | Cut | Pod | Down


@dataclass(eq=False)
class _Active:
    fault: Fault
    struck: int = 0
    passed: int = 0

    def left(self) -> bool:
        return self.fault.times is None or self.struck < self.fault.times

    def strikes(self) -> bool:
        """Count a chance, and tell whether it is taken."""
        if not self.left():
            return False
        if self.passed < getattr(self.fault, "skip", 0):
            self.passed += 1
            return False
        self.struck += 1
        return True


@dataclass
class Faults:
    """The faults in force; the last one set is asked first."""

    _active: list[_Active] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def active(self, *faults: Fault) -> Iterator[None]:
        """Have *faults* in force inside the ``with`` block."""
        entries = [_Active(fault) for fault in faults]
        with self._lock:
            self._active[:0] = entries
        try:
            yield
        finally:
            with self._lock:
                self._active = [entry for entry in self._active if entry not in entries]

    def for_request(self, method: str, path: str, query: str = "") -> Respond | Cut | None:
        """Give the refusal or cut that this request meets, and count it."""
        for entry in self._ready(Respond, Cut):
            on = entry.fault.on if isinstance(entry.fault, Respond) else getattr(entry.fault, "what", "")
            if " " in on and _on(on, method, path, query) and self._strike(entry):
                return entry.fault if isinstance(entry.fault, Respond | Cut) else None
        return None

    def delay(self, method: str, path: str, query: str = "") -> float:
        """Give the seconds that this request waits."""
        return sum(
            entry.fault.seconds
            for entry in self._ready(Delay)
            if isinstance(entry.fault, Delay) and _on(entry.fault.on, method, path, query) and self._strike(entry)
        )

    def for_stream(self, what: str) -> Meter:
        """Give the meter through which the bytes of a new stream go."""
        for entry in self._ready(Cut):
            if isinstance(entry.fault, Cut) and entry.fault.what == what and self._strike(entry):
                return Meter(entry.fault.after_bytes, silent=entry.fault.silent)
        return Meter(None)

    def for_pod(self, pod: Json, kind: str | None = None) -> Pod | None:
        """Give the fault that *pod* meets next, of this *kind* if one is named, and count it."""
        for entry in self._ready(Pod):
            fault = entry.fault
            wanted = isinstance(fault, Pod) and kind in (None, fault.kind) and fault.concerns(pod)
            if wanted and self._strike(entry):
                return fault if isinstance(fault, Pod) else None
        return None

    def down(self) -> bool:
        """Tell whether Trainer's controller is away."""
        return bool(self._ready(Down))

    def _ready(self, *kinds: type) -> list[_Active]:
        with self._lock:
            return [entry for entry in self._active if isinstance(entry.fault, kinds) and entry.left()]

    def _strike(self, entry: _Active) -> bool:
        with self._lock:
            return entry.strikes()


class StreamCut(Exception):
    """The stream has reached the byte where a fault breaks it off."""


class Meter:
    """Counts a stream's bytes, both ways together, and breaks off where a fault says so."""

    def __init__(self, limit: int | None, *, silent: bool = False) -> None:
        self._left = limit
        self._silent = silent

    def take(self, data: bytes) -> bytes:
        """Give as much of *data* as still passes; after that, :meth:`check`."""
        if self._left is None:
            return data
        part = data[: self._left]
        self._left -= len(part)
        return part

    async def check(self) -> None:
        """
        Return if more may pass.

        Raises:
            StreamCut: nothing may. A silent fault never returns instead.
        """
        if self._left is None or self._left > 0:
            return
        if self._silent:
            await asyncio.Event().wait()
        raise StreamCut


def _on(pattern: str, method: str, path: str, query: str) -> bool:
    wanted, _, where = pattern.partition(" ")
    return wanted in ("*", method) and fnmatchcase(f"{path}?{query}" if "?" in where else path, where)
