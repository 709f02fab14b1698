"""WebSockets to a pod's subresources: websocket-client opens them (TLS, proxies, handshake), frames are ours."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nemo_run import exceptions as exc
from nemo_run._kube.waiting import SILENCE

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run._kube.streams import WebSocketTarget


@dataclass(frozen=True)
class Door:
    """A subresource that a websocket leads to, and what to call it where it stays shut."""

    api: KubeApi
    namespace: str
    what: str
    right: str
    """The subresource that a Role has to name."""
    target: Callable[[], WebSocketTarget]
    """Gives where it is, with the credentials of that moment."""
    protocols: Sequence[str]

    @contextmanager
    def opened(self) -> Iterator[tuple[socket.socket, str]]:
        """
        Open the connection and give its socket and protocol; close it at the end, said or not.

        Raises:
            NotAuthorized, NotFound, Rejected, ServerError: the server refused.
            Unreachable: no connection.
        """
        try:
            connection = self._open()
        except exc.KubeError as error:
            if error.status != 401 and not isinstance(error.__cause__, ssl.SSLError):
                raise
            self.api.renew()
            connection = self._open()
        try:
            yield connection.sock, connection.getsubprotocol() or ""
        finally:
            connection.shutdown()

    def refused(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> exc.KubeError:
        """Give the error that an answer of the server means."""
        error = self.api.error(self.what, status, body, headers, namespace=self.namespace)
        if isinstance(error, exc.NotAuthorized) and status == 403:
            verb = self.right.rpartition("/")[2]
            error.message += f"; {verb} needs the verbs get and create on {self.right} in this namespace"
        return error

    def unreachable(self, why: str, kind: type[exc.Unreachable] = exc.Unreachable) -> exc.Unreachable:
        """Give the error for a connection that did not come about, or ended."""
        return kind(self.what, why, server=self.api.server, context=self.api.context, namespace=self.namespace)

    def _open(self) -> Any:
        import websocket
        from urllib3._collections import HTTPHeaderDict

        target = self.target()
        try:
            return websocket.create_connection(
                target.url,
                timeout=SILENCE.handshake,
                header=target.headers,
                sslopt=target.sslopt,
                subprotocols=list(self.protocols),
                suppress_origin=True,
                redirect_limit=0,
                **target.proxy,
            )
        except websocket.WebSocketBadStatusException as error:
            body = getattr(error, "resp_body", None) or b""
            headers = HTTPHeaderDict(getattr(error, "resp_headers", None) or {})
            raise self.refused(error.status_code, body, headers) from error
        except (websocket.WebSocketException, OSError) as error:
            raise self.unreachable(str(error)) from error
