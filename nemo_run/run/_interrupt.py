"""Ctrl-C and SIGTERM: end in good order the first time, at once the second."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt, SystemExit):
    """
    The user ended this process, and has been told what became of the jobs.

    It is a KeyboardInterrupt for those who catch that; uncaught it ends the
    process with code 130 and no traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self.code = 130


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """
    Let SIGTERM do what Ctrl-C does, once; the next one kills.

    A handler that the program installed itself is left alone.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not ours:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise KeyboardInterrupt
