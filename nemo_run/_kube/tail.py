"""One pod's log, read in a thread from its first line to its last, over restarts and broken connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from nemo_run._kube.demux import GAP, Lines, LogLine, Resume, stamped
from nemo_run.exceptions import KubeError, NotFound, Rejected, ServerError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run._kube.streams import LogStream

Json = dict[str, Any]

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation (and, from Kubernetes 1.28, label) with a pod's number in an Indexed Job."""

_KUBELETS_OWN = ("unable to retrieve container logs for ", "failed to try resolving symlinks in path ")
"""How lines begin that the kubelet sends instead of a log that it has lost (pkg/kubelet/kuberuntime)."""

_TRIES = 3
"""Times that the log of an earlier container is asked for: it may go at any moment."""


class Tail(threading.Thread):
    """Reads one pod's container; lines, remarks and an error that ends all go to *send*."""

    def __init__(
        self,
        api: KubeApi,
        pod: Json,
        container: str,
        *,
        send: Callable[[list[LogLine] | str | KubeError], None],
        stop: threading.Event,
        started: Callable[[], int],
    ) -> None:
        metadata = pod["metadata"]
        super().__init__(name=f"log of {metadata['name']}", daemon=True)
        self._api = api
        self._namespace = metadata["namespace"]
        self._name = metadata["name"]
        self._node = node_index(pod)
        self._container = container
        self._send = send
        self._stop_asked = stop
        self._rounds_started = started
        self._news = threading.Condition()
        self._seen: tuple[int, Json | None] = (started(), pod)
        self._over = False
        self._stream: LogStream | None = None
        self._resume = Resume()
        self.spoke = False

    def offer(self, round_: int, pod: Json | None, *, over: bool) -> None:
        """Tell what a look at the pods gave: this one, or that it is gone; and whether the job has ended."""
        with self._news:
            self._seen = (round_, pod)
            self._over = over
            self._news.notify_all()

    def close(self) -> None:
        """Wake the thread, so that it ends; *stop* is set already."""
        with self._news:
            self._news.notify_all()
        if (stream := self._stream) is not None:
            stream.close()

    def run(self) -> None:
        """Read until the pod is over, or nobody wants it any more."""
        try:
            self._follow()
        except KubeError as error:
            self._send(error)

    def _follow(self) -> None:
        pod: Json | None = self._seen[1]
        restarts = 0
        complete = whole = False
        while pod is not None and not self._stop_asked.is_set():
            if (now := _restarts(pod, self._container)) > restarts:
                self._restarted(now, skipped=now - restarts - 1)
                restarts, complete = now, False
            if not complete:
                ended = _has_ended(pod, self._container)
                whole = self._read(ended=ended)
                complete = whole and ended
            if complete and (self._over or _is_final(pod)):
                return
            pod = self._next_look()
            if self._over and pod is not None and not has_started(pod, self._container):
                return
        if pod is None and not whole and not self._stop_asked.is_set():
            self._tell_gap()

    def _next_look(self) -> Json | None:
        """Wait for a look at the pods that began after now."""
        wanted = self._rounds_started() + 1
        with self._news:
            self._news.wait_for(lambda: self._stop_asked.is_set() or self._seen[0] >= wanted)
            return self._seen[1]

    def _restarted(self, restarts: int, *, skipped: int) -> None:
        """Read what is left of the container before; of several since the last look only that one's log is kept."""
        if skipped:
            self._tell_gap()
            self._resume.let_go()
        if not self._read_previous():
            self._tell_gap()
            self._resume.let_go()
        self._send(f"pod {self._name}: container {self._container} was restarted (restart {restarts})")

    def _read_previous(self) -> bool:
        """Read the container before the present one; tell whether its log is there."""
        for _ in range(_TRIES):
            try:
                self._pass_stream(previous=True, ended=True)
            except (NotFound, Rejected):
                return False
            except (ServerError, Unreachable) as error:
                self._pause(error)
                self._next_look()
            else:
                break
        else:
            return False
        if not self._resume.seeking:
            # The line seen last was there, so that the present container's log is new from its start.
            self._resume.let_go()
        return True

    def _read(self, *, ended: bool) -> bool:
        """Read on; tell whether the log came to its end, without a cut or a hole."""
        try:
            self._pass_stream(previous=False, ended=ended)
        except (NotFound, Rejected, ServerError, Unreachable) as error:
            # Not there yet, not there any more, or cut off: the next look tells.
            self._pause(error)
            return False
        if self._resume.seeking:
            self._bridge()
            return False
        return not self._stop_asked.is_set()

    def _pass_stream(self, *, previous: bool, ended: bool) -> None:
        """Pass on what is new of a log, up to its end or to a hole."""
        lines = Lines()
        with self._api.open_log(
            self._namespace,
            self._name,
            container=self._container,
            follow=not previous,
            since_time=None if previous else self._resume.since,
            timestamps=True,
            previous=previous,
        ) as stream:
            self._stream = stream
            if self._stop_asked.is_set():
                return
            self._resume.reattach()
            for chunk in stream:
                self._pass_on(lines.feed(chunk), previous=previous)
                if self._resume.missed:
                    return
        if ended:
            self._pass_on(lines.finish(), previous=previous)

    def _pause(self, error: KubeError) -> None:
        """Wait as long as the server asks for."""
        self._stop_asked.wait(error.retry_after or 0.0)

    def _bridge(self) -> None:
        """Look for the line seen last in the log of the container before: a restart shows there first."""
        self._read_previous()
        if self._resume.seeking:
            self._tell_gap()
            self._resume.let_go()

    def _pass_on(self, texts: Iterable[str], *, previous: bool) -> None:
        batch: list[LogLine] = []
        for text in texts:
            at, said = stamped(text)
            line = LogLine(self._name, self._node, said, at)
            if not at and said.startswith(_KUBELETS_OWN):
                self._send(f"pod {self._name}: {said}")
                batch.append(self._gap())
            elif self._resume.is_new(line):
                batch.append(line)
            elif self._resume.missed:
                if not previous:
                    break
                batch.append(self._gap())
                self._resume.let_go()
                if self._resume.is_new(line):
                    batch.append(line)
        if batch:
            self.spoke = True
            self._send(batch)

    def _gap(self) -> LogLine:
        return LogLine(self._name, self._node, GAP, gap=True)

    def _tell_gap(self) -> None:
        self._send([self._gap()])


def node_index(pod: Json) -> int | None:
    """Give the pod's number in its Indexed Job: torchrun's node rank."""
    metadata = pod.get("metadata") or {}
    for place in ("annotations", "labels"):
        number = (metadata.get(place) or {}).get(COMPLETION_INDEX)
        if number is not None:
            return int(number)
    return None


def has_started(pod: Json, container: str) -> bool:
    """Tell whether the container runs or ever ran: whether it has a log."""
    status = _status(pod, container)
    state = status.get("state") or {}
    return "running" in state or "terminated" in state or bool(status.get("lastState"))


def _has_ended(pod: Json, container: str) -> bool:
    return "running" not in (_status(pod, container).get("state") or {})


def _restarts(pod: Json | None, container: str) -> int:
    return int(_status(pod or {}, container).get("restartCount") or 0)


def _is_final(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _status(pod: Json, container: str) -> Json:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((status for status in statuses if status["name"] == container), {})
