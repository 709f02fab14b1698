"""
Requests to one API server, each tried until it is answered.

Overload, server errors and broken connections are tried again with growing
pauses, within a limit; credentials that the server no longer takes are rebuilt
once from the configuration. What is left becomes one of our errors.
"""

from __future__ import annotations

import logging
import random
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from nemo_run._kube.answers import error_for, warnings_in
from nemo_run._kube.auth import Credentials
from nemo_run._kube.waiting import SILENCE, SYSTEM_CLOCK, Clock
from nemo_run.exceptions import KubeError, NemoRunError, NotAuthorized, ServerError, Unreachable

logger = logging.getLogger("nemo_run")

PATIENCE = 60.0
"""Seconds for which a request is tried again."""
FIRST_PATIENCE = 10.0
"""The same for a server that never answered yet: most often its address is wrong, or a VPN is off."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0


@dataclass(frozen=True)
class Request:
    """One request; *what* says in words what it is for."""

    what: str
    method: str
    path: str
    namespace: str = ""
    query: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    content_type: str = "application/json"
    stream: bool = False
    """Whether the caller reads the answer's body itself."""
    silence: float | None = None
    """Seconds without a byte of the answer after which it will not come; None: as for any answer."""

    def send(self, credentials: Credentials) -> Any:
        """Send it once and give urllib3's response."""
        from urllib3 import Timeout
        from urllib3._collections import HTTPHeaderDict

        headers = HTTPHeaderDict({"Accept": "application/json, */*", "User-Agent": "nemo_run"})
        if self.body is not None:
            headers["Content-Type"] = self.content_type
        for name, value in credentials.headers():
            headers.add(name, value)
        query = f"?{urlencode(self.query)}" if self.query else ""
        return credentials.pool.request(
            self.method,
            f"{credentials.server}{self.path}{query}",
            body=self.body,
            headers=headers,
            preload_content=not self.stream,
            timeout=Timeout(connect=SILENCE.connect, read=self.silence or SILENCE.answer),
            retries=False,
            redirect=False,
        )


class Wire:
    """One server, and the credentials for it; threads may share it."""

    def __init__(
        self,
        load: Callable[[], Credentials],
        *,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._load = load
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._credentials = load()
        self._answered = False
        self._warned: set[str] = set()
        self.server = self._credentials.server
        self.context = self._credentials.context

    def credentials(self) -> Credentials:
        """Give credentials that have not run out."""
        current = self._credentials
        if current.stale():
            self.renew(current)
        return self._credentials

    def renew(self, seen: Credentials) -> None:
        """Read the configuration anew, unless another thread did since *seen* was given."""
        with self._lock:
            if self._credentials is seen:
                logger.debug("reading the credentials for %s anew", self.server)
                self._credentials = self._load()

    def request(self, request: Request, *, patience: float = PATIENCE) -> Any:
        """
        Give the server's answer (urllib3's), its body read unless the request is a stream.

        Raises:
            KubeError: what the server said instead, or that it did not answer within *patience* seconds.
        """
        started = self._clock.now()
        pause = FIRST_PAUSE
        renewed = False
        while True:
            credentials = self.credentials()
            try:
                return self._once(request, credentials)
            except KubeError as error:
                if not renewed and _is_about_credentials(error):
                    renewed = True
                    self.renew(credentials)
                    continue
                if not _worth_another_try(error):
                    raise
                if not renewed and isinstance(error, Unreachable) and credentials.configuration.cert_file:
                    # With TLS 1.3 a server that refuses a client's certificate may just break off.
                    renewed = True
                    with suppress(NemoRunError):
                        self.renew(credentials)
                wait = max(pause * (0.5 + self._jitter() / 2), error.retry_after or 0.0)
                limit = patience if self._answered else min(patience, FIRST_PATIENCE)
                if self._clock.now() + wait > started + limit:
                    raise
                # A server's words may quote what it was sent, secrets too: only who raises the error knows them.
                answer = error.message if isinstance(error, Unreachable) else f"{error.status} {error.reason}".strip()
                logger.info("%s: %s; trying again in %.1f s", error.what, answer, wait)
            self._clock.sleep(wait)
            pause = min(pause * 2, LONGEST_PAUSE)

    def error(
        self, what: str, status: int, body: bytes = b"", headers: Any = None, *, namespace: str = ""
    ) -> KubeError:
        """Give the error that an answer means, with server and context in it."""
        return error_for(what, status, body, headers, server=self.server, context=self.context, namespace=namespace)

    def _once(self, request: Request, credentials: Credentials) -> Any:
        from urllib3.exceptions import HTTPError

        try:
            response = request.send(credentials)
            refusal = b"" if response.status < 300 else response.read() if request.stream else response.data
        except (HTTPError, OSError) as problem:
            raise self.no_answer(request, problem) from problem
        self._answered = True
        self._pass_on_warnings(response)
        if response.status < 300:
            return response
        response.release_conn()
        error = self.error(request.what, response.status, refusal, response.headers, namespace=request.namespace)
        if request.method == "POST" and error.reason == "Conflict":
            # Not "exists already": a quota changed under the server's hands, and it asks for another try.
            error = ServerError(*error.args, **_facts(error))
        raise error

    def no_answer(self, request: Request, problem: Exception) -> Unreachable:
        """Give the error for a request whose answer did not come, or broke off."""
        from urllib3.exceptions import SSLError

        causes = _causes(problem)
        # A TLS connection that merely ended (a server that restarts) says nothing about certificates.
        ended = any(isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError) for cause in causes)
        untrusted = not ended and any(isinstance(cause, SSLError | ssl.SSLError) for cause in causes)
        said = str(causes[-1]) or type(causes[-1]).__name__
        return Unreachable(
            request.what,
            f"TLS: {said}" if untrusted else said,
            reason=UNTRUSTED if untrusted else "",
            server=self.server,
            context=self.context,
            namespace=request.namespace,
        )

    def _pass_on_warnings(self, response: Any) -> None:
        for text in warnings_in(response.headers):
            if text not in self._warned:
                self._warned.add(text)
                logger.warning("the Kubernetes API server says: %s", text)


UNTRUSTED = "Untrusted"
"""The reason of an error about a TLS certificate: nothing was sent."""


def _is_about_credentials(error: KubeError) -> bool:
    return error.status == 401 if isinstance(error, NotAuthorized) else error.reason == UNTRUSTED


def _worth_another_try(error: KubeError) -> bool:
    if isinstance(error, Unreachable):
        return error.status is None and error.reason != UNTRUSTED
    return isinstance(error, ServerError) and error.status not in (410, 501)


def _facts(error: KubeError) -> dict[str, Any]:
    names = ("status", "reason", "server", "context", "namespace", "retry_after")
    return {name: getattr(error, name) for name in names}


def _causes(problem: BaseException) -> list[BaseException]:
    """Give *problem* and what lies behind it: urllib3 keeps the true cause as an argument, or chains it."""
    found: list[BaseException] = []
    inner: BaseException | None = problem
    while inner is not None and inner not in found:
        found.append(inner)
        arguments = [arg for arg in inner.args if isinstance(arg, BaseException)]
        inner = arguments[-1] if arguments else inner.__cause__ or inner.__context__
    return found
