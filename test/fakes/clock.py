"""A clock that tests hold: ``from fakes.clock import FakeClock``."""

from __future__ import annotations

import threading


class FakeClock:
    """Stands still until someone sleeps; records every sleep. Threads may share it."""

    def __init__(self, time: float = 0.0) -> None:
        self.time = time
        self.sleeps: list[float] = []
        self._lock = threading.Lock()

    def now(self) -> float:
        """Give the time that has been slept so far."""
        with self._lock:
            return self.time

    def sleep(self, seconds: float) -> None:
        """Let *seconds* pass at once."""
        if seconds < 0:
            raise ValueError(f"sleep({seconds})")
        with self._lock:
            self.sleeps.append(seconds)
            self.time += seconds
