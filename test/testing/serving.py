"""A cluster without a node on a real socket, and a client of the standard library: for tests of the server alone."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from email.message import Message
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from nemo_run.testing._cluster import Cluster
from nemo_run.testing._loop import LoopThread
from nemo_run.testing._store import Store
from nemo_run.testing._streams import Node

T = TypeVar("T")

MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: Any
    headers: Message = field(compare=False, repr=False)


@dataclass
class Serving:
    """A running cluster."""

    cluster: Cluster
    loop: LoopThread

    @property
    def address(self) -> str:
        return self.cluster.server.address

    def do(self, action: Callable[[Store], T]) -> T:
        async def run() -> T:
            return action(self.cluster.store)

        return self.loop.run(run())

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "",
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Answer:
        """Send one request, by default with the right token."""
        connection = http.client.HTTPConnection(self.address, timeout=10)
        sent = {"Content-Type": content_type, **(headers or {})}
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.cluster.token}"
        url = f"{path}?{urlencode(query, doseq=True)}" if query else path
        with closing(connection):
            connection.request(method, url, None if body is None else json.dumps(body), sent)
            with connection.getresponse() as response:
                text = response.read().decode()
        is_json = response.headers.get_content_type() == "application/json"
        return Answer(response.status, json.loads(text) if is_json else text, response.headers)

    @contextmanager
    def watching(self, path: str, **query: Any) -> Iterator[Iterator[dict[str, Any]]]:
        """Open a watch and give its events."""
        connection = http.client.HTTPConnection(self.address, timeout=10)
        url = f"{path}?{urlencode({'watch': '1', **query})}"
        connection.request("GET", url, headers={"Authorization": f"Bearer {self.cluster.token}"})
        with closing(connection), connection.getresponse() as response:
            yield map(json.loads, response)

    @contextmanager
    def following(self, path: str) -> Iterator[Iterator[bytes]]:
        """Follow a log and give its lines."""
        connection = http.client.HTTPConnection(self.address, timeout=10)
        connection.request("GET", f"{path}?follow=true", headers={"Authorization": f"Bearer {self.cluster.token}"})
        with closing(connection), connection.getresponse() as response:
            yield iter(response)

    @property
    def websocket(self) -> str:
        return f"ws://{urlsplit(self.cluster.server.url).netloc}"


@contextmanager
def serving(*, node: Node | None = None, **options: Any) -> Iterator[Serving]:
    """Have a cluster that serves; *options* are Cluster's."""
    cluster, loop = Cluster(**options), LoopThread("test-server")
    cluster.server.streams.node = node
    try:
        loop.run(cluster.server.start())
        yield Serving(cluster, loop)
        loop.run(cluster.server.stop())
    finally:
        loop.close()


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """Give a small pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "x"}], **spec},
    }


def trainjob(name: str, **spec: Any) -> dict[str, Any]:
    """Give a small TrainJob."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
    }


PODS = "/api/v1/namespaces/default/pods"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
