"""SIGTERM: what is cleaned up at Ctrl-C is cleaned up then too."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(KeyboardInterrupt):
    """SIGTERM, which does what Ctrl-C does."""


@contextmanager
def sigterm_interrupts() -> Iterator[bool]:
    """
    Let SIGTERM do what Ctrl-C does, once; the next one kills. Gives whether it is so by this block.

    A handler that the program installed itself is left alone.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not ours:
        yield False
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield True
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def cleaned_up_at_sigterm() -> Iterator[None]:
    """Let the block clean up before SIGTERM ends the process, as it does where nobody handles it."""
    with sigterm_interrupts() as ours:
        try:
            yield
        except Terminated:
            if ours:
                os.kill(os.getpid(), signal.SIGTERM)
            raise


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated
