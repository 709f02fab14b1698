"""Which process made something in the cluster, and whether it is over: by that alone a leftover can be told at once."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def this_process() -> str:
    """Name this process among all of all machines; empty where the system does not tell (no ``/proc``)."""
    try:
        return f"{_place()}/{os.getpid()}/{_started(os.getpid())}"
    except OSError:
        return ""


def is_over(process: str) -> bool:
    """Tell whether a process of this machine and container has ended; of another one nobody here can know."""
    place, _, rest = process.partition("/")
    pid, _, started = rest.partition("/")
    try:
        if not pid.isdigit() or place != _place():
            return False
    except OSError:
        return False
    try:
        return _started(int(pid)) != started
    except OSError:
        return True


def _place() -> str:
    """Name this boot of this machine and this namespace of process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return hashlib.sha256(f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}".encode()).hexdigest()[:16]


def _started(pid: int) -> str:
    """Tell when a process began, so that a later one of its number is not taken for it; empty for a zombie."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
