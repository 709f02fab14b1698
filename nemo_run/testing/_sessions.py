"""One command in a container and the WebSocket that its streams go over (channel protocol, versions 4 and 5)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any, Protocol

from aiohttp import WSMsgType, web

from nemo_run.testing._errors import ApiError
from nemo_run.testing._faults import Meter

Json = dict[str, Any]

STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
FRAME = 64 * 1024


class Writer(Protocol):
    """The writing end of a pipe."""

    def write(self, data: bytes) -> None:
        """Take *data* into the buffer."""

    async def drain(self) -> None:
        """Wait until the buffer has room."""

    def close(self) -> None:
        """Let the reader see the end."""


class Reader(Protocol):
    """The reading end of a pipe."""

    async def read(self, n: int, /) -> bytes:
        """Give up to *n* bytes, none at the end."""


class Process(Protocol):
    """A command that runs in a container."""

    @property
    def stdin(self) -> Writer | None:
        """Give its standard input, None if it has none."""

    @property
    def stdout(self) -> Reader | None:
        """Give its standard output."""

    @property
    def stderr(self) -> Reader | None:
        """Give its standard error."""

    async def wait(self) -> int:
        """Wait for the end and give the exit code."""

    def kill(self) -> None:
        """End it now."""


class Session:
    """One command and the socket that its streams go over."""

    def __init__(self, socket: web.WebSocketResponse, meter: Meter) -> None:
        self._socket = socket
        self._meter = meter

    async def run(self, process: Process, *, stdin: bool) -> None:
        """Carry everything until the command has ended and its output is sent, or the client has gone."""
        await self._meter.check()
        receiver = asyncio.create_task(self._receive(process if stdin else None))
        sender = asyncio.create_task(self._send_all(process))
        try:
            await asyncio.wait((receiver, sender), return_when=asyncio.FIRST_COMPLETED)
            if receiver.done():
                receiver.result()
                return
            # aiohttp drops the connection, unread frames and all, if it is closed while somebody receives.
            await _cancelled(receiver)
            await self.end(exited(sender.result()))
        finally:
            await _cancelled(receiver, sender)

    async def end(self, status: Json) -> None:
        """Send the status that ends the command, and close."""
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(bytes([ERROR]) + json.dumps(status, separators=(",", ":")).encode())
            await self._socket.close()

    async def _send_all(self, process: Process) -> int:
        await asyncio.gather(self._send(STDOUT, process.stdout), self._send(STDERR, process.stderr))
        return await process.wait()

    async def _send(self, channel: int, source: Reader | None) -> None:
        while source is not None and (data := await source.read(FRAME)):
            if part := self._meter.take(data):
                await self._socket.send_bytes(bytes([channel]) + part)
            await self._meter.check()

    async def _receive(self, process: Process | None) -> None:
        """Pass frames for stdin on until the client goes; what arrives after the command's end is dropped."""
        stdin = process.stdin if process is not None else None
        five = self._socket.ws_protocol == PROTOCOLS[0]
        try:
            async for message in self._socket:
                if message.type == WSMsgType.PING:
                    await self._meter.check()
                    await self._socket.pong(message.data)
                data = message.data if message.type == WSMsgType.BINARY else b""
                if five and data[:2] == bytes([CLOSE, STDIN]):
                    if stdin is not None:
                        stdin.close()
                    stdin = None
                elif data[:1] == bytes([STDIN]):
                    part = self._meter.take(data[1:])
                    if stdin is not None:
                        stdin = await _written(stdin, part)
                    await self._meter.check()
        finally:
            if stdin is not None:
                stdin.close()


def exited(code: int) -> Json:
    """Give the Status that tells how a command ended."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    message = f"command terminated with non-zero exit code: command terminated with exit code {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "NonZeroExitCode",
        "details": {"causes": causes},
    }


def failed(error: ApiError) -> Json:
    """Give the Status that tells that a command could not be started."""
    cause = error.message.removeprefix("Internal error occurred: ")
    details = {"causes": [{"message": cause}]}
    return {
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": "InternalError",
        "details": details,
        "code": 500,
    }


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _written(stdin: Writer, data: bytes) -> Writer | None:
    """Write *data*; None once the command does not read any more."""
    try:
        stdin.write(data)
        await stdin.drain()
    except ConnectionError:
        return None
    return stdin
