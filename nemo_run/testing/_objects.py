"""The verbs on objects: create, get, list, watch, update, patch, delete."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from nemo_run._kube.resources import CLAIM, POD, Resource
from nemo_run.testing import _requests as asked
from nemo_run.testing._errors import ApiError, about
from nemo_run.testing._faults import Faults, StreamCut
from nemo_run.testing._kinds import SERVICE, SERVICE_ACCOUNT, WITH_STATUS
from nemo_run.testing._patches import applied
from nemo_run.testing._paths import Target
from nemo_run.testing._store import Review, Store, Subscription

Json = dict[str, Any]

WATCH_SECONDS = 1800.0
"""A watch that names no end gets this one."""

_RETURNED_WHEN_DELETED = (POD, CLAIM, SERVICE, SERVICE_ACCOUNT)
_NOT_ALLOWED = "the server does not allow this method on the requested resource"


class Objects:
    """Answers requests for objects out of a store."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    async def answer(self, request: web.Request, target: Target) -> web.StreamResponse:
        """
        Do what *request* asks of *target*.

        Raises:
            ApiError: it cannot be done.
        """
        verb = (request.method, "one" if target.name else "all")
        if target.sub and (target.sub != "status" or target.kind.plural not in WITH_STATUS):
            raise ApiError(404, "NotFound", "the server could not find the requested resource", details={})
        if verb == ("GET", "one"):
            return answer(self._store.get(target.kind, target.namespace, target.name))
        if verb == ("GET", "all"):
            watching = asked.flag(request.query, "watch")
            return await self._watch(request, target) if watching else self._list(request, target)
        if verb == ("POST", "all") and not (target.kind.namespaced and not target.namespace):
            return await self._create(request, target)
        if verb == ("PUT", "one"):
            return await self._update(request, target)
        if verb == ("PATCH", "one"):
            return await self._patch(request, target)
        if verb == ("DELETE", "one"):
            return await self._delete(request, target)
        if verb == ("DELETE", "all"):
            return await self._delete_all(request, target)
        raise ApiError(405, "MethodNotAllowed", _NOT_ALLOWED, details={})

    async def _create(self, request: web.Request, target: Target) -> web.Response:
        body = await asked.object_of(request, target.kind)
        review, dry = asked.review(request.query), asked.dry_run(request.query)
        made = self._store.create(target.kind, target.namespace, body, review=review, dry_run=dry)
        return answer(made, status=201, review=review)

    def _list(self, request: web.Request, target: Target) -> web.Response:
        query, kind = request.query, target.kind
        version = self._store.changes.version
        if (wanted := asked.number(query, "resourceVersion")) is not None and wanted > version:
            raise ApiError(504, "Timeout", f"Too large resource version: {wanted}, current: {version}")
        items = self._store.list(
            kind, target.namespace, labels=query.get("labelSelector", ""), fields=query.get("fieldSelector", "")
        )
        items, left, token = self._page(items, query, target)
        meta: Json = {"resourceVersion": str(version)}
        if kind.group and "." in kind.group:
            meta["continue"] = token
        else:
            items = [{key: item[key] for key in item if key not in ("kind", "apiVersion")} for item in items]
        if token:
            meta.update({"continue": token, "remainingItemCount": left})
        return answer({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta, "items": items})

    def _page(self, items: list[Json], query: Any, target: Target) -> tuple[list[Json], int, str]:
        """Give the items after the continue token, up to the limit, how many are left, and the next token."""
        version = self._store.changes.version
        if token := query.get("continue"):
            version, start = asked.continue_from(token)
            self._store.changes.check(
                version,
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter.",
            )
            items = [item for item in items if _key(item, target) > start]
        limit = asked.number(query, "limit") or len(items)
        page, left = items[:limit], len(items) - limit
        return page, left, asked.continue_token(version, _key(page[-1], target)) if left > 0 else ""

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        query = request.query
        since = asked.number(query, "resourceVersion")
        seconds = asked.number(query, "timeoutSeconds") or WATCH_SECONDS
        selectors = {"labels": query.get("labelSelector", ""), "fields": query.get("fieldSelector", "")}
        stream = _EventStream(request, self._faults)
        initial = asked.flag(query, "sendInitialEvents") or not since
        try:
            events = self._store.subscribe(
                target.kind, target.namespace, **selectors, since=None if initial else since, initial=initial
            )
        except ApiError as error:
            if error.status != 410:
                raise
            await stream.open()
            await stream.send("ERROR", error.body())
            return stream.response
        try:
            await asyncio.wait_for(self._tell(stream, events, target.kind, query), seconds)
        except asyncio.TimeoutError:
            pass
        except StreamCut:
            cut(request)
        except ConnectionError:
            pass  # the client has gone, as clients of watches do
        finally:
            events.close()
        return stream.response

    async def _tell(self, stream: _EventStream, events: Subscription, kind: Resource, query: Any) -> None:
        version = self._store.changes.version
        marked = asked.flag(query, "sendInitialEvents")
        await stream.open()
        while marked and (event := events.next_waiting()) is not None:
            await stream.send(event.type, event.object)
        if marked:
            meta = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
            await stream.send("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta})
        async for event in events:
            await stream.send(event.type, event.object)

    async def _update(self, request: web.Request, target: Target) -> web.Response:
        body = await asked.object_of(request, target.kind)
        review, dry = asked.review(request.query), asked.dry_run(request.query)
        meta = body["metadata"]
        if meta.setdefault("name", target.name) != target.name:
            message = "the name of the object ({}) does not match the name on the URL ({})"
            raise ApiError(400, "BadRequest", message.format(meta["name"], target.name))
        if target.kind.namespaced:
            meta.setdefault("namespace", target.namespace)
        status = target.sub == "status"
        return answer(self._store.update(target.kind, body, status=status, review=review, dry_run=dry), review=review)

    async def _patch(self, request: web.Request, target: Target) -> web.Response:
        patch = await asked.patch_of(request, target.kind)
        review, dry = asked.review(request.query), asked.dry_run(request.query)
        kind, where, name, status = target.kind, target.namespace, target.name, target.sub == "status"
        if request.content_type == asked.APPLY_PATCH:
            patch.setdefault("metadata", {}).pop("managedFields", None)
            if not any(obj["metadata"]["name"] == name for obj in self._store.list(kind, where)):
                made = self._store.create(kind, where, patch, review=review, dry_run=dry)
                return answer(made, status=201, review=review)
        if request.content_type == asked.JSON_PATCH:
            new = applied(self._store.get(kind, where, name), patch)
            return answer(self._store.update(kind, new, status=status, review=review, dry_run=dry), review=review)
        return answer(
            self._store.patch(kind, where, name, patch, status=status, review=review, dry_run=dry), review=review
        )

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        gone = self._remove(target.kind, target.namespace, target.name, await asked.delete_options(request))
        kind = target.kind
        if kind in _RETURNED_WHEN_DELETED or gone["metadata"].get("finalizers"):
            return answer(gone)
        details = {**about(kind, target.name), "uid": gone["metadata"]["uid"]}
        return answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})

    async def _delete_all(self, request: web.Request, target: Target) -> web.Response:
        options = await asked.delete_options(request)
        kind, query = target.kind, request.query
        chosen = self._store.list(
            kind, target.namespace, labels=query.get("labelSelector", ""), fields=query.get("fieldSelector", "")
        )
        for obj in chosen:
            self._remove(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"], options)
        meta = {"resourceVersion": str(self._store.changes.version)}
        return answer({"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta, "items": chosen})

    def _remove(self, kind: Resource, namespace: str, name: str, options: Json) -> Json:
        return self._store.delete(
            kind,
            namespace,
            name,
            grace=options.get("gracePeriodSeconds"),
            uid=(options.get("preconditions") or {}).get("uid"),
            propagation=options.get("propagationPolicy") or "Background",
            dry_run=bool(options.get("dryRun")),
        )


class _EventStream:
    """The answer to a watch: one JSON document a line, for as long as it lasts."""

    def __init__(self, request: web.Request, faults: Faults) -> None:
        self.response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._request = request
        self._meter = faults.for_stream("watch")

    async def open(self) -> None:
        """Send the headers."""
        await self.response.prepare(self._request)
        await self._meter.check()

    async def send(self, change: str, obj: Json) -> None:
        """Send one event."""
        line = json.dumps({"type": change, "object": obj}, separators=(",", ":")).encode() + b"\n"
        await self.response.write(self._meter.take(line))
        await self._meter.check()


def answer(body: Json, *, status: int = 200, review: Review | None = None) -> web.Response:
    """Give the response that carries *body*, and the warnings of *review*."""
    text = json.dumps(body, separators=(",", ":"))
    response = web.Response(text=text, status=status, content_type="application/json", charset=None)
    response.headers["Content-Type"] = "application/json"
    for warning in review.warnings if review else []:
        escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{escaped}"')
    return response


def cut(request: web.Request) -> None:
    """Break the connection off, as a dying proxy does."""
    if request.transport is not None:
        request.transport.abort()


def _key(obj: Json, target: Target) -> str:
    meta = obj["metadata"]
    everywhere = target.kind.namespaced and not target.namespace
    return f"{meta['namespace']}/{meta['name']}" if everywhere else str(meta["name"])
