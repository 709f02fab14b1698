"""A local port that leads to the head of a RayCluster, whichever pod that is at the moment."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from nemo_run._kube import portforward
from nemo_run.exceptions import ConfigError, KubeError, NotFound, ServerError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

_STEP = 0.2
_TRIES = 15
"""How often a connection looks for a head before it is given up: a head that restarts takes a while."""
_PAUSE = 2.0
_JOIN = 5.0


class PortForward(threading.Thread):
    """
    Listens on a local port; each connection gets its own way to the head.

    The head is looked up anew for each, so that forwarding outlives its restart.
    """

    def __init__(self, api: KubeApi, namespace: str, head: Callable[[], str], *, port: int, target_port: int) -> None:
        super().__init__(name=f"port-forward {port}", daemon=True)
        self._api = api
        self._namespace = namespace
        self._head = head
        self._target_port = target_port
        self._over = threading.Event()
        self._links: set[threading.Thread] = set()
        self._listener = _listening(port)
        self.port: int = self._listener.getsockname()[1]
        """The local port."""

    def stop_forwarding(self) -> None:
        """Stop listening and end all connections; any thread may call it, more than once."""
        self._over.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join(_JOIN)
        self._listener.close()

    def run(self) -> None:
        """Accept connections until `stop_forwarding` is called."""
        self._listener.settimeout(_STEP)
        try:
            while not self._over.is_set():
                try:
                    local, _ = self._listener.accept()
                except TimeoutError:
                    continue
                except OSError:
                    break
                self._links = {link for link in self._links if link.is_alive()}
                link = threading.Thread(target=self._serve, args=(local,), name=self.name, daemon=True)
                self._links.add(link)
                link.start()
        finally:
            self._listener.close()
            for link in self._links:
                link.join(_JOIN / max(len(self._links), 1))

    def _serve(self, local: socket.socket) -> None:
        with local:
            try:
                self._carry(local)
            except KubeError as error:
                if not self._over.is_set():
                    logger.warning("a forwarded connection to port %d ended: %s", self._target_port, error)
            with suppress(OSError):
                local.shutdown(socket.SHUT_RDWR)

    def _carry(self, local: socket.socket) -> None:
        way = portforward.door(self._api, self._namespace, self._found_head(), self._target_port)
        if trouble := portforward.carry(way, local, over=self._over):
            logger.warning("port-forward to port %d: %s", self._target_port, trouble)

    def _found_head(self) -> str:
        for _ in range(_TRIES):
            try:
                return self._head()
            except (NotFound, ServerError, Unreachable) as error:
                logger.debug("no head to forward to yet: %s", error)
                if self._over.wait(_PAUSE):
                    break
        return self._head()


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError("port", port, f"cannot listen on it: {error}; choose another, or 0 for a free one") from error
    return listener
