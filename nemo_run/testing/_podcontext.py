"""What the containers of one pod share: the node, the network, the volumes, and the pod's end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nemo_run.testing._container import Container, Network, Runtime
from nemo_run.testing._faults import Faults
from nemo_run.testing._faults import Pod as PodFault
from nemo_run.testing._store import Store
from nemo_run.testing._volumes import Claims, Volumes

Json = dict[str, Any]


class Stopped(Exception):
    """The pod is to end: nothing more is started."""


class Ending:
    """The moment from which a pod is to end, and how long its containers have for that."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._changed = asyncio.Event()
        self._kill_at: float | None = None

    @property
    def begun(self) -> bool:
        """Tell if the pod is to end."""
        return self._begun.is_set()

    def begin(self, grace: float) -> None:
        """End the pod within *grace* seconds; a second call may only shorten that."""
        at = asyncio.get_running_loop().time() + grace
        if self._kill_at is None or at < self._kill_at:
            self._kill_at = at
        self._begun.set()
        self._changed.set()

    async def pause(self, seconds: float) -> None:
        """
        Wait *seconds*.

        Raises:
            Stopped: the pod is to end.
        """
        if not self.begun:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._begun.wait(), seconds)
        if self.begun:
            raise Stopped

    async def enforce(self, container: Container, told: Callable[[], None]) -> None:
        """Once the pod is to end, call *told* and end *container*: TERM, and after the grace period KILL."""
        await self._begun.wait()
        told()
        container.signal(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        while (left := (self._kill_at or 0) - loop.time()) > 0:
            self._changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        container.kill()


class NetworkPool(Protocol):
    """Gives each pod the network of its workload."""

    async def join(self, pod: Json) -> Network:
        """Give the pod its network; the first of a workload makes it."""

    async def leave(self, pod: Json) -> None:
        """Take the pod out; the last one closes the network."""


class Tell(Protocol):
    """Makes an Event about the pod."""

    def __call__(self, reason: str, message: str, type: str = "Warning") -> None:
        """Tell it."""


@dataclass(frozen=True)
class Node:
    """What all pods of a kubelet share."""

    store: Store
    runtime: Runtime
    networks: NetworkPool
    claims: Claims
    faults: Faults
    home: Path


@dataclass
class PodContext:
    """What the containers of one pod share."""

    node: Node
    pod: Json
    directory: Path
    volumes: Volumes
    ending: Ending
    tell: Tell
    publish: Callable[[], None]
    """Writes the pod's status."""
    fault: Callable[[str], PodFault | None]
    """Gives the fault of a kind that the pod meets now."""
    network: Network | None = None

    @property
    def hostname(self) -> str:
        """Give the pod's host name."""
        return str(self.pod["spec"].get("hostname") or self.pod["metadata"]["name"])[:63]
