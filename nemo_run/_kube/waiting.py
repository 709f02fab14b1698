"""Waiting on a clock that tests can hold: every wait sleeps between looks and ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from nemo_run.exceptions import WaitTimeout

T = TypeVar("T")

ON_ITS_WAY = 6.0
"""Seconds in which a request whose sender has gone may still arrive."""


class Clock(Protocol):
    """Tells the time in seconds and sleeps."""

    def now(self) -> float:
        """Give the seconds since some fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Return after *seconds*."""


class SystemClock:
    """The machine's monotonic clock."""

    pace = 1.0
    """How many seconds pass in one; tests that wait for real processes make it more."""

    def now(self) -> float:
        """Give ``time.monotonic()``."""
        return time.monotonic() * self.pace

    def sleep(self, seconds: float) -> None:
        """Sleep for *seconds*; a signal handler that raises ends it."""
        time.sleep(seconds / self.pace)


SYSTEM_CLOCK = SystemClock()


@dataclass
class Silence:
    """Seconds after which a connection on which nothing comes counts as dead."""

    connect: float = 10.0
    answer: float = 60.0
    """An admission webhook may take 30 of them."""
    handshake: float = 30.0
    """Of a websocket."""
    log: float = 90.0
    """Of a log that is followed."""
    command: float = 120.0
    """Of a command in a container; the server is asked for a sign of life three times as often."""


SILENCE = Silence()
"""What holds in this process; tests that let a server fall silent make it less."""


def poll_until(
    probe: Callable[[], T],
    done: Callable[[T], bool],
    *,
    what: str,
    timeout: float,
    interval: float = 1.0,
    first: float | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> T:
    """
    Call *probe* until *done* holds of what it gives, and return that.

    Sleeps *interval* seconds between two looks and takes a last look at the deadline. Where it may be over soon,
    *first* says how long the first pause is; each is twice as long as the one before, up to *interval*.

    Raises:
        WaitTimeout: *done* did not hold within *timeout* seconds; it tells what was last seen.
    """
    deadline = clock.now() + timeout
    pause = interval if first is None else min(first, interval)
    while not done(value := probe()):
        if (left := deadline - clock.now()) <= 0:
            raise WaitTimeout(what, timeout, value)
        clock.sleep(min(pause, left))
        pause = min(2 * pause, interval)
    return value
