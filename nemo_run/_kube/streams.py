"""Answers that are read while they come: logs and watches; and what a websocket needs to get there."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from nemo_run._kube.auth import Credentials

CHUNK = 64 * 1024


class LogStream:
    """
    The bytes of an answer, in chunks as they come.

    Another thread may close it: the reading one then comes to its end.
    """

    def __init__(self, response: Any, failed: Callable[[Exception], Exception]) -> None:
        self._response = response
        self._failed = failed
        self._socket = _socket_of(response)
        self._closed = False
        self._reading = False

    def __enter__(self) -> LogStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """
        Give the chunks up to the answer's end.

        Raises:
            Unreachable: the connection broke before the end, or was silent for too long.
        """
        from urllib3.exceptions import HTTPError

        self._reading = True
        try:
            yield from self._response.stream(CHUNK)
        except (HTTPError, OSError) as problem:
            if not self._closed:
                raise self._failed(problem) from problem
        except (ValueError, AttributeError):
            # What reading from a connection gives that another thread has shut.
            if not self._closed:
                raise
        finally:
            self._reading = False
            # A connection that was read to the answer's end serves other requests now.
            self._socket = None
            self._response.close()

    def close(self) -> None:
        """End the stream, also under a thread that is waiting for its next bytes."""
        self._closed = True
        if self._socket is not None:
            # The plain socket's method: an SSLSocket's own would take its TLS state away from the reading thread.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        if not self._reading:
            self._response.close()


def _socket_of(response: Any) -> socket.socket | None:
    """Find the socket under an urllib3 response: the connection's, or where that gave it up, the body's."""
    found = getattr(getattr(response, "connection", None), "sock", None)
    for name in ("_fp", "fp", "raw", "_sock"):
        if isinstance(found, socket.socket):
            return found
        response = getattr(response, name, None)
        found = response
    return found if isinstance(found, socket.socket) else None


def lines_of(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Give the JSON objects, one a line, that *chunks* hold; a last one without its line's end was cut."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (json.loads(line) for line in whole if line.strip())


@dataclass(frozen=True)
class WebSocketTarget:
    """What ``websocket.create_connection`` needs to reach a subresource: the same way there as requests take."""

    url: str
    headers: list[str]
    """Who we are, as ``Name: value``; not to be shown."""
    sslopt: dict[str, Any]
    proxy: dict[str, Any]
    """Keyword arguments about the proxy; never empty, since websocket-client would then ask the environment."""

    @classmethod
    def to(cls, credentials: Credentials, path: str) -> WebSocketTarget:
        """Give the target for *path* (with its query)."""
        server = credentials.server
        scheme = "wss" if server.startswith("https") else "ws"
        return cls(
            url=f"{scheme}{server[server.index(':') :]}{path}",
            headers=[f"{name}: {value}" for name, value in credentials.headers()],
            sslopt=_ssl_options(credentials.configuration),
            proxy=_proxy_options(credentials.configuration.proxy),
        )


def _ssl_options(configuration: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": configuration.ssl_ca_cert}
    if not configuration.verify_ssl:
        options = {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    options["certfile"] = configuration.cert_file
    options["keyfile"] = configuration.key_file
    options["server_hostname"] = configuration.tls_server_name
    return {name: value for name, value in options.items() if value is not None}


def _proxy_options(proxy: str | None) -> dict[str, Any]:
    if not proxy:
        return {"http_no_proxy": ["*"]}
    parts = urlsplit(proxy)
    options: dict[str, Any] = {
        "http_proxy_host": parts.hostname,
        "http_proxy_port": parts.port or (1080 if parts.scheme.startswith("socks") else 80),
        "proxy_type": parts.scheme if parts.scheme.startswith("socks") else "http",
        # A name that no host has: an empty list would bring NO_PROXY back in.
        "http_no_proxy": ["-"],
    }
    if parts.username:
        options["http_proxy_auth"] = (unquote(parts.username), unquote(parts.password or ""))
    return options
