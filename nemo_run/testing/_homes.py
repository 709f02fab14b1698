"""The directories that LocalKubes live in, and what remains of those that were killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

OWNER = "owner.json"

_ESCAPED = re.compile(r"\\([0-7]{3})")
"""How /proc writes blanks in paths."""


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
    if not _is_ours(above):
        raise PermissionError(f"{above} is not ours; set TMPDIR to a directory of your own")
    home = Path(tempfile.mkdtemp(prefix="kube-", dir=above))
    # Whole from its first moment: another process may be sweeping.
    unfinished = home / f"{OWNER}.new"
    owner = {"pid": os.getpid(), "started": started(os.getpid()), "namespace": _pid_namespace()}
    unfinished.write_text(json.dumps(owner))
    unfinished.replace(home / OWNER)
    return home


def sweep(clean: Callable[[Path], object]) -> list[Path]:
    """
    Remove the homes whose process is gone, after *clean* has ended what still runs in them.

    A home in which something is still mounted is left alone: its files may be someone's data. So is whatever
    bears no mark of ours, and everything in a parent directory that is a link or someone else's.
    """
    swept: list[Path] = []
    if not _is_ours(parent()):
        return swept
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
        OSError: something is still mounted below it, or it is a link.
    """
    if home.is_symlink():
        raise OSError(f"{home} is a link by now")
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
    """Tell whether the process that made *home* still runs, as far as this one can know; without a mark it cannot."""
    try:
        owner = json.loads((home / OWNER).read_text())
        pid, mark, namespace = int(owner["pid"]), owner["started"], owner["namespace"]
    except FileNotFoundError:
        return not _never_marked(home)
    except (OSError, ValueError, KeyError, TypeError):
        return True
    if namespace != _pid_namespace():  # in a container that shares this directory, numbers are other processes'
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return bool(started(pid) == mark)


def _never_marked(home: Path) -> bool:
    """Tell whether the process that made *home* ended before it could mark it; it may be just being made."""
    try:
        return home.stat().st_mtime < time.time() - 60 and {*os.listdir(home)} <= {f"{OWNER}.new"}
    except OSError:
        return False


def _is_ours(directory: Path) -> bool:
    try:
        facts = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _mounts_below(home: Path) -> list[str]:
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    points = (_ESCAPED.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4]) for line in lines)
    top = os.path.realpath(home)
    return [point for point in points if point == top or point.startswith(f"{top}/")]
