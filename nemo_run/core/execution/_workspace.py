"""The workdir's volume, reached through a copy pod: a job's files there, results back."""

from __future__ import annotations

import logging
import tempfile
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.mover import mover_pod
from nemo_run._kube.manifests.pods import PodShape
from nemo_run._kube.mover import check_rights, check_writable, data_mover, sweep
from nemo_run._kube.transfer import directory_files, fetch_tree, send_tree
from nemo_run._kube.tree import SourceFile
from nemo_run.core.execution import _files, _passthrough
from nemo_run.core.execution._kubeflow_job import own_labels
from nemo_run.core.execution._ownership import MOVER_ROLE, ROLE_LABEL, USER_LABEL
from nemo_run.core.execution._session import Mover
from nemo_run.core.execution._workdir import warn_replaced
from nemo_run.exceptions import ConfigError, TransferError

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run.core.execution._passthrough import Json
    from nemo_run.core.execution.kubeflow import KubeflowExecutor

logger = logging.getLogger(__name__)


def sources(executor: KubeflowExecutor, directory: Path) -> list[SourceFile]:
    """List what is sent for *directory*: of the job's own, what a job sends; of any other, all."""
    if executor.job_dir and directory == Path(executor.job_dir):
        return _files.of_job(executor)
    return directory_files(directory)


def prepare(executor: KubeflowExecutor, api: KubeApi) -> None:
    """
    Make sure that files can be copied, and remove copy pods that earlier runs left over.

    Raises:
        NotAuthorized: a right is missing.
    """
    check_rights(api, executor.namespace)
    mine = own_labels(executor)[USER_LABEL]
    for name in sweep(api, executor.namespace, {ROLE_LABEL: MOVER_ROLE, USER_LABEL: mine}):
        logger.info("removed the leftover copy pod %s", name)


def start(executor: KubeflowExecutor, api: KubeApi, name: str, timeout: float) -> Mover:
    """
    Run a copy pod that has the workdir mounted as the workload has it.

    Raises:
        ConfigError: there is no workdir.
        KubeError, TransferError, WaitTimeout: it is not allowed, or does not become ready; it is removed again.
    """
    layout = _layout(executor)
    warn_replaced(layout, deprecated="workdir_pvc, workdir_pvc_path")
    with ExitStack() as stack:
        pod = stack.enter_context(
            data_mover(
                api,
                _pod(executor, layout, name, restricted=False),
                restricted=_pod(executor, layout, name, restricted=True),
                timeout=timeout,
                on_state=executor._session.on_state,
            )
        )
        return Mover(api, pod, stack.pop_all())


def _pod(executor: KubeflowExecutor, layout: WorkdirLayout, name: str, *, restricted: bool) -> Json:
    shape = PodShape(
        tolerations=executor.tolerations or (),
        affinity=executor.affinity or {},
        image_pull_secrets=executor.image_pull_secrets or (),
    )
    given = {"spec_kwargs": executor.spec_kwargs, "pod_spec_overrides": executor.pod_spec_overrides}
    return mover_pod(
        name,
        namespace=executor.namespace,
        image=executor.data_mover_image,
        layout=layout,
        labels={ROLE_LABEL: MOVER_ROLE, **own_labels(executor)},
        shape=shape.updated(_passthrough.placed("2.2", given).pod),
        overrides=executor.data_mover,
        timeout=executor.data_mover_timeout,
        restricted=restricted,
    )


def send(executor: KubeflowExecutor, mover: Mover, local: Path, path: str) -> None:
    """
    Copy what is to be sent for *local* to below *path* on the volume.

    Raises:
        ConfigError: *path* is not on the volume.
        TransferError: the place cannot be written to, or the copy failed.
    """
    target = remote(executor, path)
    check_writable(mover.api, mover.pod, target)
    files = sources(executor, local)
    sent = send_tree(
        mover.api, mover.pod, files, target, spool_dir=_spool(executor), progress=executor._session.on_progress
    )
    logger.info("copied %d files, %d bytes, to %s", sent.files, sent.bytes, target)


def fetch(executor: KubeflowExecutor, mover: Mover, path: str, local: Path) -> None:
    """
    Copy what lies below *path* on the volume to *local*; of the job's own files, those that changed, and no logs.

    Raises:
        ConfigError: *path* is not on the volume.
        TransferError: there is no such directory, or the copy failed.
    """
    source = remote(executor, path)
    skip = None
    if source == _layout(executor).code_dir:
        skip = _files.unchanged(_files.of_job(executor) if executor.job_dir else [], local)
    got = fetch_tree(mover.api, mover.pod, source, local, spool_dir=_spool(executor), skip=skip)
    logger.info("copied %d files, %d bytes, from %s to %s", got.files, got.bytes, source, local)


def _spool(executor: KubeflowExecutor) -> Path:
    """Give the directory for archives, which have no names there: the job's, since a machine's /tmp may be small."""
    return Path(executor.job_dir or tempfile.gettempdir())


def remote(executor: KubeflowExecutor, path: str) -> PurePosixPath:
    """
    Give *path* if it lies on the workdir's volume.

    Raises:
        ConfigError: it does not.
    """
    mount = PurePosixPath(_layout(executor).mount["mountPath"])
    place = PurePosixPath(path)
    if not place.is_relative_to(mount) or ".." in place.parts:
        raise ConfigError("remote_path", path, f"the workdir's volume is mounted at {mount}; give a path below it")
    return place


def _layout(executor: KubeflowExecutor) -> WorkdirLayout:
    layout = executor.workdir()
    if layout is None:
        raise ConfigError("workdir_volume_mount", None, "without a workdir there is nothing to copy to or from")
    return layout


def results_dir(executor: KubeflowExecutor, dest_dir: str | None) -> Path:
    """
    Give where results go.

    Raises:
        TransferError: nobody says.
    """
    directory = dest_dir or executor.job_dir
    if not directory:
        raise TransferError("cannot tell where to copy the results to: give dest_dir")
    return Path(directory)
