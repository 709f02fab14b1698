"""
Ends what a LocalKube that was killed may have left running.

Containers die with it, and mounts live in their namespaces only. What remains can only be a
process that took off its own leash, by running a set-user-ID program for instance.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def sweep(home: Path) -> list[int]:
    """Kill the processes whose root filesystem has something of *home* in it; give their ids."""
    own = _namespace("self")
    killed = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and _namespace(entry) not in (own, "") and _shows(entry, home):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(entry), signal.SIGKILL)
                killed.append(int(entry))
    return killed


def _namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/mnt")
    except OSError:
        return ""


def _shows(pid: str, home: Path) -> bool:
    """Tell if process *pid* has a file or directory of *home* mounted."""
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    except OSError:
        return False
    # The path is relative to its filesystem, which may be mounted above or below /tmp.
    return any(f"/{home.name}/" in line.split(" ")[3] for line in lines)
