"""The directories that LocalKubes live in, and what remains of those that were killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

OWNER = "owner.json"


def parent() -> Path:
    """Give the directory under which this user's homes lie."""
    return Path(tempfile.gettempdir()) / f"nemo-run-localkube-{os.getuid()}"


def make_home() -> Path:
    """
    Make a new home that is marked as this process's.

    Raises:
        PermissionError: the parent directory belongs to someone else.
    """
    above = parent()
    above.mkdir(mode=0o700, exist_ok=True)
    if above.is_symlink() or above.stat().st_uid != os.getuid():
        raise PermissionError(f"{above} is not ours; set TMPDIR to a directory of your own")
    home = Path(tempfile.mkdtemp(prefix="kube-", dir=above))
    # Whole from its first moment: another process may be sweeping.
    unfinished = home / f"{OWNER}.new"
    unfinished.write_text(json.dumps({"pid": os.getpid(), "started": started(os.getpid())}))
    unfinished.replace(home / OWNER)
    return home


def sweep(clean: Callable[[Path], object]) -> list[Path]:
    """
    Remove the homes whose process is gone, after *clean* has ended what still runs in them.

    A home in which something is still mounted is left alone: its files may be someone's data.
    """
    swept = []
    for home in sorted(parent().glob("kube-*")):
        if home.is_dir() and not home.is_symlink() and not _alive(home):
            with contextlib.suppress(OSError):
                clean(home)
                remove_home(home)
                swept.append(home)
    return swept


def remove_home(home: Path) -> None:
    """
    Remove a home with everything in it.

    Raises:
        OSError: something is still mounted below it.
    """
    if mounted := _mounts_below(home):
        raise OSError(f"still mounted: {', '.join(mounted)}")
    shutil.rmtree(home, ignore_errors=True)
    with contextlib.suppress(OSError):
        home.parent.rmdir()


def started(pid: int) -> str:
    """Give what tells this process from a later one of the same number; empty where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def _alive(home: Path) -> bool:
    """Tell whether the process that made *home* still runs; one without a mark may be just being made."""
    try:
        owner = json.loads((home / OWNER).read_text())
        pid, mark = int(owner["pid"]), owner["started"]
    except FileNotFoundError:
        return home.exists() and home.stat().st_mtime > _minute_ago()
    except (OSError, ValueError, KeyError, TypeError):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return bool(started(pid) == mark)


def _minute_ago() -> float:
    return time.time() - 60


def _mounts_below(home: Path) -> list[str]:
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    points = (line.split()[4] for line in lines)
    return [point for point in points if point == str(home) or point.startswith(f"{home}/")]
