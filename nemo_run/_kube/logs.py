"""
Follow the logs of a job's pods, each line once, until the job has ended.

One look at the pods each few seconds says what there is; one thread a pod reads
its log. Whatever ends a stream (a restart, a broken connection, a rotated file,
the container's end), the next look decides whether to read on.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from nemo_run._kube.demux import LogLine
from nemo_run._kube.resources import POD
from nemo_run._kube.startup import startup
from nemo_run._kube.tail import Tail, has_started, node_index
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.exceptions import KubeError, ServerError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

__all__ = ["LogFollower", "LogLine", "node_index"]

logger = logging.getLogger("nemo_run")

INTERVAL = 2.0
"""Seconds between two looks at the pods."""
LINGER = 30.0
"""Seconds for which the tails are read after the job has ended."""
BATCHES = 64
"""Pieces of up to 64 KiB of log that may wait to be written; then reading waits."""
_STEP = 0.05
_JOIN = 2.0
_AT_THE_END = 0.5
"""Seconds between two looks after the job has ended: only tails are left to read."""


class LogFollower:
    """
    Follows all pods that *selector* matches, also those that come later.

    *write* gets each line, *on_state* what is waited for, both in the thread that
    calls ``run``. *finished* tells whether the job has ended.
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
        clock: Clock = SYSTEM_CLOCK,
        interval: float = INTERVAL,
        linger: float = LINGER,
    ) -> None:
        # Each round is a new try anyway.
        self._api = api.patient(0)
        self._namespace = namespace
        self._selector = selector
        self._container = container
        self._write = write
        self._on_state = on_state
        self._finished = finished
        self._clock = clock
        self._interval = interval
        self._linger = linger
        self._inbox: queue.Queue[list[LogLine] | str | KubeError] = queue.Queue(BATCHES)
        self._tails: dict[str, Tail] = {}
        self._stop = threading.Event()
        self._round = 0
        self._asked_to_wait = 0.0
        self._said = ""

    def run(self) -> None:
        """
        Follow until the job has ended and what its pods wrote was read.

        Raises:
            NotAuthorized: pods or their logs may not be read.
        """
        try:
            while not self._stop.is_set() and not self._is_over():
                self._look()
                self._serve(max(self._interval, self._asked_to_wait))
            if not self._stop.is_set():
                self._read_tails()
        finally:
            self.close()

    def close(self) -> None:
        """End ``run`` and all threads, also those that wait for a quiet log; any thread may call it."""
        self._stop.set()
        for tail in self._tails.values():
            tail.close()
        deadline = time.monotonic() + _JOIN
        for tail in self._tails.values():
            tail.join(max(deadline - time.monotonic(), 0.0))

    def _is_over(self) -> bool:
        try:
            return self._finished()
        except (ServerError, Unreachable) as error:
            self._say(f"cannot tell whether the job has ended: {error.message}; asking again")
            return False

    def _read_tails(self) -> None:
        """Read what is left; pods that go on after the job's end are left alone after a while."""
        deadline = self._clock.now() + self._linger
        self._look(over=True)
        while any(tail.is_alive() for tail in self._tails.values()) and self._clock.now() < deadline:
            if self._stop.is_set():
                return
            self._serve(min(self._interval, _AT_THE_END), until_quiet=True)
            self._look(over=True)
        self._drain()
        if not self._tails:
            self._say("the job ended, and no pod of it was seen running")
        elif not any(tail.spoke for tail in self._tails.values()):
            self._say("the job ended, and its pods wrote nothing")

    def _look(self, *, over: bool = False) -> None:
        self._round += 1
        self._asked_to_wait = 0.0
        try:
            pods = self._api.list(POD, self._namespace, labels=self._selector)
        except (ServerError, Unreachable) as error:
            self._asked_to_wait = error.retry_after or 0.0
            self._say(f"cannot look at the pods: {error.message}; trying again")
            return
        found = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, pod in found.items():
            if uid not in self._tails and has_started(pod, self._container):
                self._tails[uid] = self._start(pod)
        for uid, tail in self._tails.items():
            tail.offer(self._round, found.get(uid), over=over)
        if not over:
            self._say(self._waited_for(found))

    def _start(self, pod: dict[str, Any]) -> Tail:
        tail = Tail(self._api, pod, self._container, send=self._send, stop=self._stop, started=lambda: self._round)
        logger.debug("following pod %s", pod["metadata"]["name"])
        tail.start()
        return tail

    def _waited_for(self, pods: dict[str, dict[str, Any]]) -> str:
        """Say why which pods are silent; nothing where all speak."""
        if not pods and not self._tails:
            return "no pod yet"
        why: dict[str, list[str]] = defaultdict(list)
        for uid, pod in pods.items():
            tail = self._tails.get(uid)
            if tail is None:
                why[startup(pod).text].append(pod["metadata"]["name"])
            elif not tail.spoke and tail.is_alive():
                why["running, no output yet"].append(pod["metadata"]["name"])
        return "; ".join(f"{_named(names)}: {text}" for text, names in sorted(why.items()))

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
            self._drain()
            if until_quiet and not any(tail.is_alive() for tail in self._tails.values()):
                return
            self._clock.sleep(min(_STEP, left))

    def _drain(self) -> None:
        while True:
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, KubeError):
                raise item
            if isinstance(item, str):
                self._on_state(item)
            else:
                for line in item:
                    self._write(line)


def _named(names: Iterable[str]) -> str:
    names = sorted(names)
    return f"pod {names[0]}" if len(names) == 1 else f"{len(names)} pods ({names[0]}, …)"
