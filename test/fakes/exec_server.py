"""An API server that knows only exec: commands run here as processes, and streams break when told to."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import WSMsgType, web

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"


@dataclass
class Play:
    """What the server does with one connection; all at their defaults: run the command."""

    cut_in: int | None = None
    """Break the connection after so many bytes of input."""
    cut_out: int | None = None
    """Break the connection after so many bytes of output."""
    lose_out: int = 0
    """Drop so many bytes at the end of the output, and say success all the same."""
    silent: bool = False
    """Accept, then neither read nor say anything."""
    answers: tuple[bytes, ...] | None = None
    """Send just these messages and close."""
    refuse: tuple[int, str] | None = None
    """Refuse the handshake with this status and body."""
    fragment: bool = False
    """Ping first, and expect the pong."""


@dataclass
class ExecServer:
    """Runs on its own thread; each connection takes the next of *plays*."""

    env: Mapping[str, str]
    protocols: tuple[str, ...] = (V5, V4)
    tls: ssl.SSLContext | None = None
    plays: list[Play] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    spoken: list[str | None] = field(default_factory=list)
    url: str = ""

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        play = self.plays.pop(0) if self.plays else Play()
        self.commands.append(request.query.getall("command"))
        if play.refuse:
            return web.Response(status=play.refuse[0], text=play.refuse[1], content_type="application/json")
        socket = web.WebSocketResponse(protocols=self.protocols, autoping=True, max_msg_size=0)
        if play.silent:
            socket = web.WebSocketResponse(protocols=self.protocols, autoping=False)
        await socket.prepare(request)
        self.spoken.append(socket.ws_protocol)
        if play.silent:
            await asyncio.sleep(3600)
        if play.answers is not None:
            for message in play.answers:
                await socket.send_bytes(message)
            await socket.close()
            return socket
        await self._run(request, socket, play)
        return socket

    async def _run(self, request: web.Request, socket: web.WebSocketResponse, play: Play) -> None:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *request.query.getall("command"),
            stdin=pipe if request.query["stdin"] == "true" else asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=dict(self.env),
        )
        for channel in (1, 2, 3):
            await socket.send_bytes(bytes([channel]))
        if play.fragment:
            await socket.ping(b"are you there")
        feeding = asyncio.create_task(self._feed(request, socket, process, play))
        try:
            await asyncio.gather(
                self._tell(request, socket, process.stdout, 1, play),
                self._tell(request, socket, process.stderr, 2, play),
            )
            code = await process.wait()
            if not socket.closed:
                await socket.send_bytes(b"\x03" + json.dumps(_status(code)).encode())
                await socket.close()
        except ConnectionError:
            pass
        finally:
            process._transport.close()  # type: ignore[attr-defined]  # kills it, and closes pipes that nobody read
            feeding.cancel()
            await asyncio.wait([feeding])
            await process.wait()

    async def _feed(
        self, request: web.Request, socket: web.WebSocketResponse, process: asyncio.subprocess.Process, play: Play
    ) -> None:
        came = 0
        async for message in socket:
            if message.type != WSMsgType.BINARY or process.stdin is None:
                continue
            if message.data[:1] == b"\xff":
                process.stdin.close()
                continue
            came += len(message.data) - 1
            if play.cut_in is not None and came >= play.cut_in:
                _abort(request)
                break
            try:
                process.stdin.write(message.data[1:])
                await process.stdin.drain()
            except ConnectionError:
                break
        if process.stdin is not None:
            process.stdin.close()

    async def _tell(
        self,
        request: web.Request,
        socket: web.WebSocketResponse,
        stream: asyncio.StreamReader | None,
        channel: int,
        play: Play,
    ) -> None:
        assert stream is not None
        came, held = 0, b""
        while data := await stream.read(32 * 1024):
            came += len(data)
            if channel == 1 and play.cut_out is not None and came >= play.cut_out:
                _abort(request)
                raise ConnectionResetError
            if channel == 1 and play.lose_out:
                held += data
                data, held = held[: -play.lose_out], held[-play.lose_out :]
            await socket.send_bytes(bytes([channel]) + data)


def _abort(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


def _status(code: int) -> dict[str, object]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


@contextmanager
def serving(server: ExecServer) -> Iterator[ExecServer]:
    """Run *server* on a free port of this machine."""
    loop = asyncio.new_event_loop()
    application = web.Application()
    application.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/exec", server._exec)
    runner = web.AppRunner(application, shutdown_timeout=0.1, handle_signals=False)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.tls)
        await site.start()
        server.url = f"{'https' if server.tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"

    async def stop() -> None:
        await runner.cleanup()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.01)  # for what the tasks' ends have left to the loop

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def kubeconfig(server: ExecServer, path: Path) -> str:
    """Write a kubeconfig for *server* to *path*."""
    cluster = {"server": server.url, "insecure-skip-tls-verify": True} if server.tls else {"server": server.url}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    }
    path.write_text(json.dumps(config))
    return str(path)
