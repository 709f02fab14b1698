"""
A server that gives the answers a test has written down, over real sockets.

    with Server([Answer(503), Answer(200, {"kind": "Pod"})]) as server: ...

One answer a request, in order; without one left it answers 500. What was asked
is in ``server.requests``.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Answer:
    """Status, body and headers; the body as JSON, bytes, or chunks that are sent one by one."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Whether the connection ends after the chunks, before the answer does."""


RESET = Answer(status=0)
"""The connection is reset instead of an answer."""


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes
    raw_headers: tuple[tuple[str, str], ...] = ()

    def all_headers(self, name: str) -> list[str]:
        """Give every value of a header, in order."""
        return [value for found, value in self.raw_headers if found.lower() == name.lower()]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def status(code: int, reason: str, message: str, **details: Any) -> Answer:
    """Give the answer with which an API server refuses."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return Answer(code, {**body, "message": message, "details": details})


class Server:
    """The server; ``url`` is its address while it is entered."""

    def __init__(
        self,
        answers: Iterable[Answer] | Callable[[Asked], Answer] = (),
        *,
        tls: Sequence[Path] | None = None,
        client_ca: Path | None = None,
    ) -> None:
        self.answers = answers if callable(answers) else iter(answers)
        self.tls = tls
        self.client_ca = client_ca
        self.requests: list[Asked] = []
        self.connections: list[socket.socket] = []
        self.lock = threading.Lock()

    def __enter__(self) -> Server:
        handler = type("Handler", (_Handler,), {"script": self})
        self._http = _Listener(("127.0.0.1", 0), handler)
        scheme = "http"
        if self.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
            self._http.context = context
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        with self.lock:
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def next(self, asked: Asked) -> Answer:
        with self.lock:
            self.requests.append(asked)
            return self.answers(asked) if callable(self.answers) else next(self.answers, Answer(500))


class _Listener(ThreadingHTTPServer):
    context: ssl.SSLContext | None = None
    daemon_threads = True

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.context is None:
            super().finish_request(request, client_address)
            return
        try:
            with self.context.wrap_socket(request, server_side=True) as secure:
                super().finish_request(secure, client_address)
        except OSError:
            pass

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Server

    def setup(self) -> None:
        super().setup()
        with self.script.lock:
            self.script.connections.append(self.connection)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(length)
        answer = self.script.next(
            Asked(self.command, parts.path, parse_qsl(parts.query), headers, body, tuple(self.headers.items()))
        )
        if not answer.status:
            self._reset()
            return
        if isinstance(answer.body, (bytes, dict, list)):
            data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self._head(answer, {"Content-Length": str(len(data))})
            self.wfile.write(data)
            return
        self._head(answer, {"Transfer-Encoding": "chunked"})
        for chunk in answer.body:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if answer.cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _head(self, answer: Answer, more: dict[str, str]) -> None:
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **more, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, *_: object) -> None:
        pass


def kubeconfig(path: Path, server: str, *, user: Any = None, cluster: Any = None, context: str = "test") -> Path:
    """Write a kubeconfig with one context and give its path."""
    data = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(json.dumps(data))
    return path
