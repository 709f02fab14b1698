"""
Follow the logs of a job's pods, each line once, until the job has ended.

One thread watches the pods; one thread a pod reads its log, from the moment at
which a container of it has started. Whatever ends a stream (a restart, a broken
connection, a rotated file, the container's end), how the pod stands then decides
whether to read on. When a Job fails, Kubernetes deletes its pods with their logs:
so what happens to a pod must be heard as it happens.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from nemo_run._kube.demux import GAP, LogLine
from nemo_run._kube.podwatch import PodWatch
from nemo_run._kube.startup import SILENT, startup, with_trouble
from nemo_run._kube.tail import Tail, has_started, node_index
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.exceptions import KubeError, ServerError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

__all__ = ["LogFollower", "LogLine", "node_index"]

logger = logging.getLogger("nemo_run")

INTERVAL = 2.0
"""Seconds between two questions whether the job has ended, and two looks at pods that may not be watched."""
LINGER = 30.0
"""Seconds for which the tails are read after the job has ended."""
BATCHES = 64
"""Pieces of up to 64 KiB of log that may wait to be written; then reading waits."""
EVENTS_EVERY = 5.0
"""Seconds between two looks at the events of a pod that does not start."""
_STEP, _BUSY_STEP = 0.05, 0.001
"""Seconds between two looks for lines; the kubelet may send each line by itself, so that few of them are in a look."""
_JOIN = 2.0
_LONGEST_PAUSE = 30.0
"""Seconds between two questions whether the job has ended where none of them is answered."""
_AT_THE_END = 0.5
"""Seconds between two looks after the job has ended: only tails are left to read."""
_CATCH_UP = 2.0
"""Seconds that the watch gets to tell what a list knows already."""


class LogFollower:
    """
    Follows all pods that *selector* matches, also those that come later.

    *write* gets each line, *on_state* what is waited for, both in the thread that
    calls ``run``. *finished* tells whether the job has ended, *why* what keeps its
    pods from being created, if anybody knows, *trouble* the newest warning about a
    pod that does not say itself what it waits for, *ours* whether a pod is the job's:
    another may have got its name.

    A server that is away is outlasted, and so is one that refuses what it gave
    before. One that refuses at once does so for good, unless we *persist*.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        *,
        selector: str,
        container: str,
        write: Callable[[LogLine], None],
        on_state: Callable[[str], None],
        finished: Callable[[], bool],
        why: Callable[[], str] = str,
        trouble: Callable[[str], str] = lambda pod: "",
        ours: Callable[[dict[str, Any]], bool] = bool,
        persist: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        interval: float = INTERVAL,
        linger: float = LINGER,
    ) -> None:
        # Each round is a new try anyway.
        self._api = api.patient(0)
        self._container = container
        self._write = write
        self._on_state = on_state
        self._finished = finished
        self._why = why
        self._trouble_of = trouble
        self._troubles: dict[str, tuple[str, float]] = {}
        self._ours = ours
        self._persist = persist
        self._given: set[str] = set()
        self._pause = interval
        self._clock = clock
        self._interval = interval
        self._linger = linger
        self._inbox: queue.Queue[list[LogLine] | str | KubeError] = queue.Queue(BATCHES)
        self._watch = PodWatch(
            api, namespace, selector, changed=self._changed, failed=self._pods_refused, interval=self._interval
        )
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, Any]] = {}
        self._tails: dict[str, Tail] = {}
        self._news = False
        self._stop = threading.Event()
        self._said = ""

    def run(self) -> None:
        """
        Follow until the job has ended and what its pods wrote was read.

        Raises:
            KubeError: pods or their logs may not be read.
        """
        late = True
        try:
            self._watch.start()
            while not self._stop.is_set() and not self._is_over():
                self._serve(self._pause)
                self._tell()
                late = False
            if not self._stop.is_set():
                self._read_tails(late=late)
        finally:
            self.close()

    def close(self) -> None:
        """End ``run`` and all threads, also those that wait for a quiet log; any thread may call it."""
        self._stop.set()
        self._watch.close()
        with self._lock:
            tails = list(self._tails.values())
        for tail in tails:
            tail.close()
        deadline = time.monotonic() + _JOIN
        for thread in (self._watch, *tails):
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))

    def _is_over(self) -> bool:
        try:
            over = self._finished()
        except KubeError as error:
            if not self._outlasts("job", error):
                raise
            self._say(f"cannot tell whether the job has ended: {error.message}; asking again")
            self._pause = max(min(2 * self._pause, _LONGEST_PAUSE), error.retry_after or 0.0)
            return False
        self._given.add("job")
        self._pause = self._interval
        return over

    def _outlasts(self, what: str, error: KubeError) -> bool:
        """Tell whether *what* is asked for again after *error*."""
        return self._persist or isinstance(error, ServerError | Unreachable) or what in self._given

    def _pods_refused(self, error: KubeError) -> None:
        if not (self._watch.looked or self._outlasts("pods", error)):
            self._send(error)

    def _read_tails(self, *, late: bool) -> None:
        """Read what is left; pods that go on after the job's end are left alone after a while."""
        deadline = self._clock.now() + self._linger
        pause = min(self._interval, _AT_THE_END)
        while not (caught_up := self._has_caught_up()) and self._clock.now() < deadline:
            self._serve(pause)
        for tail in list(self._tails.values()):
            tail.end()
        while self._alive() and self._clock.now() < deadline and not self._stop.is_set():
            self._serve(pause, until_quiet=True)
        if self._stop.is_set():
            return
        self._drain()
        for tail in self._tails.values():
            if tail.is_alive() and tail.stuck:
                self._write(tail.rest())
        if not caught_up:
            self._write(LogLine("", None, f"{GAP} the job's pods could not be looked at after its end", gap=True))
        if not self._tails:
            self._say("the job ended, and no pod of it was seen running")
            if late and not self._pods:
                self._write(LogLine("", None, f"{GAP} the job's pods were gone before they could be read", gap=True))
        elif not any(tail.spoke or tail.stuck for tail in self._tails.values()):
            self._say("the job ended, and its pods wrote nothing")

    def _alive(self) -> bool:
        return any(tail.is_alive() for tail in list(self._tails.values()))

    def _has_caught_up(self) -> bool:
        """Hear what has happened to the pods until the job's end."""
        try:
            self._watch.catch_up(_CATCH_UP, interval=_AT_THE_END)
        except KubeError as error:
            if not (self._watch.looked or self._outlasts("pods", error)):
                raise
            self._say(f"cannot look at the pods: {error.message}; trying again")
            return False
        return True

    def _changed(self, pod: dict[str, Any], gone: bool) -> None:
        """Take how a pod stands, from whichever thread has seen it."""
        uid = pod["metadata"]["uid"]
        if not self._ours(pod):
            return
        with self._lock:
            if self._stop.is_set():
                return
            if gone:
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod
            self._news = True
            tail = self._tails.get(uid)
            if tail is not None:
                tail.offer(pod, gone=gone)
            elif has_started(pod, self._container):
                self._tails[uid] = self._start(pod, gone=gone)

    def _start(self, pod: dict[str, Any], *, gone: bool) -> Tail:
        tail = Tail(self._api, pod, self._container, gone=gone, send=self._send, stop=self._stop)
        logger.debug("following pod %s", pod["metadata"]["name"])
        tail.start()
        return tail

    def _tell(self) -> None:
        """Say what is waited for, if anything is."""
        self._news = False
        if self._watch.trouble or self._watch.looked:
            self._say(self._watch.trouble or self._waited_for())

    def _waited_for(self) -> str:
        """Say why which pods are silent; nothing where all speak."""
        with self._lock:
            pods, tails = dict(self._pods), dict(self._tails)
        if not pods and not tails:
            why = self._why()
            return f"no pod yet: {why}" if why else "no pod yet"
        silent: dict[str, list[str]] = defaultdict(list)
        for uid, pod in pods.items():
            tail = tails.get(uid)
            if tail is None:
                silent[self._standing(pod)].append(pod["metadata"]["name"])
            elif not tail.spoke and tail.is_alive():
                silent["running, no output yet"].append(pod["metadata"]["name"])
        return "; ".join(f"{_named(names)}: {text}" for text, names in sorted(silent.items()))

    def _standing(self, pod: dict[str, Any]) -> str:
        """Say how far a pod has come; where that says nothing, the newest warning about one such pod is added."""
        text, name = startup(pod).text, pod["metadata"]["name"]
        if text not in SILENT:
            return text
        now = self._clock.now()
        trouble, asked_at = self._troubles.setdefault(text, ("", now))
        if now >= asked_at + EVENTS_EVERY:
            trouble, _ = self._troubles[text] = (self._trouble_of(name), now)
        return with_trouble(text, trouble)

    def _say(self, text: str) -> None:
        if text and text != self._said:
            self._on_state(text)
        self._said = text

    def _send(self, item: list[LogLine] | str | KubeError) -> None:
        """Hand over to the thread that runs; wait where it is behind."""
        while not self._stop.is_set():
            try:
                self._inbox.put(item, timeout=0.2)
            except queue.Full:
                continue
            return

    def _serve(self, seconds: float, *, until_quiet: bool = False) -> None:
        """Write what comes for so long."""
        end = self._clock.now() + seconds
        while (left := end - self._clock.now()) > 0 and not self._stop.is_set():
            busy = self._drain()
            if until_quiet and not self._alive():
                return
            if self._news and self._pods and not self._tails:
                self._tell()
            self._clock.sleep(min(_BUSY_STEP if busy else _STEP, left))

    def _drain(self) -> bool:
        """Write what has come so far; tell whether anything has."""
        came = False
        while True:
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return came
            came = True
            if isinstance(item, KubeError):
                if not self._outlasts("logs", item):
                    raise item
                self._say(f"cannot {item.what}: {item.message}; trying again")
            elif isinstance(item, str):
                self._on_state(item)
            else:
                self._given.add("logs")
                for line in item:
                    self._write(line)


def _named(names: Iterable[str]) -> str:
    names = sorted(names)
    return f"pod {names[0]}" if len(names) == 1 else f"{len(names)} pods ({names[0]}, …)"
