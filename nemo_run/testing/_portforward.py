"""
Connections to ports of pods, each carried over a WebSocket (``pods/portforward``, channel protocol version 4).

A small program in the container opens the connection, since only the pod's own processes reach its network.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from aiohttp import WSMsgType, web

from nemo_run._kube.resources import POD
from nemo_run.testing._errors import bad_request
from nemo_run.testing._faults import Faults, Meter, StreamCut
from nemo_run.testing._objects import cut
from nemo_run.testing._paths import Target
from nemo_run.testing._sessions import FRAME, Process
from nemo_run.testing._store import Store

if TYPE_CHECKING:
    from nemo_run.testing._streams import Node

PROTOCOLS = ("v4.channel.k8s.io",)

_DATA, _ERROR = b"\0", b"\1"

_RELAY = """
import os, socket, sys, threading
port = int(sys.argv[1])
try:
    far = socket.create_connection(("127.0.0.1", port), timeout=5)
except OSError as error:
    sys.exit(f"dial tcp4 127.0.0.1:{port}: connect: connection refused ({error})")
far.settimeout(None)
def there():
    while data := os.read(0, 65536):
        far.sendall(data)
    far.shutdown(socket.SHUT_WR)
threading.Thread(target=there, daemon=True).start()
try:
    while data := far.recv(65536):
        os.write(1, data)
except OSError:
    pass
os._exit(0)
"""


async def forward(
    request: web.Request, target: Target, store: Store, faults: Faults, node: Node | None
) -> web.StreamResponse:
    """
    Carry one connection to a port of a pod until either side ends it.

    Raises:
        ApiError: there is no such pod, it does not run, or the request names no port.
    """
    pod = store.get(POD, target.namespace, target.name)
    ports = [int(port) for text in request.query.getall("ports", []) for port in text.split(",") if port.isdecimal()]
    if len(ports) != 1:
        raise bad_request(
            'query parameter "ports" is required' if not ports else "LocalKube forwards one port at a time"
        )
    if (phase := (pod.get("status") or {}).get("phase")) != "Running" or node is None:
        raise bad_request(f"unable to forward port because pod is not running. Current status={phase}")
    socket = web.WebSocketResponse(protocols=PROTOCOLS, compress=False, autoping=True)
    if not socket.can_prepare(request).ok:
        raise bad_request("unable to upgrade: request is missing the websocket or SPDY upgrade headers")
    container = pod["spec"]["containers"][0]["name"]
    command = ["python", "-I", "-c", _RELAY, str(ports[0])]
    process = await node.exec(target.namespace, target.name, container, command, stdin=True)
    meter = faults.for_stream("portforward")
    try:
        await socket.prepare(request)
        for channel in (_DATA, _ERROR):
            await socket.send_bytes(channel + ports[0].to_bytes(2, "little"))
        await _carry(socket, process, meter, f"an error occurred forwarding {ports[0]} to pod {target.name}")
    except StreamCut:
        cut(request)
    except ConnectionError:
        pass  # the client has gone
    finally:
        process.kill()
    return socket


async def _carry(socket: web.WebSocketResponse, process: Process, meter: Meter, what: str) -> None:
    receiver = asyncio.create_task(_receive(socket, process, meter))
    sender = asyncio.create_task(_send(socket, process, meter))
    try:
        await asyncio.wait((receiver, sender), return_when=asyncio.FIRST_COMPLETED)
        for task in (receiver, sender):
            if task.done():
                task.result()
        if sender.done():
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)
            await _end(socket, process, what)
    finally:
        for task in (receiver, sender):
            task.cancel()
        await asyncio.gather(receiver, sender, return_exceptions=True)


async def _send(socket: web.WebSocketResponse, process: Process, meter: Meter) -> None:
    while process.stdout is not None and (data := await process.stdout.read(FRAME)):
        await socket.send_bytes(_DATA + meter.take(data))
        await meter.check()


async def _receive(socket: web.WebSocketResponse, process: Process, meter: Meter) -> None:
    async for message in socket:
        if message.type == WSMsgType.BINARY and message.data[:1] == _DATA and process.stdin is not None:
            process.stdin.write(meter.take(message.data[1:]))
            await process.stdin.drain()
            await meter.check()


async def _end(socket: web.WebSocketResponse, process: Process, what: str) -> None:
    said = await process.stderr.read(FRAME) if process.stderr is not None else b""
    with contextlib.suppress(ConnectionError):
        if said:
            await socket.send_bytes(_ERROR + f"{what}: ".encode() + said.strip())
        await socket.close()
