"""Waiting on a clock that tests can hold: every wait sleeps between looks and ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from nemo_run.exceptions import WaitTimeout

T = TypeVar("T")


class Clock(Protocol):
    """Tells the time in seconds and sleeps."""

    def now(self) -> float:
        """Give the seconds since some fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Return after *seconds*."""


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Give ``time.monotonic()``."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep for *seconds*; a signal handler that raises ends it."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


def poll_until(
    probe: Callable[[], T],
    done: Callable[[T], bool],
    *,
    what: str,
    timeout: float,
    interval: float = 1.0,
    clock: Clock = SYSTEM_CLOCK,
) -> T:
    """
    Call *probe* until *done* holds of what it gives, and return that.

    Sleeps *interval* seconds between two looks and takes a last look at the deadline.

    Raises:
        WaitTimeout: *done* did not hold within *timeout* seconds; it tells what was last seen.
    """
    deadline = clock.now() + timeout
    while not done(value := probe()):
        if (left := deadline - clock.now()) <= 0:
            raise WaitTimeout(what, timeout, value)
        clock.sleep(min(interval, left))
    return value
