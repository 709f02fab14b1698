"""One job on a cluster, followed in a thread of its own: what it writes is kept before anybody asks for it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from nemo_run._kube.demux import GAP, LogLine, RankFilter
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.core.execution._ranklog import RankLog
from nemo_run.core.execution.kubeflow import KubeflowExecutor, KubeflowJobState
from nemo_run.exceptions import KubeError
from nemo_run.run.backends.base import AppRecord, Watcher

_HELD = 10_000
"""Lines to be shown that are held until somebody watches; older ones are in the file only."""
_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
"""Seconds until reading begins anew after a refusal; doubled each time."""
_OVER = (KubeflowJobState.SUCCEEDED, KubeflowJobState.FAILED, None)
LAST = 10
"""Lines of a pod that are shown once more, or for the first time, when it is what failed."""
_LOOK_EVERY = 0.5
"""Seconds after which a wait lets Ctrl-C in."""


class Following:
    """
    Writes every rank's lines to the job's log file until the job has ended.

    Whoever attaches is shown the first and the last rank's, also those that came before.
    """

    def __init__(
        self,
        record: AppRecord,
        executor: KubeflowExecutor,
        *,
        launched: bool,
        whole: Callable[[], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """
        Take whether the job was launched just now.

        *whole* is called at the end if the file has all that the job's pods wrote, or says of it that it is lost.
        """
        self._record = record
        self._executor = executor
        self._launched = launched
        self._whole = whole
        self._clock = clock
        self._filter = RankFilter(executor.nnodes(), executor.nproc_per_node())
        self._lock = threading.Lock()
        self._watcher: Watcher | None = None
        self._held: deque[tuple[str, str]] = deque(maxlen=_HELD)
        self._forgotten = 0
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"keep logs of {record.job_name}", daemon=True)
        self._nodes: dict[str, int | None] = {}
        self._last: dict[str, deque[tuple[str, bool]]] = {}
        """The last lines of each pod, and whether they are among those that are shown."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def attach(self, watcher: Watcher) -> None:
        """Tell *watcher* of what was held, and from now on of all."""
        with self._lock:
            self._watcher = watcher
            if self._forgotten:
                watcher.state(f"{self._forgotten} earlier lines are in {self._record.job_dir}")
            for source, text in self._held:
                _tell(watcher, source, text)
            self._held.clear()

    def last_lines(self, pod: str) -> tuple[str, list[str]]:
        """Give where *pod* is in the job (``train/3``) and its last lines; none where all of them have been shown."""
        last = list(self._last.get(pod, ()))
        lines = [] if all(shown for _, shown in last) else [text for text, _ in last]
        return self._source(self._nodes.get(pod)), lines

    def _source(self, node: int | None) -> str:
        return f"{self._record.task}/{node or 0}"

    def wait(self) -> None:
        """Return at the job's end, when all was read; an interrupt leaves the thread to go on unseen."""
        try:
            while self._thread.is_alive():
                self._thread.join(_LOOK_EVERY)
        except BaseException:
            self._watcher = None
            raise
        if self._error:
            raise self._error

    def _run(self) -> None:
        try:
            self._outlast_refusals()
        except Exception as error:  # raised where the end is waited for
            self._error = error

    def _outlast_refusals(self) -> None:
        """Begin anew after each refusal, and once more when the job is known to have ended."""
        pause, over = _PAUSE, False
        while True:
            try:
                return self._follow()
            except KubeError as error:
                if over:
                    return self._give_up(error)
                self._show("", f"its output cannot be read now: {error}; trying again")
            self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            over = self._is_over()

    def _follow(self) -> None:
        with RankLog(Path(self._record.job_dir), self._executor.container_name) as log:
            before = log.pods()
            self._executor.follow_logs(
                self._record.job_name,
                write=lambda line: self._write(log, line),
                on_state=lambda text: self._show("", text),
            )
        if self._launched or self._has_read_all(before):
            self._whole()

    def _is_over(self) -> bool:
        try:
            return self._executor.status(self._record.job_name) in _OVER
        except KubeError:
            return False

    def _give_up(self, error: KubeError) -> None:
        """Say in the file and to whoever watches that something is missing."""
        lost = LogLine("", None, f"{GAP} the job's output could not be read: {error.message}", gap=True)
        with RankLog(Path(self._record.job_dir), self._executor.container_name) as log:
            self._write(log, lost)

    def _write(self, log: RankLog, line: LogLine) -> None:
        self._nodes[line.pod] = line.node_index
        log.write(line)
        shown = self._filter.shows(line)
        self._last.setdefault(line.pod, deque(maxlen=LAST)).append((line.text, shown))
        if shown:
            self._show(self._source(line.node_index), line.text)

    def _has_read_all(self, before: set[str]) -> bool:
        """Tell whether each node has been read, and each pod that the file knew *before*."""
        return before <= self._nodes.keys() and len(set(self._nodes.values())) >= self._executor.nnodes()

    def _show(self, source: str, text: str) -> None:
        with self._lock:
            if self._watcher:
                _tell(self._watcher, source, text)
            else:
                self._forgotten += len(self._held) == _HELD
                self._held.append((source, text))


def _tell(watcher: Watcher, source: str, text: str) -> None:
    if source:
        watcher.line(source, text)
    else:
        watcher.state(text)
