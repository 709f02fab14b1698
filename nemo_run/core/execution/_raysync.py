"""A local directory on the workdir's volume of a Ray job, through a copy pod."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from nemo_run._kube.exec import PodRef
from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.mover import mover_pod
from nemo_run._kube.manifests.pods import PodShape
from nemo_run._kube.mover import check_rights, data_mover, sweep
from nemo_run._kube.resources import RAYJOB
from nemo_run._kube.resync import Resent, resync
from nemo_run._kube.transfer import workdir_files
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.core.execution._ownership import MOVER_ROLE, ROLE_LABEL, USER_LABEL
from nemo_run.core.execution._rayjob import CODE_ANNOTATION
from nemo_run.core.execution._raypods import mover_shape
from nemo_run.core.execution._raystate import job_phase
from nemo_run.exceptions import ConfigError, KubeError

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run.core.execution.kuberay import KubeRayExecutor

__all__ = ["copied", "copy_pod", "local_directory", "sync", "warn_of_others", "workdir_files"]

logger = logging.getLogger(__name__)

_TELL_EVERY = 5.0


def local_directory(workdir: str) -> Path:
    """
    Give the directory whose content is to be sent.

    Raises:
        ConfigError: there is none.
    """
    path = Path(workdir).expanduser()
    if not path.is_dir():
        raise ConfigError("workdir", workdir, "there is no such directory on this machine")
    return path


def sync(
    executor: KubeRayExecutor,
    api: KubeApi,
    layout: WorkdirLayout,
    workdir: Path | None,
    *,
    name: str,
    labels: Mapping[str, str],
    texts: Mapping[PurePosixPath, str],
    clock: Clock = SYSTEM_CLOCK,
) -> Resent:
    """
    Make the code directory hold what *workdir* does, as git sees it, and *texts*; the copy pod is gone afterwards.

    Raises:
        KubeError: a right is missing, or the copy pod is refused.
        TransferError, WaitTimeout: the copy pod does not start, or the copy failed.
    """
    files, skipped = workdir_files(workdir) if workdir else ([], 0)
    if workdir:
        left_out = f"; .gitignore and .git leave out {skipped} entries" if skipped else ""
        logger.info("copying %s to %s: %d entries%s", workdir, layout.code_dir, len(files), left_out)
    with copy_pod(
        api,
        name,
        layout,
        namespace=executor.namespace,
        image=executor.data_mover_image,
        shape=mover_shape(executor),
        labels=labels,
        overrides=executor.data_mover,
        timeout=executor.data_mover_timeout,
        clock=clock,
    ) as pod:
        done = copied(
            api, pod, files, layout, texts, spool_dir=executor.job_dir or None, keeps=workdir is None, clock=clock
        )
    logger.info(
        "sent %d entries (%d bytes) to %s; %d as they were, %d removed",
        done.sent,
        done.bytes,
        layout.code_dir,
        done.unchanged,
        done.removed,
    )
    return done


def copied(
    api: KubeApi,
    pod: PodRef,
    files: Any,
    layout: WorkdirLayout,
    texts: Mapping[PurePosixPath, str],
    *,
    spool_dir: str | None = None,
    keeps: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> Resent:
    """
    Bring the code directory up to *files* from the copy pod *pod*.

    Args:
        keeps: nothing is removed, nor noted as sent: there is no directory to compare with.
    """
    if spool_dir:
        Path(spool_dir).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".nemo_run-spool-", dir=spool_dir) as spool:
        # Where the code directory is the volume's own, checkpoints lie in it as well.
        shared = layout.code_dir == PurePosixPath(layout.mount["mountPath"])
        return resync(
            api,
            pod,
            files,
            layout.code_dir,
            extra=texts,
            removing=not shared,
            only_extra=keeps,
            spool_dir=Path(spool),
            progress=_Progress(),
            clock=clock,
        )


@contextmanager
def copy_pod(
    api: KubeApi,
    name: str,
    layout: WorkdirLayout,
    *,
    namespace: str,
    image: str,
    shape: PodShape,
    labels: Mapping[str, str],
    overrides: Mapping[str, Any],
    timeout: int,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[PodRef]:
    """Run a copy pod for as long as the block lasts, after a look at rights and leftovers."""
    check_rights(api, namespace)
    for left in sweep(api, namespace, {ROLE_LABEL: MOVER_ROLE, USER_LABEL: labels[USER_LABEL]}):
        logger.info("removed the leftover copy pod %s", left)
    plain, restricted = (
        mover_pod(
            f"{name}-data-mover",
            namespace=namespace,
            image=image,
            layout=layout,
            labels={ROLE_LABEL: MOVER_ROLE, **labels},
            shape=shape,
            overrides=overrides,
            timeout=timeout,
            restricted=strictly,
        )
        for strictly in (False, True)
    )
    with data_mover(api, plain, restricted=restricted, timeout=timeout, clock=clock) as pod:
        yield pod


def warn_of_others(api: KubeApi, namespace: str, layout: WorkdirLayout, labels: Mapping[str, str], name: str) -> None:
    """Warn where another unfinished job of this user runs in the same directory: its files change under its hands."""
    try:
        jobs = api.list(RAYJOB, namespace, labels=f"{USER_LABEL}={labels[USER_LABEL]}")
    except KubeError as error:
        logger.info("cannot tell whether another job runs in %s: %s", layout.code_dir, error)
        return
    for job in jobs:
        metadata = job["metadata"]
        there = (metadata.get("annotations") or {}).get(CODE_ANNOTATION)
        if there == str(layout.code_dir) and metadata["name"] != name and not job_phase(job).ended:
            logger.warning(
                "RayJob %s runs in %s too, and gets the changes; give each job a directory of its own with code_subpath"
                " ({job_name}), if it should not",
                metadata["name"],
                there,
            )


class _Progress:
    """Tells every few seconds how much of a copy is on its way."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _TELL_EVERY

    def __call__(self, sent: int, total: int) -> None:
        if (now := time.monotonic()) >= self._next:
            self._next = now + _TELL_EVERY
            logger.info("copied %.1f of %.1f MiB", sent / 1048576, total / 1048576)
