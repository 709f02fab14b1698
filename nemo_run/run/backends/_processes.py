"""What the system says of processes that may be somebody else's children."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def started(pid: int) -> str:
    """Tell when *pid* began, so that a later process of the same number is not taken for it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() else _answers(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def group_lives(pid: int) -> bool:
    """Tell whether a process group has a member that is more than a zombie."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(group) == pid and state not in "ZX":
                return True
    return not Path("/proc/self").exists()


def _answers(pid: int) -> str:
    """Do without ``/proc``: only tell whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
