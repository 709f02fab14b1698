"""
Ctrl-C and SIGTERM: end in good order the first time, at once the second.

Python hands both to the main thread alone, wherever it is. Threads that launch
are told by :class:`Launching`, so that a launch is cut off in the same way in any
thread; what must not be cut in two is done under :func:`held_back`.
"""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

from nemo_run.core._signals import Terminated
from nemo_run.core._signals import sigterm_interrupts as sigterm_interrupts


class Interrupted(KeyboardInterrupt, SystemExit):
    """
    The user ended this process, and has been told what became of the jobs.

    It is a KeyboardInterrupt for those who catch that; uncaught it ends the
    process with no traceback and code 130, or 143 after SIGTERM.
    """

    def __init__(self, cause: KeyboardInterrupt | None = None) -> None:
        super().__init__()
        self.code = 128 + (signal.SIGTERM if isinstance(cause, Terminated) else signal.SIGINT)


_here = threading.local()
"""Of a thread that launches: the lock under which it is not interrupted."""


@contextmanager
def held_back() -> Iterator[None]:
    """Let the block, which is short, come to its end before a first signal interrupts this thread; a second one may."""
    if threading.current_thread() is not threading.main_thread():
        with getattr(_here, "lock", None) or nullcontext():
            yield
        return
    noted: list[tuple[Any, int, FrameType | None]] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}

    def note(number: int, frame: FrameType | None) -> None:
        handler = ours[signal.Signals(number)]
        if noted:
            handler(number, frame)
        noted.append((handler, number, frame))

    for number in ours:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, ours[number])
    for handler, came, frame in noted:
        handler(came, frame)


class Launching:
    """The threads that are launching something, which Ctrl-C in the main thread is to reach."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}
        self._over = False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """
        Let :meth:`interrupt` raise KeyboardInterrupt in the block that this thread runs, and nowhere after it.

        Raises:
            KeyboardInterrupt: it has come already.
        """
        me = threading.get_ident()
        _here.lock = threading.Lock()
        with self._guard:
            if self._over:
                raise KeyboardInterrupt
            self._locks[me] = _here.lock
        try:
            yield
        finally:
            with self._guard:
                self._locks.pop(me, None)
            _arrive()

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in each of the threads, once, and in those that begin later."""
        with self._guard:
            self._over = True
            for thread, lock in self._locks.items():
                with lock:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt)
                    )
            self._locks.clear()


def _arrive() -> None:
    """Be a call: Python raises what another thread has set for this one at the next."""
