"""What of a job goes to the volume, and what of it comes back."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import tarfile
from collections.abc import Callable, Container, Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from nemo_run._kube.tree import SourceFile, directory_files
from nemo_run._kube.unpack import unpack
from nemo_run.core.execution.base import Executor
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError, NoRepository

logger = logging.getLogger(__name__)

_STAYS_HERE = ("log*.out", "configs/*_executor.yaml", ".nemo_run*")
"""Logs are written on both sides; a saved executor may hold env values."""
_CONFIG = "_config.yaml"
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
        PackagingError: the packager failed; finding no git repository at all is but a warning.
    """
    job_dir.mkdir(parents=True, exist_ok=True)
    code = job_dir / "code"
    if code.is_dir():
        shutil.rmtree(code)
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
        Path(made).unlink()


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
        directory.mkdir()
        unpack(content, directory, source=PurePosixPath("/"))  # type: ignore[arg-type]


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
