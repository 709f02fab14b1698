"""
Plans a container's root filesystem: what of this machine it sees, and where.

A plan is a list of steps that ``_init`` takes once the container's root is an empty
filesystem in memory. Nothing of the machine is writable through it but what a step
binds for writing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

Step = tuple[Any, ...]

TOOLS = "/run/local-kube/bin"
"""Where a container finds the commands that LocalKube adds to the machine's own."""
_OWN = frozenset({"proc", "sys", "dev", "tmp", "run", "lost+found"})
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_EMPTIED = (PurePosixPath("/tmp"), PurePosixPath("/run"))  # noqa: S108 - a place in the container


@dataclass(frozen=True)
class Mount:
    """A file or directory of this machine and where the container has it."""

    source: Path
    path: str
    read_only: bool = False


@dataclass(frozen=True)
class Image:
    """What stands in for an image: a directory of the machine, and what of it must be reachable."""

    base: Path
    path: str
    needed: tuple[Path, ...] = ()
    """Directories the image cannot do without, even where they lie in ``/tmp`` or in another user's home."""
    tools: Path | None = None
    """The commands that LocalKube adds, to show at :data:`TOOLS`."""


def plan(
    image: Image,
    *,
    mounts: Sequence[Mount],
    cwd: str,
    read_only: bool,
    only_root: bool,
) -> list[Step]:
    """
    Give the steps that build a root filesystem.

    Args:
        image: what the container sees besides its own.
        mounts: volumes and single files such as ``/etc/hosts``.
        cwd: the working directory, made if it is missing.
        read_only: as ``securityContext.readOnlyRootFilesystem``.
        only_root: nobody but root will use it, so that root's own directories may stay closed.
    """
    points = [_real(path, image.base) for path in (*(mount.path for mount in mounts), cwd)]
    needed = _unreachable(image.needed, only_root=only_root)
    closed = {_closed(path) for path in needed} - {None}
    steps = list(_tree(image.base, PurePosixPath("/"), points, {str(path) for path in closed}))
    steps += _own_places()
    steps += [("bind", str(path), str(path), True) for path in _outermost(needed)]
    if image.tools is not None:
        steps.append(("bind", str(image.tools.resolve()), TOOLS, True))
    steps += _volumes(mounts, cwd)
    if read_only:
        steps += [("read_only", path) for path in ("/", "/tmp", "/run")]  # noqa: S108
    return steps


def _real(path: str, base: Path) -> PurePosixPath:
    return PurePosixPath(os.path.realpath(path) if base == Path("/") else os.path.normpath(path))


def _tree(source: Path, at: PurePosixPath, points: Sequence[PurePosixPath], closed: set[str]) -> Iterable[Step]:
    """Show each entry of *source*; take apart the directories in which a mount point is missing."""
    try:
        entries = sorted(os.scandir(source), key=lambda entry: entry.name)
    except PermissionError:
        return
    for entry in entries:
        path = at / entry.name
        if at == PurePosixPath("/") and entry.name in _OWN:
            continue
        if entry.is_symlink():
            yield ("link", str(path), os.readlink(entry.path))
        elif str(path) in closed:
            yield ("directory", str(path), 0o755)
        elif not entry.is_dir():
            yield ("bind", entry.path, str(path), True)
        elif any(_missing(point, path, Path(entry.path)) for point in points):
            yield ("directory", str(path), entry.stat().st_mode & 0o7777)
            yield from _tree(Path(entry.path), path, points, closed)
        else:
            yield ("bind", entry.path, str(path), True)


def _missing(point: PurePosixPath, path: PurePosixPath, source: Path) -> bool:
    """Tell if *point* lies in the directory *path* but does not exist there."""
    return path in point.parents and not (source / point.relative_to(path)).exists()


def _own_places() -> list[Step]:
    devices: list[Step] = [("bind", f"/dev/{name}", f"/dev/{name}", False) for name in _DEVICES]
    return [
        ("proc", "/proc"),
        ("bind", "/sys", "/sys", True),
        ("tmpfs", "/tmp", "mode=1777"),  # noqa: S108
        ("tmpfs", "/run", "mode=755"),
        ("tmpfs", "/dev", "mode=755"),
        *devices,
        ("tmpfs", "/dev/shm", "mode=1777"),  # noqa: S108
        ("devpts", "/dev/pts"),
        ("link", "/dev/ptmx", "pts/ptmx"),
        ("link", "/dev/fd", "/proc/self/fd"),
        ("link", "/dev/stdin", "/proc/self/fd/0"),
        ("link", "/dev/stdout", "/proc/self/fd/1"),
        ("link", "/dev/stderr", "/proc/self/fd/2"),
    ]


def _volumes(mounts: Sequence[Mount], cwd: str) -> list[Step]:
    """Bind outer mounts before those that lie in them."""
    ordered = sorted(mounts, key=lambda mount: PurePosixPath(mount.path).parts)
    binds: list[Step] = [
        ("bind", str(mount.source.resolve()), str(PurePosixPath(mount.path)), mount.read_only) for mount in ordered
    ]
    return [*binds, ("directory", cwd, 0o755)]


def _unreachable(paths: Iterable[Path], *, only_root: bool) -> list[Path]:
    """Give those of *paths* that a container would not get to see otherwise."""
    found = []
    for path in paths:
        hidden = any(place in PurePosixPath(path).parents for place in _EMPTIED)
        if hidden or (not only_root and _closed(path) is not None):
            found.append(path)
    return found


def _closed(path: Path) -> Path | None:
    """Give the outermost directory above *path* that only its owner may enter."""
    for parent in reversed(path.parents):
        if not parent.stat().st_mode & 0o001:
            return parent
    return None


def _outermost(paths: Iterable[Path]) -> list[Path]:
    kept: list[Path] = []
    for path in sorted(set(paths)):
        if not any(outer in path.parents for outer in kept):
            kept.append(path)
    return kept
