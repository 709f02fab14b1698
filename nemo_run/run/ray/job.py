"""`RayJob`: a Ray job on Kubernetes, submitted and followed from Python."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import KubeError
from nemo_run.run._console import Console, shown_logging
from nemo_run.run.ray.cluster import kuberay_executor
from nemo_run.run.ray.kuberay import KubeRayJob

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class RayJob:
    """
    A Ray job, on a cluster of its own that goes with it, or on one that is there.

    ```python
    job = RayJob(name="eval", executor=executor)
    job.start(command="python eval.py", workdir="src")
    job.logs(follow=True)
    job.stop()
    ```
    """

    name: str
    executor: Executor
    pre_ray_start_commands: list[str] | None = None
    """What `start` runs before Ray, unless it is given others."""
    log_level: str = "INFO"
    """From which level on messages are shown, where the program has not set up logging itself."""
    cluster_name: str | None = None
    """An existing RayCluster to run on, by the name that Kubernetes has for it."""
    cluster_ready_timeout: int | None = 1800
    """Kept for NeMo-Run's sake; ``active_deadline_seconds`` of the executor limits a job."""

    def __post_init__(self) -> None:
        executor = kuberay_executor(self.executor)
        self.backend = KubeRayJob(name=self.name, executor=executor, cluster_name=self.cluster_name)

    def start(
        self,
        command: str | Sequence[str],
        workdir: str | None = None,
        runtime_env_yaml: str | Mapping[str, Any] | None = None,
        pre_ray_start_commands: list[str] | None = None,
        dryrun: bool = False,
    ) -> Any:
        """
        Copy the code and submit the job; with *dryrun* send nothing, and give the manifest.

        Args:
            command: shell text, or an argv list; it runs as one unit on the head.
            workdir: the local directory whose content the job starts in, as git sees it.
            runtime_env_yaml: Ray's runtime environment: a file, YAML, or a dict.
            pre_ray_start_commands: shell commands that run before Ray in every Ray container.

        Raises:
            ConfigError: the fields contradict each other, or there is no volume for *workdir*.
            Conflict: there is a RayJob of this name.
            KubeError, TransferError, WaitTimeout: the server refused, or the copy failed; nothing is left behind.
        """
        with self._shown():
            made = self.backend.start(
                command=command,
                workdir=workdir,
                runtime_env_yaml=runtime_env_yaml,
                pre_ray_start_commands=(
                    self.pre_ray_start_commands if pre_ray_start_commands is None else pre_ray_start_commands
                ),
                dryrun=dryrun,
            )
            if not dryrun:
                self._show_status()
            return made

    def _show_status(self) -> None:
        try:
            with self.backend.kept_when_interrupted():
                self.backend.status()
        except KubeError as error:
            logger.warning("RayJob %s is submitted; how it stands is not known: %s", self.backend.job_name, error)

    def stop(self, wait: bool = False) -> None:
        """Delete the job, which ends it and its cluster; with *wait*, return when they are gone."""
        with self._shown():
            self.backend.stop(wait=wait)

    def status(self, display: bool = True) -> dict[str, Any]:
        """Give ``jobStatus``, ``jobDeploymentStatus``, ``reason``, ``message`` and ``rayClusterName``."""
        with self._shown():
            return self.backend.status(display=display)

    def logs(self, *, follow: bool = False, lines: int = 100, timeout: int | None = None) -> None:
        """
        Print the job's output: its last *lines*, or with *follow* all of it until the job has ended.

        Args:
            timeout: seconds to follow; the job goes on after that.
        """
        with self._shown():
            self.backend.logs(follow=follow, lines=lines, timeout=timeout)

    @contextmanager
    def _shown(self) -> Iterator[None]:
        with shown_logging(Console(), self.log_level):
            yield
