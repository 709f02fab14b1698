"""`RayCluster`: a Ray cluster on Kubernetes, started and stopped from Python."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.kuberay import KubeRayExecutor
from nemo_run.exceptions import ConfigError, KubeError
from nemo_run.run._console import Console, shown_logging
from nemo_run.run._interrupt import sigterm_interrupts
from nemo_run.run.ray._port_forward import PortForward
from nemo_run.run.ray.kuberay import KubeRayCluster

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class RayCluster:
    """
    A Ray cluster.

    ```python
    cluster = RayCluster(name="dev", executor=executor)
    cluster.start()
    cluster.port_forward(port=8265)
    cluster.stop()
    ```
    """

    name: str
    executor: Executor
    log_level: str = "INFO"
    """From which level on messages are shown, where the program has not set up logging itself."""

    def __post_init__(self) -> None:
        self.backend = KubeRayCluster(name=self.name, executor=kuberay_executor(self.executor))
        self._port_forward_map: dict[int, PortForward] = {}

    def start(
        self,
        wait_until_ready: bool = True,
        timeout: int = 1000,
        dryrun: bool = False,
        pre_ray_start_commands: list[str] | None = None,
    ) -> Any:
        """
        Create the cluster, and wait until its head can be used; with *dryrun* give the manifest.

        Interrupted while it waits, it removes what it has created.

        Raises:
            ConfigError: the executor's fields contradict each other.
            KubeError: the server, or KubeRay, refused.
            WaitTimeout: not ready within *timeout* seconds; the cluster stays, and `stop` removes it.
        """
        with self._shown(), sigterm_interrupts():
            made = self.backend.create(pre_ray_start_commands=pre_ray_start_commands, dryrun=dryrun)
            if dryrun:
                return made
            if wait_until_ready:
                self._wait(timeout)
            return None

    def _wait(self, timeout: int) -> None:
        try:
            self.backend.wait_until_running(timeout=timeout)
        except KeyboardInterrupt:
            if self.backend.is_new:
                self._remove_half_made()
            raise

    def _remove_half_made(self) -> None:
        try:
            self.backend.delete()
        except KubeError as error:
            logger.warning("RayCluster %s may be left over: %s", self.backend.cluster_name, error)

    def status(self, display: bool = True) -> Any:
        """Give the status that KubeRay has written; None only if the cluster is not there."""
        with self._shown():
            return self.backend.status(display=display)

    def port_forward(self, port: int = 8265, target_port: int = 8265, wait: bool = False) -> PortForward:
        """
        Let *port* on this machine lead to *target_port* of the head, in place of where it led before.

        Args:
            port: 0 takes a free one, which the forward that is given back tells.
            wait: return only after Ctrl-C or SIGTERM, with forwarding ended.
        """
        with self._shown():
            if before := self._port_forward_map.pop(port, None):
                before.stop_forwarding()
            forward = self.backend.port_forward(port=port, target_port=target_port, wait=wait)
            self._port_forward_map[forward.port] = forward
            return forward

    def stop(self) -> None:
        """End all port-forwards, delete the cluster, and wait until it and its pods are gone."""
        with self._shown():
            for forward in self._port_forward_map.values():
                forward.stop_forwarding()
            self._port_forward_map.clear()
            self.backend.delete(wait=True)

    @contextmanager
    def _shown(self) -> Iterator[None]:
        with shown_logging(Console(), self.log_level):
            yield


def kuberay_executor(executor: Executor) -> KubeRayExecutor:
    """
    Give *executor* if Ray runs on it.

    Raises:
        ConfigError: it does not.
    """
    if not isinstance(executor, KubeRayExecutor):
        raise ConfigError("executor", type(executor).__name__, "Ray runs on KubeRayExecutor here; use that")
    return executor
