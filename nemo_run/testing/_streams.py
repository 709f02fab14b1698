"""Logs of containers and commands in them, carried between the kubelet and the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from aiohttp import web

from nemo_run._kube.resources import POD
from nemo_run.testing import _portforward
from nemo_run.testing import _requests as asked
from nemo_run.testing._errors import ApiError, bad_request
from nemo_run.testing._faults import Faults, Meter, StreamCut
from nemo_run.testing._objects import cut
from nemo_run.testing._paths import Target
from nemo_run.testing._sessions import PROTOCOLS, Process, Session, failed
from nemo_run.testing._store import Store

Json = dict[str, Any]

LARGEST_FRAME = 64 * 1024 * 1024

_NOT_STARTED = "Internal error occurred: error executing command in container"
"""What the kubelet says of a command once the streams are open; all else it says before."""


class Node(Protocol):
    """What the kubelet does for the server."""

    async def exec(self, namespace: str, pod: str, container: str, command: list[str], *, stdin: bool) -> Process:
        """Start *command* in a running container."""

    def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        follow: bool,
        since_time: datetime | None,
        timestamps: bool,
        previous: bool,
        tail_lines: int | None,
        limit_bytes: int | None,
    ) -> AsyncIterator[bytes]:
        """Give the output of a container."""


class Streams:
    """Answers ``pods/log``, ``pods/exec`` and ``pods/portforward``."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults
        self.node: Node | None = None

    async def log(self, request: web.Request, target: Target) -> web.StreamResponse:
        """
        Send a container's output, and what is still to come if the request says ``follow``.

        Raises:
            ApiError: there is no such pod or container, or it has not started.
        """
        query = request.query
        pod = self._store.get(POD, target.namespace, target.name)
        container = _container(pod, query.get("container", ""))
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)
        if self.node is None:
            path = f"containerLogs/{target.namespace}/{target.name}/{container}"
            why = "dial tcp 127.0.0.1:10250: connect: connection refused"
            raise ApiError(500, "", f'Get "https://127.0.0.1:10250/{path}": {why}')
        lines = self.node.log(
            target.namespace,
            target.name,
            container,
            follow=asked.flag(query, "follow"),
            since_time=_since(query),
            timestamps=asked.flag(query, "timestamps"),
            previous=asked.flag(query, "previous"),
            tail_lines=asked.number(query, "tailLines"),
            limit_bytes=asked.number(query, "limitBytes"),
        )
        iterator = lines.__aiter__()
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        meter = self._faults.for_stream("log")
        try:
            first = await _first(iterator, response, request)
            await meter.check()
            if first:
                await _pass(first, response, meter)
            async for chunk in iterator:
                await _pass(chunk, response, meter)
        except StreamCut:
            cut(request)
        except ConnectionError:
            pass  # the client has read enough
        finally:
            if hasattr(iterator, "aclose"):
                await iterator.aclose()
        return response

    async def exec(self, request: web.Request, target: Target) -> web.StreamResponse:
        """
        Run a command in a container, its streams carried over a WebSocket.

        Raises:
            ApiError: there is no such pod or container, or it does not run.
        """
        query = request.query
        pod = self._store.get(POD, target.namespace, target.name)
        container = _container(pod, query.get("container", ""))
        command = query.getall("command", [])
        if not pod["spec"].get("nodeName"):
            raise bad_request(f"pod {target.name} does not have a host assigned")
        if not command:
            raise bad_request("you must specify at least 1 command for execution")
        if not any(asked.flag(query, name) for name in ("stdin", "stdout", "stderr")):
            raise bad_request("you must specify at least one of stdin, stdout, stderr")
        if self.node is None:
            raise ApiError(500, "InternalError", "error dialing backend: no kubelet")
        socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=LARGEST_FRAME, compress=False, autoping=False)
        if not socket.can_prepare(request).ok:
            raise bad_request("unable to upgrade: request is missing the websocket or SPDY upgrade headers")
        stdin = asked.flag(query, "stdin")
        try:
            process = await self.node.exec(target.namespace, target.name, container, command, stdin=stdin)
        except ApiError as error:
            if not error.message.startswith(_NOT_STARTED):
                raise
            await socket.prepare(request)
            await Session(socket, self._faults.for_stream("exec")).end(failed(error))
            return socket
        try:
            await socket.prepare(request)
            await Session(socket, self._faults.for_stream("exec")).run(process, stdin=stdin)
        except StreamCut:
            cut(request)
        except ConnectionError:
            pass  # the client has gone, and the command goes with it
        finally:
            process.kill()
        return socket

    async def portforward(self, request: web.Request, target: Target) -> web.StreamResponse:
        """
        Carry a connection to a port of a pod over a WebSocket.

        Raises:
            ApiError: there is no such pod, or it does not run.
        """
        return await _portforward.forward(request, target, self._store, self._faults, self.node)


async def _first(lines: AsyncIterator[bytes], response: web.StreamResponse, request: web.Request) -> bytes:
    """
    Open the answer, at once even where no output has come yet, and give the first of it.

    A refusal by the kubelet must come before the headers, so that it can be the answer itself.
    """
    pending = asyncio.ensure_future(lines.__anext__())
    try:
        await asyncio.wait((pending,), timeout=0.05)
        if not pending.done():
            await response.prepare(request)
        first = await pending
    except StopAsyncIteration:
        first = b""
    finally:
        if not pending.done():
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
    if not response.prepared:
        await response.prepare(request)
    return first


async def _pass(chunk: bytes, response: web.StreamResponse, meter: Meter) -> None:
    await response.write(meter.take(chunk))
    await meter.check()


def _container(pod: Json, name: str) -> str:
    """
    Give the container that *name* means, the only one if it is empty.

    Raises:
        ApiError: there is no such one, or there are several (400).
    """
    meta, spec = pod["metadata"], pod["spec"]
    names = [container["name"] for container in spec["containers"]]
    inits = [container["name"] for container in spec.get("initContainers", [])]
    if not name:
        default = (meta.get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
        if len(names) == 1 or default in names:
            return str(default if default in names else names[0])
        choice = f"choose one of: [{' '.join(names)}]"
        if inits:
            choice += f" or one of the init containers: [{' '.join(inits)}]"
        raise bad_request(f"a container name must be specified for pod {meta['name']}, {choice}")
    if name not in names + inits:
        raise bad_request(f"container {name} is not valid for pod {meta['name']}")
    return name


def _since(query: Mapping[str, str]) -> datetime | None:
    """
    Give the moment before which nothing is wanted: whole seconds, as the kubelet takes it.

    Raises:
        ApiError: it is no time (400).
    """
    if (seconds := asked.number(query, "sinceSeconds")) is not None:
        now = datetime.now().astimezone()
        return datetime.fromtimestamp(now.timestamp() - seconds).astimezone()
    text = query.get("sinceTime", "")
    if not text:
        return None
    try:
        whole, _, rest = text.replace("Z", "+00:00").partition(".")
        zone = rest.lstrip("0123456789") if rest else ""
        return datetime.fromisoformat(whole + zone)
    except ValueError as error:
        raise bad_request(f'unable to decode sinceTime: parsing time "{text}"') from error
