"""LocalKube: the API server, the kubelet and the operators of one small cluster, on this machine."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, TypeVar

from nemo_run.testing import _homes
from nemo_run.testing._claims import Claims
from nemo_run.testing._cluster import Cluster
from nemo_run.testing._errors import Json
from nemo_run.testing._faults import Fault
from nemo_run.testing._kubelet import Kubelet
from nemo_run.testing._kuberay import KubeRayController
from nemo_run.testing._loop import LoopThread
from nemo_run.testing._server import Request
from nemo_run.testing._store import Store
from nemo_run.testing._sweep import sweep as end_processes
from nemo_run.testing._trainer import TrainerController

T = TypeVar("T")

logger = logging.getLogger("nemo_run")

ENVIRONMENT = "NEMO_RUN_LOCAL_KUBE"
"""While this is set, nemo_run speaks to the cluster of that kubeconfig and to no other."""


class LocalKube:
    """
    A Kubernetes with Kubeflow Trainer (and KubeRay) on localhost, for as long as the ``with`` block lasts.

    Pods are processes of this machine. While it is active, nemo_run's executors use it whatever kubeconfig
    or context they name, so that nothing can reach a real cluster by accident. Where several are active,
    the innermost is used. Unlike on a real cluster, a namespace is there as soon as something is created in it.
    """

    def __init__(
        self,
        *,
        trainer: str = "2.3",
        kuberay: str | None = None,
        claims: Iterable[str] | Mapping[str, Path] | None = None,
        images: Mapping[str, str] | None = None,
        isolation: str = "auto",
        home: Path | None = None,
    ) -> None:
        """
        Take what the cluster is to be like; nothing is started yet.

        Args:
            trainer: The release of Kubeflow Trainer to play: "2.0", "2.1", "2.2" or "2.3".
            kuberay: The release of KubeRay to play: "1.3", "1.5" or "1.7"; None serves none.
            claims: Names of persistent volume claims, or a directory for each. They exist in every namespace;
                ``"namespace/name"`` in that one. None: whatever claim a pod names is there.
            images: What runs a container, by a pattern of its image: ``{"alpine*": "busybox"}``, the path of a
                directory, or that of a python, whose programs and packages the container has then: with
                ``{"rayproject/*": "/opt/ray/bin/python"}`` it is the real Ray of that environment.
            isolation: How containers are kept apart; "auto" takes the best that this machine allows.
            home: Where files live, kept afterwards; None makes a directory that is removed at the end.
        """
        self._trainer = trainer
        self._kuberay = kuberay
        self._given_claims = claims
        self._images = dict(images or {})
        self._isolation = isolation
        self._given_home = home
        self._workers: list[asyncio.Task[None]] = []
        self._kubelet: Kubelet | None = None
        self._process = 0
        """The one that started it: what that forks has no part in its end."""

    def __enter__(self) -> LocalKube:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """
        Start, and be the cluster that nemo_run uses.

        Raises:
            ValueError: there is no such release of Trainer or KubeRay here.
            ConfigError: this machine does not let us run containers; the error says what to do.
        """
        _homes.sweep(end_processes)
        self._process = os.getpid()
        self.home = self._given_home or _homes.make_home()
        self._loop = LoopThread("localkube")
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            self._cluster = Cluster(
                trainer=self._trainer,
                kuberay=self._kuberay,
                claims=Claims(self.home, self._given_claims),
                any_namespace=True,
                any_claim=self._given_claims is None,
            )
            self._loop.run(self._open())
            kubeconfig = self.home / "kubeconfig"
            _write_private(kubeconfig, json.dumps(self._cluster.kubeconfig()))
            self.kubeconfig = kubeconfig
        except BaseException:
            self._close()
            raise
        _Pointer.point_to(self)
        atexit.register(self.stop)

    def stop(self) -> None:
        """End every process, stop serving and leave nothing behind; in a forked process do nothing."""
        if os.getpid() != self._process:
            return
        atexit.unregister(self.stop)
        _Pointer.leave(self)
        self._close()

    @property
    def url(self) -> str:
        """Give the server's base URL; it holds a secret, so whoever knows it needs no token."""
        return self._cluster.server.url

    @property
    def requests(self) -> list[Request]:
        """Give the requests answered so far, oldest first."""
        return list(self._cluster.server.requests)

    @property
    def rules(self) -> Sequence[Json] | None:
        """What the token may do, as a Role's ``rules``; None: everything."""
        return self._cluster.server.rules

    @rules.setter
    def rules(self, rules: Sequence[Json] | None) -> None:
        self._cluster.server.rules = rules

    def claim(self, name: str, namespace: str = "default") -> Path:
        """Give the directory behind a persistent volume claim; one that is not there is created."""
        return self.do(lambda _: self._cluster.make_claim(namespace, name))

    def namespace(self, name: str) -> None:
        """Have a namespace of this name, with the claims that are there in every one."""
        self.do(lambda _: self._cluster.make_namespace(name))

    def fault(self, *faults: Fault) -> AbstractContextManager[None]:
        """Have *faults* in force inside the ``with`` block that this opens."""
        return self._cluster.faults.active(*faults)

    def compact(self) -> None:
        """Forget past changes, as etcd does after a while: watches from an older version get 410."""
        self.do(lambda store: store.changes.compact())

    def do(self, action: Callable[[Store], T]) -> T:
        """Run *action* on the stored objects, between two requests, and give what it returns."""

        async def run() -> T:
            return action(self._cluster.store)

        return self._loop.run(run())

    async def _open(self) -> None:
        cluster = self._cluster
        self._kubelet = kubelet = Kubelet(
            cluster.store,
            home=self.home,
            claims=cluster.claims,
            images=self._images,
            isolation=self._isolation,
            faults=cluster.faults,
        )
        await kubelet.check()
        await cluster.server.start()
        cluster.server.streams.node = kubelet
        parts = [kubelet.run(), TrainerController(cluster.store, version=self._trainer, faults=cluster.faults).run()]
        if self._kuberay is not None:
            parts.append(KubeRayController(cluster.store, kubelet, version=self._kuberay).run())
        for work in parts:
            worker = asyncio.create_task(work)
            worker.add_done_callback(_tell_failure)
            self._workers.append(worker)

    async def _shut(self) -> None:
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers.clear()
        await self._cluster.server.stop()

    def _close(self) -> None:
        try:
            if hasattr(self, "_cluster"):
                self._loop.run(self._shut())
        finally:
            self._loop.close()
            if self._given_home is None:
                _homes.remove_home(self.home)
            elif self._process == os.getpid() and hasattr(self, "kubeconfig"):
                self.kubeconfig.unlink(missing_ok=True)


class _Pointer:
    """The environment variable, and the LocalKubes that want it, innermost last."""

    _active: ClassVar[list[LocalKube]] = []
    _outside: ClassVar[str | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def point_to(cls, kube: LocalKube) -> None:
        """Let nemo_run use *kube*."""
        with cls._lock:
            if not cls._active:
                cls._outside = os.environ.get(ENVIRONMENT)
            cls._active.append(kube)
            os.environ[ENVIRONMENT] = str(kube.kubeconfig)

    @classmethod
    def leave(cls, kube: LocalKube) -> None:
        """Let nemo_run use what it used before *kube*."""
        with cls._lock:
            if kube not in cls._active:
                return
            cls._active.remove(kube)
            before = str(cls._active[-1].kubeconfig) if cls._active else cls._outside
            if before is None:
                os.environ.pop(ENVIRONMENT, None)
            else:
                os.environ[ENVIRONMENT] = before


def _tell_failure(worker: asyncio.Task[None]) -> None:
    if not worker.cancelled() and (error := worker.exception()) is not None:
        logger.error("a part of LocalKube has failed: pods may not be run any more", exc_info=error)


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    new.replace(path)  # never through a link, which may lead to the user's own
