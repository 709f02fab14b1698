"""The HTTP side of LocalKube: who asks, for what, what goes wrong on purpose, and who answers."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from nemo_run._kube.resources import ACCESS_REVIEW, POD, Resource
from nemo_run.testing import _access, _discovery
from nemo_run.testing import _requests as asked
from nemo_run.testing._errors import ApiError
from nemo_run.testing._faults import Cut, Faults, Respond
from nemo_run.testing._kinds import Kinds
from nemo_run.testing._objects import Objects, answer, cut
from nemo_run.testing._paths import Target, target
from nemo_run.testing._refusals import refusal
from nemo_run.testing._store import Store
from nemo_run.testing._streams import Streams

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OPEN = ("/healthz", "/livez", "/readyz", "/version")
"""Paths that are answered without a token."""

_LARGEST_BODY = 3 * 1024 * 1024
"""What etcd and the API server take at most."""


@dataclass(frozen=True)
class Request:
    """One request that the server has answered; status 0: it was cut off."""

    method: str
    path: str
    status: int
    query: str = field(default="", compare=False)


class Server:
    """An API server over *store* on a free port of the loopback interface."""

    def __init__(
        self, store: Store, kinds: Kinds, *, token: str, faults: Faults, schemas: Mapping[Resource, Json] | None = None
    ) -> None:
        self.requests: list[Request] = []
        self.rules: Sequence[Json] | None = None
        self.streams = Streams(store, faults)
        self.port = 0
        self._store = store
        self._kinds = kinds
        self._token = token
        self._secret = f"/{secrets.token_urlsafe(12)}"
        self._faults = faults
        self._schemas = schemas or {}
        self._objects = Objects(store, faults)
        self._runner: web.AppRunner | None = None
        self._late: set[asyncio.Task[web.StreamResponse]] = set()

    @property
    def address(self) -> str:
        """Give ``host:port``."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """
        Give the base URL for those who may use the server.

        It ends with a secret, which stands for the token: kubectl sends no token without TLS.
        """
        return f"http://{self.address}{self._secret}"

    async def start(self) -> None:
        """Listen, and answer from now on."""
        app = web.Application(middlewares=[self._recorded, self._refusals], client_max_size=_LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        app.on_response_prepare.append(self._note)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """End all streams and listen no more."""
        self._store.changes.close()
        for delivery in self._late:
            delivery.cancel()
        if self._runner is not None and (server := self._runner.server):
            open_ones = [each.transport for each in server.connections]
            await self._runner.cleanup()
            # Closing waits for a reader that has stopped reading, and leaves what was accepted meanwhile.
            for transport in (*open_ones, *(each.transport for each in server.connections)):
                if transport is not None:
                    transport.abort()

    async def _note(self, request: web.Request, response: web.StreamResponse) -> None:
        self._record(request, response.status)

    def _record(self, request: web.Request, status: int) -> None:
        self.requests.append(Request(request.method, self._path(request), status, request.query_string))

    def _path(self, request: web.Request) -> str:
        if request.path.startswith(f"{self._secret}/"):
            return request.path[len(self._secret) :]
        return request.path

    @web.middleware
    async def _recorded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Meet the faults that are set for this request; a cut one is noted here, since nothing is answered."""
        path = self._path(request)
        if seconds := self._faults.delay(request.method, path, request.query_string):
            if request.method == "GET":
                await asyncio.sleep(seconds)
            else:
                return await self._delivered_late(request, handler, seconds)
        return await self._faced(request, handler, path)

    async def _delivered_late(self, request: web.Request, handler: Handler, seconds: float) -> web.StreamResponse:
        """Carry a change out as a slow proxy does: it has the whole of it, and its sender may be gone by then."""
        await request.read()

        async def deliver() -> web.StreamResponse:
            await asyncio.sleep(seconds)
            return await self._faced(request, handler, self._path(request))

        delivery = asyncio.create_task(deliver())
        self._late.add(delivery)
        delivery.add_done_callback(self._late.discard)
        return await asyncio.shield(delivery)

    async def _faced(self, request: web.Request, handler: Handler, path: str) -> web.StreamResponse:
        fault = self._faults.for_request(request.method, path, request.query_string)
        if fault is None:
            return await handler(request)
        if fault.carried_out:
            await handler(request)
        if isinstance(fault, Cut):
            self._record(request, 0)
            if fault.silent:
                await asyncio.Event().wait()
            cut(request)
        elif fault.by and (place := target(path, self._kinds)):
            name = place.name or await _name_in(request)
            watch = asked.flag(request.query, "watch")
            return _refused(refusal(fault.by, request.method, place, name, watch=watch))
        return _faulty(fault)

    @web.middleware
    async def _refusals(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ApiError as error:
            return _refused(error)
        except web.HTTPRequestEntityTooLarge:
            message = f"Request entity too large: limit is {_LARGEST_BODY}"
            return answer(ApiError(413, "RequestEntityTooLarge", message).body(), status=413)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        user, path = self._user(request), self._path(request)
        if path in _OPEN:
            return answer(_discovery.version()) if path == "/version" else web.Response(text="ok")
        place = target(path, self._kinds)
        if place is not None:
            self._authorise(user, request, place)
            if place.kind == POD and place.name and place.sub in ("log", "exec", "portforward", "binding"):
                return await self._subresource(request, place)
            return await self._objects.answer(request, place)
        if user == _access.ANONYMOUS:
            message = f'forbidden: User "{user}" cannot {request.method.lower()} path "{path}"'
            raise ApiError(403, "Forbidden", message, details={})
        if path == ACCESS_REVIEW.path() and request.method == "POST":
            return await self._access_review(request)
        if (document := self._document(path)) is not None:
            return answer(document)
        return web.Response(status=404, text="404 page not found\n")

    def _user(self, request: web.Request) -> str:
        """
        Give who asks.

        Raises:
            ApiError: the token is not ours (401).
        """
        given = request.headers.get("Authorization", "")
        if given and not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            raise ApiError(401, "Unauthorized", "Unauthorized")
        known = given or request.path.startswith(f"{self._secret}/")
        return _access.USER if known else _access.ANONYMOUS

    def _authorise(self, user: str, request: web.Request, place: Target) -> None:
        attempt = _access.attempt(request.method, place, watch=asked.flag(request.query, "watch"))
        rules: Sequence[Json] | None = [] if user == _access.ANONYMOUS else self.rules
        if rules is not None and not attempt.allowed_by(rules):
            raise attempt.refused(user)

    def _document(self, path: str) -> Json | None:
        parts = path.strip("/").split("/")
        kinds = self._kinds
        match parts:
            case ["api"]:
                return _discovery.core_versions(self.address)
            case ["apis"]:
                return _discovery.groups(kinds)
            case ["apis", group]:
                return _discovery.group(kinds, group)
            case ["api", version]:
                return _discovery.resources(kinds, "", version)
            case ["apis", group, version]:
                return _discovery.resources(kinds, group, version)
            case ["openapi", "v3"]:
                return _discovery.openapi_index(kinds)
            case ["openapi", "v3", "api", version]:
                return _discovery.openapi(kinds, "", version, self._schemas)
            case ["openapi", "v3", "apis", group, version]:
                return _discovery.openapi(kinds, group, version, self._schemas)
        return None

    async def _access_review(self, request: web.Request) -> web.Response:
        body = await asked.object_of(request, ACCESS_REVIEW)
        body["metadata"].setdefault("creationTimestamp", None)
        return answer({**body, "status": _access.review(body.get("spec", {}), self.rules)}, status=201)

    async def _subresource(self, request: web.Request, place: Target) -> web.StreamResponse:
        verb = (request.method, place.sub)
        if verb == ("GET", "log"):
            return await self.streams.log(request, place)
        if verb in (("GET", "exec"), ("POST", "exec")):
            return await self.streams.exec(request, place)
        if verb in (("GET", "portforward"), ("POST", "portforward")):
            return await self.streams.portforward(request, place)
        if verb == ("POST", "binding"):
            return answer(self._bind(await request.json(), place), status=201)
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _bind(self, binding: Json, place: Target) -> Json:
        """Put a pod on a node, as a scheduler does."""
        pod = self._store.get(POD, place.namespace, place.name)
        pod["spec"]["nodeName"] = binding["target"]["name"]
        self._store.update(POD, pod)
        condition = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        self._store.patch_status(POD, place.namespace, place.name, {"conditions": [condition]})
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _refused(error: ApiError) -> web.Response:
    response = answer(error.body(), status=error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = f"{error.retry_after:g}"
    return response


async def _name_in(request: web.Request) -> str:
    """Give the name of the object that is sent."""
    try:
        return str((await request.json())["metadata"]["name"])
    except (ValueError, LookupError, TypeError):
        return ""


def _faulty(fault: Respond | Cut) -> web.Response:
    """Give the answer that a fault puts in the place of the real one."""
    if isinstance(fault, Cut):
        return web.Response(status=499)
    body = fault.status_body()
    if isinstance(body, str):
        response = web.Response(text=body, status=fault.status)
    else:
        response = answer(body, status=fault.status)
    if fault.retry_after is not None:
        response.headers["Retry-After"] = f"{fault.retry_after:g}"
    return response
