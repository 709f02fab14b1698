"""
The door to a cluster: objects in and out as plain dicts, logs and watches as streams.

Objects are never turned into the ``kubernetes`` package's models: those drop or
refuse fields that they do not know, differently in each of its releases.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from nemo_run._kube import auth
from nemo_run._kube.resources import ACCESS_REVIEW, POD, Resource
from nemo_run._kube.streams import LogStream, WebSocketTarget, lines_of
from nemo_run._kube.waiting import SILENCE, SYSTEM_CLOCK, Clock
from nemo_run._kube.watching import Event, Watch
from nemo_run._kube.wire import PATIENCE, Request, Wire
from nemo_run.exceptions import KubeError, ServerError, Unreachable

Json = dict[str, Any]
Objects = list[Json]
Query = list[tuple[str, str]]

PAGE = 500
"""Objects asked for at a time."""


class KubeApi:
    """
    One cluster, as one kubeconfig context reaches it; threads may share it.

    Every method raises only the errors of ``nemo_run.exceptions``. Requests that
    meet an overloaded server or a broken connection are tried again for
    *patience* seconds, creates too: one that was carried out although its answer
    got lost then raises Conflict, and the caller knows its own object.
    """

    def __init__(self, wire: Wire, *, clock: Clock = SYSTEM_CLOCK, patience: float = PATIENCE) -> None:
        self._wire = wire
        self._clock = clock
        self._patience = patience
        self._openapi: dict[tuple[str, str], Json] = {}
        self._asking = threading.Lock()
        self.server = wire.server
        self.context = wire.context

    def patient(self, seconds: float) -> KubeApi:
        """Give the same door with another patience: 0 tries a request once."""
        return KubeApi(self._wire, clock=self._clock, patience=seconds)

    def create(self, kind: Resource, namespace: str, body: Json, *, dry_run: bool = False, strict: bool = True) -> Json:
        """Create an object and give it as stored; *strict* refuses fields that the server does not know."""
        query = [("fieldValidation", "Strict" if strict else "Warn"), *([("dryRun", "All")] if dry_run else [])]
        name = body.get("metadata", {}).get("name", "")
        what = f"create {kind.kind} {name}".rstrip() + (" (dry run)" if dry_run else "")
        return self._json(Request(what, "POST", kind.path(namespace), namespace, query, _encoded(body)))

    def get(self, kind: Resource, namespace: str, name: str) -> Json:
        """Give an object."""
        return self._json(Request(f"get {kind.kind} {name}", "GET", kind.path(namespace, name), namespace))

    def list(self, kind: Resource, namespace: str, *, labels: str = "", fields: str = "") -> Objects:
        """Give all objects that the selectors match."""
        return self._list(kind, namespace, labels, fields)[0]

    def patch(self, kind: Resource, namespace: str, name: str, body: Json) -> Json:
        """Merge *body* into an object (lists are replaced whole) and give it as stored."""
        what = f"patch {kind.kind} {name}"
        content_type = "application/merge-patch+json"
        path = kind.path(namespace, name)
        return self._json(Request(what, "PATCH", path, namespace, (), _encoded(body), content_type))

    def delete(
        self,
        kind: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """
        Ask for an object's deletion; with *uid*, only if it is still that one.

        Raises:
            NotFound: it is not there.
            Conflict: another object has the name now.
        """
        body: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        what = f"delete {kind.kind} {name}"
        self._wire.request(
            Request(what, "DELETE", kind.path(namespace, name), namespace, (), _encoded(body)), patience=self._patience
        )

    def watch(self, kind: Resource, namespace: str, *, labels: str = "", fields: str = "", timeout: float) -> Watch:
        """Give what is there as ADDED, then each change, for *timeout* seconds."""
        selectors = _selectors(labels, fields)
        return Watch(
            lambda: self._list(kind, namespace, labels, fields),
            lambda version, span, opened: self._watch_once(kind, namespace, selectors, version, span, opened),
            timeout=timeout,
            clock=self._clock,
        )

    def open_log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str,
        follow: bool = False,
        since_time: str | None = None,
        timestamps: bool = False,
        previous: bool = False,
        tail_lines: int | None = None,
    ) -> LogStream:
        """Give a container's log as a stream of bytes, whatever they are; close it."""
        given: Json = {
            "container": container,
            "follow": "true" if follow else None,
            "sinceTime": since_time,
            "timestamps": "true" if timestamps else None,
            "previous": "true" if previous else None,
            "tailLines": tail_lines,
        }
        query = [(name, str(value)) for name, value in given.items() if value is not None]
        what = f"read log of pod {pod}"
        return self._stream(
            Request(what, "GET", POD.path(namespace, pod, "log"), namespace, query), SILENCE.log if follow else None
        )

    def can(self, verb: str, resource: str, *, namespace: str, subresource: str = "", group: str = "") -> bool:
        """Tell whether we have a right, by asking the server."""
        attributes = {
            "verb": verb, "resource": resource, "namespace": namespace, "subresource": subresource, "group": group,
        }  # fmt: skip
        review = {
            "apiVersion": ACCESS_REVIEW.api_version,
            "kind": ACCESS_REVIEW.kind,
            "spec": {"resourceAttributes": {name: value for name, value in attributes.items() if value}},
        }
        answer = self._json(
            Request("ask for our rights", "POST", ACCESS_REVIEW.path(), namespace, (), _encoded(review))
        )
        return bool(answer.get("status", {}).get("allowed"))

    def openapi(self, group: str, version: str) -> Json:
        """Give the OpenAPI v3 document of a group and version, asked for once; NotFound where it is not served."""
        with self._asking:
            if (key := (group, version)) not in self._openapi:
                place = f"apis/{group}/{version}" if group else f"api/{version}"
                self._openapi[key] = self._json(Request(f"read the schema of {place}", "GET", f"/openapi/v3/{place}"))
            return self._openapi[key]

    def websocket_target(
        self, namespace: str, pod: str, *, container: str, command: Sequence[str], stdin: bool
    ) -> WebSocketTarget:
        """Give where and how to open the websocket that runs *command* in a container."""
        query = [("container", container), *(("command", part) for part in command)]
        query += [("stdin", "true" if stdin else "false"), ("stdout", "true"), ("stderr", "true"), ("tty", "false")]
        return WebSocketTarget.to(self._wire.credentials(), f"{POD.path(namespace, pod, 'exec')}?{urlencode(query)}")

    def forwarding_target(self, namespace: str, pod: str, port: int) -> WebSocketTarget:
        """Give where and how to open the websocket that leads to a port inside a pod."""
        query = urlencode([("ports", str(port))])
        return WebSocketTarget.to(self._wire.credentials(), f"{POD.path(namespace, pod, 'portforward')}?{query}")

    def renew(self) -> None:
        """Read the credentials anew: for a websocket that was refused with 401 or for its TLS certificate."""
        self._wire.renew(self._wire.credentials())

    def error(
        self, what: str, status: int, body: bytes = b"", headers: Any = None, *, namespace: str = ""
    ) -> KubeError:
        """Give the error that an answer to a websocket's handshake means."""
        return self._wire.error(what, status, body, headers, namespace=namespace)

    def _json(self, request: Request) -> Json:
        response = self._wire.request(request, patience=self._patience)
        try:
            answer = json.loads(response.data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._wire.error(request.what, response.status, response.data, namespace=request.namespace)
        return answer

    def _list(self, kind: Resource, namespace: str, labels: str, fields: str) -> tuple[Objects, str]:
        objects: Objects = []
        page = [("limit", str(PAGE))]
        while True:
            query = [*_selectors(labels, fields), *page]
            try:
                answer = self._json(Request(f"list {kind.plural}", "GET", kind.path(namespace), namespace, query))
            except ServerError as error:
                if error.status != 410 or not page:
                    raise
                # The server forgot where the last page ended: everything at once then.
                objects, page = [], []
                continue
            objects += answer.get("items") or []
            metadata = answer.get("metadata") or {}
            if not (token := metadata.get("continue")):
                return objects, metadata.get("resourceVersion", "")
            page = [("limit", str(PAGE)), ("continue", token)]

    def _stream(self, request: Request, silence: float | None) -> LogStream:
        request = Request(**{**request.__dict__, "stream": True, "silence": silence})
        response = self._wire.request(request, patience=self._patience)
        return LogStream(response, lambda problem: self._wire.no_answer(request, problem))

    def _watch_once(
        self,
        kind: Resource,
        namespace: str,
        selectors: Query,
        version: str,
        span: float,
        opened: Callable[[LogStream], None],
    ) -> Iterator[Event]:
        """Give one watch request's events; a last ERROR one means that the place is forgotten."""
        seconds = math.ceil(span)
        query = [*selectors, ("resourceVersion", version), ("watch", "true"), ("allowWatchBookmarks", "true")]
        query.append(("timeoutSeconds", str(seconds)))
        request = Request(f"watch {kind.plural}", "GET", kind.path(namespace), namespace, query)
        try:
            stream = self._stream(request, seconds + 15.0)
        except ServerError as error:
            if error.status != 410:
                raise
            yield Event("ERROR", {})
            return
        opened(stream)
        with stream, contextlib.suppress(Unreachable):
            for told in lines_of(stream):
                status = told["object"]
                if told["type"] == "ERROR" and status.get("code") != 410:
                    raise self.error(request.what, status.get("code", 500), _encoded(status), namespace=namespace)
                yield Event(told["type"], status)


_known: dict[Any, tuple[Any, KubeApi]] = {}
"""By context and files: how the files were then, and the door."""
_lock = threading.Lock()


def connect(*, kubeconfig: str | os.PathLike[str] | None = None, context: str | None = None) -> KubeApi:
    """
    Give the door to the cluster that a kubeconfig and context name; the same one as long as the files stay the same.

    No request is sent yet.

    Raises:
        ConfigError: the file or context asked for is not there.
        Unreachable: the configuration is broken.
    """
    files = auth.locate(kubeconfig)
    key, stamps = (context, files), [_stamp(file) for file in files]
    with _lock:
        seen, api = _known.get(key, (None, None))
        if api is None or seen != stamps:
            api = KubeApi(Wire(lambda: auth.load(files, context)))
            _known[key] = (stamps, api)
        return api


def _stamp(file: Path) -> tuple[int, int]:
    try:
        stat = file.stat()
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size)


def _encoded(body: Json) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _selectors(labels: str, fields: str) -> Query:
    return [pair for pair in (("labelSelector", labels), ("fieldSelector", fields)) if pair[1]]
