"""One pod's log, read in a thread from its first line to its last, over restarts and broken connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nemo_run._kube.demux import Lines, LogLine, Resume, gap, stamped
from nemo_run.exceptions import KubeError, NotAuthorized, NotFound, Rejected, ServerError, Unreachable

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
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds until a log is asked for again where nothing new was heard of the pod; doubled each time."""
_LAST_START = 2.0
"""Seconds after the job's end in which a start of the container may be heard of that was on its way."""


class Tail(threading.Thread):
    """Reads one pod's container; lines, remarks and an error that ends all go to *send*."""

    def __init__(
        self,
        api: KubeApi,
        pod: Json,
        container: str,
        *,
        gone: bool = False,
        send: Callable[[list[LogLine] | str | KubeError], None],
        stop: threading.Event,
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
        self._heard = threading.Condition()
        self._now = _Standing(pod, gone)
        self._stream: LogStream | None = None
        self._resume = Resume()
        self._pause = _PAUSE
        self._attempt = 1
        """Which start of the container is read; one more than its restarts."""
        self._opened = 0
        """The attempt whose log was last opened while it ran: the log was no other's."""
        self._read_out = 0
        """The attempt whose log was last read to an end that was no cut."""
        self._half: list[str] = []
        """What its log ended with that may yet become a line."""
        self.spoke = False
        self.stuck = False
        """Whether the log could not be read when it was last asked for."""

    def offer(self, pod: Json, *, gone: bool) -> None:
        """Tell how the pod stands now, or did when it was deleted."""
        with self._heard:
            self._now = _Standing(pod, gone, self._now.over, self._now.number + 1)
            self._heard.notify_all()

    def end(self) -> None:
        """Tell that the job has ended: what there is of the log is all, once it was read."""
        with self._heard:
            self._now = replace(self._now, over=True, number=self._now.number + 1)
            self._heard.notify_all()

    def close(self) -> None:
        """Wake the thread, so that it ends; *stop* is set already."""
        with self._heard:
            self._heard.notify_all()
        if (stream := self._stream) is not None:
            stream.close()

    def run(self) -> None:
        """Read until the pod is over, or nobody wants it any more."""
        try:
            self._follow()
        except KubeError as error:
            self._send(error)

    def _follow(self) -> None:
        complete = False
        while not self._stop_asked.is_set():
            now = self._now
            attempt = _restarts(now.pod, self._container) + 1
            if attempt > self._attempt:
                self._restarted(now.pod)
                self._attempt, complete = attempt, False
            if not complete:
                ended = now.gone or _has_ended(now.pod, self._container)
                complete = self._read(ended=ended) and ended
            if self._is_last(now, complete=complete):
                return
            last = complete and now.over
            pause = _LAST_START if last else None if complete else self._next_pause()
            if not self._wait_for_news(now, pause) and last:
                return

    def _is_last(self, now: _Standing, *, complete: bool) -> bool:
        """Tell whether there is nothing more to come of the pod; where it took lines with it, say so."""
        if self._stop_asked.is_set():
            return True
        if now.gone:
            if self._read_out == self._attempt:
                self._give_half()
            elif not complete:
                self._tell_gap(self._attempt)
            return True
        if complete:
            return _is_final(now.pod)
        return now.over and not has_started(now.pod, self._container)

    def _wait_for_news(self, known: _Standing, seconds: float | None) -> bool:
        """Wait until something is heard of the pod that was not *known* yet; tell whether it was."""
        with self._heard:
            heard = self._heard.wait_for(
                lambda: self._stop_asked.is_set() or self._now.number > known.number, timeout=seconds
            )
        if heard:
            self._pause = _PAUSE
        return heard

    def _next_pause(self) -> float:
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        return pause

    def _is_read_out(self) -> bool:
        """
        Tell whether the present attempt's log was followed to its end, so that nothing of it is lost.

        One that was opened after its container had ended may have been the next one's already.
        """
        return self._opened == self._read_out == self._attempt

    def _restarted(self, pod: Json) -> None:
        """Read what is left of the container before; of several since then only that one's log is kept."""
        before = _restarts(pod, self._container)
        read_out = self._is_read_out()
        first = self._attempt + 1 if read_out else self._attempt
        # Of a container that waits for its next start, "previous" is the one that has ended last.
        last = before if _waits(pod, self._container) else before - 1
        if last >= self._attempt:
            self._let_go(read_out=read_out)
        if first <= last:
            self._tell_gap(first, last)
        self._attempt = before
        if last < before and not self._read_previous():
            self._let_go(read_out=read_out)
            if first <= before:
                self._tell_gap(before)
        self._half = []
        self._send(f"pod {self._name}: container {self._container} was restarted (restart {before})")

    def _let_go(self, *, read_out: bool) -> None:
        """Seek the line seen last no more: the log that it was in is not there, or has come to its end."""
        if read_out:
            self._give_half()
        self._resume.let_go()

    def _give_half(self) -> None:
        """Give what the log ended with after its last line's end."""
        half, self._half = self._half, []
        # They come after all that was read: nothing can be missing before them.
        self._resume.let_go()
        self._pass_on(half, previous=True)

    def _read_previous(self) -> bool | None:
        """Read the container before the present one; tell whether there is one, None where nobody can say."""
        for _ in range(_TRIES):
            try:
                self._pass_stream(previous=True, ended=True)
            except Rejected:
                return False
            except NotFound:
                return None
            except (NotAuthorized, ServerError, Unreachable) as error:
                self._tell_refusal(error)
                self._wait(error)
            else:
                break
        else:
            return None
        if not self._resume.seeking:
            # The line seen last was there, so that the present container's log is new from its start.
            self._half = []
            self._resume.let_go()
        return True

    def _read(self, *, ended: bool) -> bool:
        """Read on; tell whether the log came to its end, without a cut or a hole."""
        self.stuck = True
        try:
            self._pass_stream(previous=False, ended=ended)
        except (NotFound, Rejected):
            # Not there yet, or not there any more.
            return False
        except (NotAuthorized, ServerError, Unreachable) as error:
            self._tell_refusal(error)
            self._read_out = 0
            self.stuck = True
            self._stop_asked.wait(error.retry_after or 0.0)
            return False
        self.stuck = False
        if self._resume.seeking:
            self._bridge()
            return False
        if self._stop_asked.is_set():
            return False
        self._read_out = self._attempt
        return True

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
            self.stuck = False
            if not (previous or ended) and _restarts(self._now.pod, self._container) + 1 == self._attempt:
                self._opened = self._attempt
            if self._stop_asked.is_set():
                return
            self._resume.reattach()
            for chunk in stream:
                self._pass_on(lines.feed(chunk), previous=previous)
                if self._resume.missed:
                    return
        if ended:
            self._pass_on(lines.finish(), previous=previous)
        if not previous and not self._resume.seeking:
            self._half = list(lines.finish())

    def _tell_refusal(self, error: KubeError) -> None:
        """Leave it to others whether a log that we may not read is asked for again."""
        if isinstance(error, NotAuthorized):
            self._send(error)

    def _wait(self, error: KubeError) -> None:
        """Wait as long as the server asks for, and as one does before a new try."""
        self._stop_asked.wait(max(error.retry_after or 0.0, self._next_pause()))

    def _bridge(self) -> None:
        """Look for the line seen last in the log of the container before: a restart shows there first."""
        restarted = self._read_previous()
        if self._resume.seeking:
            # Without a container before it, the log was rotated.
            read_out = restarted is not False and self._is_read_out()
            self._let_go(read_out=read_out)
            if not read_out:
                self._tell_gap(self._attempt)

    def _pass_on(self, texts: Iterable[str], *, previous: bool) -> None:
        batch: list[LogLine] = []
        for text in texts:
            at, said = stamped(text)
            line = LogLine(self._name, self._node, said, at)
            if not at and said.startswith(_KUBELETS_OWN):
                self._send(f"pod {self._name}: {said}")
                batch.append(self._gap(self._attempt))
            elif self._resume.is_new(line):
                batch.append(line)
            elif self._resume.missed:
                if not previous:
                    break
                if not self._is_read_out():
                    batch.append(self._gap(self._attempt))
                self._resume.let_go()
                if self._resume.is_new(line):
                    batch.append(line)
        if batch:
            self.spoke = True
            self._send(batch)

    def rest(self) -> LogLine:
        """Give what stands for what nobody waits for any more."""
        return self._gap(self._attempt)

    def _gap(self, first: int, last: int | None = None) -> LogLine:
        return gap(self._name, self._node, first, last or first)

    def _tell_gap(self, first: int, last: int | None = None) -> None:
        self._send([self._gap(first, last)])


@dataclass(frozen=True)
class _Standing:
    """How a pod stands, as far as was heard."""

    pod: Json
    gone: bool = False
    over: bool = False
    """Whether the job has ended."""
    number: int = 0


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


def _waits(pod: Json, container: str) -> bool:
    return "waiting" in (_status(pod, container).get("state") or {})


def _restarts(pod: Json, container: str) -> int:
    return int(_status(pod, container).get("restartCount") or 0)


def _is_final(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _status(pod: Json, container: str) -> Json:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((status for status in statuses if status["name"] == container), {})
