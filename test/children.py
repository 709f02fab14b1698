"""Processes that a test starts, and waits for what they do; none outlives the test."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

PATIENCE = 120
"""Seconds until what is waited for counts as never to come: a loaded machine is slow."""

Start = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def children() -> Iterator[Start]:
    """Give what starts processes; they are ended and waited for after the block, also where that fails."""
    with ExitStack() as stack:

        def start(*argv: str, **options: Any) -> subprocess.Popen[str]:
            child = stack.enter_context(subprocess.Popen(argv, **{"text": True, **options}))
            stack.callback(child.kill)
            return child

        yield start


def python(code: str, *args: str) -> list[str]:
    """Give the command that runs *code*, which may be indented, and whose output comes line by line."""
    return [sys.executable, "-u", "-c", textwrap.dedent(code), *args]


def wait_for(what: Callable[[], Any], child: subprocess.Popen[str] | None = None) -> None:
    """Wait until *what* gives something true, for as long as *child*, if there is one, lives."""
    deadline = time.monotonic() + PATIENCE
    while not what():
        if child is not None and child.poll() is not None:
            raise AssertionError(f"it did not happen; the process has ended: {child.returncode} {child.communicate()}")
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
