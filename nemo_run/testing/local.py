"""LocalKube: the API server, the kubelet and the operators of one small cluster, on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from nemo_run._kube.resources import CLAIM, CLUSTER_TRAINING_RUNTIME, CONFIG_MAP
from nemo_run.testing import _homes, _seeds
from nemo_run.testing._admission import TrainJobAdmission
from nemo_run.testing._checks import Validation
from nemo_run.testing._claims import Claims
from nemo_run.testing._faults import Fault, Faults
from nemo_run.testing._kinds import NAMESPACE, served
from nemo_run.testing._kubelet import Kubelet
from nemo_run.testing._schemas import schemas
from nemo_run.testing._server import Request, Server
from nemo_run.testing._store import Store

T = TypeVar("T")
Json = dict[str, Any]

ENVIRONMENT = "NEMO_RUN_LOCAL_KUBE"
"""While this is set, nemo_run speaks to the cluster of that kubeconfig and to no other."""

_START_SECONDS = 30.0
_CALL_SECONDS = 60.0


class LocalKube:
    """
    A Kubernetes with Kubeflow Trainer on localhost, for as long as the ``with`` block lasts.

    Pods are processes of this machine. While it is active, nemo_run's executors use it whatever kubeconfig
    or context they name, so that nothing can reach a real cluster by accident. Where several are active,
    the innermost is used.
    """

    _active: ClassVar[list[LocalKube]] = []
    _outside: ClassVar[str | None] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

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
            kuberay: The release of KubeRay; None serves none.
            claims: Names of persistent volume claims, or a directory for each. They exist in every namespace;
                ``"namespace/name"`` makes the namespace too.
            images: What runs a container, by a pattern of its image: ``{"alpine*": "busybox"}``.
            isolation: How containers are kept apart; "auto" takes the best that this machine allows.
            home: Where files live, kept afterwards; None makes a directory that is removed at the end.
        """
        self._trainer = trainer
        self._kuberay = kuberay
        self._given_claims = claims
        self._images = dict(images or {})
        self._isolation = isolation
        self._given_home = home
        self._faults = Faults()
        self._schemas = schemas(trainer, kuberay)

    def __enter__(self) -> LocalKube:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start, and be the cluster that nemo_run uses."""
        _homes.sweep(_cleaner())
        self.home = self._given_home or _homes.make_home()
        self.home.mkdir(parents=True, exist_ok=True)
        self._claims = Claims(self.home, self._given_claims)
        self._token = secrets.token_urlsafe(24)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="localkube", daemon=True)
        self._thread.start()
        try:
            self._await(self._open(), _START_SECONDS)
            self.kubeconfig = self.home / "kubeconfig"
            _write_private(self.kubeconfig, json.dumps(self._config()))
        except BaseException:
            self._close()
            raise
        with self._lock:
            if not self._active:
                LocalKube._outside = os.environ.get(ENVIRONMENT)
            self._active.append(self)
            os.environ[ENVIRONMENT] = str(self.kubeconfig)

    def stop(self) -> None:
        """End every process, stop serving and leave nothing behind."""
        with self._lock:
            if self in self._active:
                self._active.remove(self)
                _set(ENVIRONMENT, str(self._active[-1].kubeconfig) if self._active else LocalKube._outside)
        self._close()

    @property
    def url(self) -> str:
        """Give the server's base URL; it holds a secret, so whoever knows it needs no token."""
        return self._server.url

    @property
    def requests(self) -> list[Request]:
        """Give the requests answered so far, oldest first."""
        return list(self._server.requests)

    @property
    def rules(self) -> Sequence[Json] | None:
        """What the token may do, as a Role's ``rules``; None: everything."""
        return self._server.rules

    @rules.setter
    def rules(self, rules: Sequence[Json] | None) -> None:
        self._server.rules = rules

    def claim(self, name: str, namespace: str = "default") -> Path:
        """Give the directory behind a persistent volume claim; one that is not there is created."""
        self.namespace(namespace)
        self.do(lambda store: _ensure(store, CLAIM, namespace, _seeds.claim(name)))
        return self._claims(namespace, name)

    def namespace(self, name: str) -> None:
        """Have a namespace of this name, with the claims that are there in every one."""
        self.do(lambda store: self._make_namespace(store, name))

    def fault(self, *faults: Fault) -> AbstractContextManager[None]:
        """Have *faults* in force inside the ``with`` block that this opens."""
        return self._faults.active(*faults)

    def compact(self) -> None:
        """Forget past changes, as etcd does after a while: watches from an older version get 410."""
        self.do(lambda store: store.changes.compact())

    def do(self, action: Callable[[Store], T]) -> T:
        """Run *action* on the stored objects, between two requests, and give what it returns."""

        async def run() -> T:
            return action(self._store)

        return self._await(run(), _CALL_SECONDS)

    async def _open(self) -> None:
        kinds = served(trainer=True, kuberay=self._kuberay is not None)
        self._store = Store([Validation(self._schemas)])
        self._store.checks.append(TrainJobAdmission(self._store, self._trainer))
        self._server = Server(self._store, kinds, token=self._token, faults=self._faults, schemas=self._schemas)
        for name in (*_seeds.NAMESPACES, *sorted(self._claims.namespaces())):
            self._make_namespace(self._store, name)
        _ensure(self._store, CLUSTER_TRAINING_RUNTIME, "", _seeds.torch_runtime(self._trainer))
        if self._trainer not in ("2.0", "2.1"):
            _ensure(self._store, CONFIG_MAP, "kubeflow-system", _seeds.trainer_version(self._trainer))
        await self._server.start()
        self._workers: list[asyncio.Task[None]] = []
        self._start_workers()

    def _start_workers(self) -> None:
        kubelet = Kubelet(
            self._store,
            home=self.home,
            claims=self._claims,
            images=self._images,
            isolation=self._isolation,
            faults=self._faults,
        )
        self._server.streams.node = kubelet
        self._kubelet = kubelet
        self._workers.append(asyncio.create_task(kubelet.run()))
        with contextlib.suppress(ImportError):
            controller = importlib.import_module("nemo_run.testing._trainer").TrainerController
            self._workers.append(asyncio.create_task(controller(self._store, version=self._trainer).run()))

    async def _shut(self) -> None:
        if self._workers:
            await self._kubelet.stop()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._server.stop()

    def _close(self) -> None:
        try:
            if hasattr(self, "_workers"):
                self._await(self._shut(), _CALL_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_CALL_SECONDS)
            self._loop.close()
            if self._given_home is None:
                _homes.remove_home(self.home)
            else:
                (self.home / "kubeconfig").unlink(missing_ok=True)

    def _await(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def _make_namespace(self, store: Store, name: str) -> None:
        _ensure(store, NAMESPACE, "", _seeds.namespace(name))
        for claim in self._claims.names(name):
            _ensure(store, CLAIM, name, _seeds.claim(claim))

    def _config(self) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "localkube",
            "clusters": [{"name": "localkube", "cluster": {"server": self.url}}],
            "users": [{"name": "localkube", "user": {"token": self._token}}],
            "contexts": [
                {
                    "name": "localkube",
                    "context": {"cluster": "localkube", "user": "localkube", "namespace": "default"},
                }
            ],
        }


def _ensure(store: Store, kind: Any, namespace: str, obj: Json) -> None:
    """Create *obj* unless there is one of its name."""
    names = [each["metadata"]["name"] for each in store.list(kind, namespace)]
    if obj["metadata"]["name"] not in names:
        store.create(kind, namespace, obj)


def _cleaner() -> Callable[[Path], None]:
    try:
        clean: Callable[[Path], None] = importlib.import_module("nemo_run.testing._sweep").sweep
    except ImportError:
        return lambda home: None
    return clean


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
