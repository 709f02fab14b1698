"""What of a job goes to the volume, and what of it comes back."""

from __future__ import annotations

import gzip
import logging
import os
import tarfile
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from nemo_run._kube.segments import safe_segment
from nemo_run._kube.tree import SourceFile, directory_files
from nemo_run._kube.unpack import unpack
from nemo_run.core.execution.base import Executor
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError, NoRepository

logger = logging.getLogger(__name__)

_STAYS_HERE = ("log*.out", "configs/*_executor.yaml", ".nemo_run*")
"""Logs are written on both sides; a saved executor may hold env values."""
_CONFIG = "_config.yaml"
_PACKED = ".nemo_run-packed"
"""Beside ``code``: names what in there was packed, and may be removed."""
_told: set[type[Packager]] = set()


def of_job(executor: Executor) -> list[SourceFile]:
    """List what the executor's job sends."""
    local = getattr(executor, "workdir_local_path", None)
    return job_files(Path(executor.job_dir), local=Path(local) if local else None)


def job_files(job_dir: Path, *, local: Path | None = None) -> list[SourceFile]:
    """
    List what a job sends: its directory and the contents of *local*.

    Where two have one path, the job's own file wins.

    Raises:
        ConfigError: *local* is no directory.
    """
    found = {source.path_in_archive: source for source in _of_user(local)} if local else {}
    if job_dir.is_dir():
        own = {source.path_in_archive: source for source in directory_files(job_dir)}
        found |= {path: source for path, source in own.items() if not _stays(path) and not _of_script(path, own)}
    return list(found.values())


def _of_script(path: PurePosixPath, others: Container[PurePosixPath]) -> bool:
    """Tell whether *path* is a script's saved config: it holds its variables, and nothing in the job reads it."""
    if len(path.parts) != 2 or path.parts[0] != "configs" or not path.name.endswith(_CONFIG):
        return False
    return path.with_name(path.name.removesuffix(_CONFIG) + "_fn_or_script") not in others


def _of_user(local: Path) -> list[SourceFile]:
    if not local.is_dir():
        raise ConfigError("workdir_local_path", str(local), "there is no such directory on this machine")
    files = directory_files(local)
    kept = [each for each in files if ".git" not in each.path_in_archive.parts and not _stays(each.path_in_archive)]
    if len(kept) < len(files):
        logger.info("%s: %d entries stay here (.git, logs)", local, len(files) - len(kept))
    return kept


def _stays(path: PurePosixPath) -> bool:
    return any(len(path.parts) == pattern.count("/") + 1 and fnmatch(str(path), pattern) for pattern in _STAYS_HERE)


def pack_code(packager: Packager, job_dir: Path, name: str) -> None:
    """
    Put what *packager* gives into ``<job_dir>/code``, in place of what an earlier call put there.

    Raises:
        ConfigError: there is a directory of that name that no earlier call made.
        PackagingError: the packager failed; finding no git repository at all is but a warning.
    """
    job_dir.mkdir(parents=True, exist_ok=True)
    code = job_dir / "code"
    _remove_packed(code)
    name = safe_segment(name)
    archive = job_dir / f"{name}.tar.gz"
    # An older NeMo-Run's packager gives back what is there already.
    archive.unlink(missing_ok=True)
    try:
        made = packager.package(Path.cwd(), str(job_dir), name)
    except NoRepository as error:
        logger.warning("%s; the image's own code runs, as in NeMo-Run 0.12 and before", error)
        return
    if made and Path(made).is_file():
        _unpack(Path(made), code)
        # A packager of the user's may give an archive that is kept elsewhere.
        if Path(made).resolve() == archive.resolve():
            archive.unlink()


def _remove_packed(code: Path) -> None:
    """Remove from the directory *code* what an earlier call put there; results that were pulled to there stay."""
    listed = code.with_name(_PACKED)
    if not os.path.lexists(code) or (code.is_dir() and not code.is_symlink() and not any(code.iterdir())):
        return
    if code.is_symlink() or not listed.is_file():
        hint = f"{code} is there and was not made by nemo_run; move it, or set another job_dir"
        raise ConfigError("job_dir", str(code.parent), hint)
    top = code.resolve()
    names = listed.read_text("utf-8", "surrogateescape").split("\0")
    for path in sorted((code / name for name in names if name), reverse=True):
        if path == code or not path.parent.resolve().is_relative_to(top) or ".." in path.parts:
            continue
        with suppress(OSError):  # gone, or a directory in which there is more
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()


def tell_unpacked(packager: Packager) -> None:
    """Warn, once per process for each class, of a packager that packs something, where there is no workdir."""
    kind = type(packager)
    if kind.package is not Packager.package and kind not in _told:
        _told.add(kind)
        logger.warning(
            "%s is not used: there is no workdir, so its files reach no pod; set workdir_volume_mount", kind.__name__
        )


def _unpack(archive: Path, directory: Path) -> None:
    opened = gzip.open if archive.suffix in (".gz", ".tgz") else open
    with opened(archive, "rb") as content:
        directory.mkdir(exist_ok=True)
        unpack(content, directory, source=PurePosixPath("/"))  # type: ignore[arg-type]
        content.seek(0)
        with tarfile.open(fileobj=content, mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
            paths = {PurePosixPath(name) for name in tar.getnames()}
    text = "\0".join(sorted({str(part) for path in paths for part in (path, *path.parents)}))
    directory.with_name(_PACKED).write_text(text, "utf-8", "surrogateescape")


def unchanged(sources: Sequence[SourceFile], dest: Path) -> Callable[[PurePosixPath, tarfile.TarInfo], bool]:
    """
    Give what tells of a remote file whether it may stay there.

    It may if it is as we sent it, or as it is below *dest*, by size and time; logs may always.
    """
    sent = {source.path_in_archive: source.local for source in sources}

    def skip(path: PurePosixPath, member: tarfile.TarInfo) -> bool:
        if _stays(path):
            return True
        return any(_same(local, member) for local in (sent.get(path), dest / path) if local)

    return skip


def _same(local: Path, member: tarfile.TarInfo) -> bool:
    try:
        if member.issym():
            return os.readlink(local) == member.linkname
        facts = local.stat()
    except OSError:
        return False
    return member.isfile() and facts.st_size == member.size and int(facts.st_mtime) == int(member.mtime)
