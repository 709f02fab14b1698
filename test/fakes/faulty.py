"""
What can go wrong where: faults and the points that they strike as data, for tables that say what is to come of them.

A `Point` is the place at which a step of some work meets the cluster. `FAULTS` gives, for each kind of fault, what
LocalKube has to do at such a point. `cells` reads a table of outcomes; `struck` has a fault in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.answers import kubeconfig
from fakes.certificates import Certificate, make_certificate

from nemo_run._kube.resources import Resource
from nemo_run.testing import Cut, Delay, LocalKube, Respond
from nemo_run.testing._errors import already_exists, not_found, precondition
from nemo_run.testing._kinds import NAMESPACE
from nemo_run.testing._loop import LoopThread

Fault = Respond | Delay | Cut
Json = dict[str, Any]

LONG = 1000.0
"""Seconds that nobody waits, also on a hurried clock."""


@dataclass(frozen=True)
class Point:
    """Requests of one kind; those before the one that is meant, and how far a stream gets before it breaks."""

    on: str
    """A method and a pattern of path and query, as LocalKube's faults have it."""
    kind: Resource
    """What the requests are about."""
    stream: str = ""
    """``"exec"`` or ``"log"`` if they open one."""
    skip: int = 0
    """Streams of that sort before this one."""
    breaks_after: int | None = None
    """Bytes of the stream after which everything strikes that does; None: it strikes when the stream is opened."""

    @property
    def creates(self) -> bool:
        return self.on.startswith("POST ")

    @property
    def deletes(self) -> bool:
        return self.on.startswith("DELETE ")


def _answers(status: int, *, times: int | None = 2, **how: Any) -> Callable[[LocalKube, Point], Sequence[Fault]]:
    """Give what answers with *status*; in the middle of a stream, what breaks it first."""

    def faults(kube: LocalKube, point: Point) -> Sequence[Fault]:
        return [*_broken(point), Respond(status, on=point.on, times=times, skip=len(_broken(point)), **how)]

    return faults


def _broken(point: Point) -> list[Fault]:
    if point.breaks_after is None:
        return []
    return [Cut(point.stream, after_bytes=point.breaks_after, skip=point.skip)]


def _gone(kube: LocalKube, point: Point) -> Sequence[Fault]:
    kind = NAMESPACE if point.creates else point.kind
    body = not_found(kind, "it").body()
    return [*_broken(point), Respond(404, on=point.on, times=2, skip=len(_broken(point)), body=body)]


def _cut(kube: LocalKube, point: Point, *, silent: bool = False) -> Sequence[Fault]:
    if point.breaks_after is None:
        return [Cut(point.on, silent=silent)]
    return [Cut(point.stream, after_bytes=point.breaks_after, skip=point.skip, silent=silent)]


def _slow(kube: LocalKube, point: Point) -> Sequence[Fault]:
    return [Delay(0.2, on=point.on, times=3)]


@dataclass(frozen=True)
class _Foreign(Respond):
    """Lets another object have the name by the time our request arrives."""

    kube: Any = None
    kind: Any = None

    def status_body(self) -> Json:
        store = self.kube._cluster.store
        ours = max(store.list(self.kind, ""), key=lambda obj: int(obj["metadata"]["resourceVersion"]), default=None)
        if self.on.startswith("POST "):
            name, namespace = ours["metadata"]["name"], ours["metadata"]["namespace"]
            store.patch(self.kind, namespace, name, {"metadata": {"annotations": None, "labels": {"not": "ours"}}})
            return already_exists(self.kind, name).body()
        raise AssertionError(self.on)


def _foreign(kube: LocalKube, point: Point) -> Sequence[Fault]:
    if point.deletes:
        return [_Replaced(409, on=point.on, times=1, kube=kube, kind=point.kind)]
    return [_Foreign(409, on=point.on, times=1, carried_out=True, kube=kube, kind=point.kind)]


@dataclass(frozen=True)
class _Replaced(_Foreign):
    """Lets another object have the name by the time our delete arrives."""

    def status_body(self) -> Json:
        store = self.kube._cluster.store
        (ours,) = store.list(self.kind, self.on.rpartition("namespaces/")[2].partition("/")[0])
        metadata = ours["metadata"]
        store.delete(self.kind, metadata["namespace"], metadata["name"])
        body = {key: value for key, value in ours.items() if key != "status"}
        body["metadata"] = {"name": metadata["name"], "labels": {"not": "ours"}}
        other = store.create(self.kind, metadata["namespace"], body)
        return precondition(self.kind, metadata["name"], metadata["uid"], other["metadata"]["uid"]).body()


FAULTS: Mapping[str, Callable[[LocalKube, Point], Sequence[Fault]]] = {
    "401": _answers(401),
    "403 rights": _answers(403, by="rights"),
    "403 PodSecurity": _answers(403, by="PodSecurity"),
    "403 quota": _answers(403, by="quota"),
    "403 webhook": _answers(403, by="webhook"),
    "404": _answers(404),
    "404 gone": _gone,
    "409 ours": _answers(503, times=1, carried_out=True),
    "409 foreign": _foreign,
    "410": _answers(410),
    "422": _answers(422),
    "429": _answers(429, retry_after=0.2),
    "500": _answers(500),
    "503": _answers(503),
    "503 for long": _answers(503, times=None, retry_after=LONG),
    "reset": _cut,
    "TLS": _cut,
    "slow": _slow,
    "silent": lambda kube, point: _cut(kube, point, silent=True),
}
"""By name, what happens at a point. Nothing strikes for ever but ``503 for long``."""

SAYS: Mapping[str, str] = {
    "401": "Unauthorized",
    "403 rights": "cannot",
    "403 PodSecurity": "violates PodSecurity",
    "403 quota": "exceeded quota",
    "403 webhook": "admission webhook",
    "404": "could not find the requested resource",
    "404 gone": "not found",
    "409 foreign": "already exists",
    "410": "too old resource version",
    "422": "the object is invalid",
    "503 for long": "currently unable to handle the request",
    "TLS": "certificate verify failed",
}
"""What an error that comes of it has to say, in the server's own words."""


@dataclass
class Front:
    """
    LocalKube behind TLS, as a server whose certificate is another one after a restart.

    *distrusted* tells whether the next handshake is met with a certificate that nobody trusts.
    """

    kube: LocalKube
    directory: Path
    _loop: LoopThread = field(init=False)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _bad: int = 0
    _armed: Callable[[], bool] = bool

    def __enter__(self) -> Front:
        self._loop = LoopThread("front")
        good, other = (self.directory / name for name in ("good", "other"))
        for directory in (good, other):
            directory.mkdir()
        trusted = make_certificate(good)
        self._context, self._other = _server(trusted), _server(make_certificate(other))
        self._context.sni_callback = self._choose
        port = self._loop.run(self._start())
        self.kubeconfig = kubeconfig(
            self.directory / "kubeconfig",
            self.kube.url.replace(f"http://{self.kube._cluster.server.address}", f"https://127.0.0.1:{port}"),
            cluster={"certificate-authority": str(trusted.ca)},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._stop())
        self._loop.close()

    @contextlib.contextmanager
    def distrusted(self, when: Callable[[], bool], handshakes: int = 2) -> Iterator[None]:
        """Once *when* holds, meet so many handshakes with another certificate."""
        self._armed, self._bad = when, handshakes
        try:
            yield
        finally:
            self._armed, self._bad = bool, 0

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        return int(self._server.sockets[0].getsockname()[1])

    async def _stop(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        await asyncio.sleep(0.05)

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        if self._bad and self._armed():
            self._bad -= 1
            connection.context = self._other

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self.kube._cluster.server.address.split(":")
        answers, behind = await asyncio.open_connection(host, int(port))
        ours = {writer, behind}
        self._open |= ours
        with contextlib.suppress(OSError):
            await asyncio.gather(_pipe(reader, behind), _pipe(answers, writer))
        self._open -= ours
        for each in ours:
            each.transport.abort()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def _server(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    return context


@contextlib.contextmanager
def struck(kube: LocalKube, fault: str, point: Point, *, namespace: str, front: Front | None = None) -> Iterator[None]:
    """Have the fault of that name in force at *point* in one namespace, and see that it has struck."""
    where = dataclasses.replace(point, on=point.on.replace("*/", f"*/namespaces/{namespace}/*", 1))
    with kube.fault(*FAULTS[fault](kube, where)), contextlib.ExitStack() as stack:
        entries = list(kube._cluster.faults._active)[: len(FAULTS[fault](kube, where))]
        if fault == "TLS" and front is not None:
            stack.enter_context(front.distrusted(lambda: bool(entries[0].struck)))
        yield
        assert all(entry.struck for entry in entries), f"{fault} has not struck {where}"


def cells(table: str, columns: Sequence[str]) -> dict[tuple[str, str], str]:
    """Read a table whose rows are ``fault | outcome | outcome …``; give the outcomes by fault and column."""
    found = {}
    for line in table.strip().splitlines():
        fault, *outcomes = (part.strip() for part in line.split("|"))
        assert len(outcomes) == len(columns), line
        found |= {(fault, column): outcome for column, outcome in zip(columns, outcomes, strict=True)}
    return found
