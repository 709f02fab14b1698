"""The runner: finds the backend that knows a handle, and shows what happens to a job."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_run.exceptions import ExperimentError
from nemo_run.run._console import Console
from nemo_run.run._submission import Submission
from nemo_run.run.backends import backend_for, backend_of
from nemo_run.run.backends.base import AppRecord, Backend, DryRun, parse_handle
from nemo_run.run.job import AppState, AppStatus

logger = logging.getLogger("nemo_run")


_PROGRESS_EVERY = 2.0
"""Seconds between two lines that tell how far a copy has come."""
_GROUP_GRACE = 2.0
"""Seconds by which jobs of a group may end after each other."""
_GROUP_LOOK = 0.1


@dataclass
class _Watch:
    """Shows what happens to a job, and its output if asked to."""

    console: Console
    task: str
    output: bool = False
    _told: float = field(default_factory=time.monotonic)

    def line(self, source: str, text: str) -> None:
        if self.output:
            self.console.output(source, text)

    def state(self, text: str) -> None:
        self.console.log(f"{self.task}: {text}")

    def progress(self, done: int, total: int) -> None:
        if done < total and time.monotonic() - self._told >= _PROGRESS_EVERY:
            self._told = time.monotonic()
            self.state(f"copied {done / 1e6:.1f} of {total / 1e6:.1f} MB")


class AppRunner:
    """Launches, follows and ends jobs through their backends."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()

    def submit(self, submission: Submission) -> str:
        """Launch it and give its handle."""
        watch = _Watch(self.console, submission.name)
        handle = backend_for(submission.executor).submit(submission, watch).handle
        logger.debug("launched %s", handle)
        return handle

    def attend(self, handle: str) -> None:
        """Keep its output from now on, also before anybody waits for it."""
        backend, record = self._known(handle)
        backend.attend(record)

    def dryrun(self, submission: Submission) -> DryRun:
        """Give what would be launched, without asking anybody."""
        return backend_for(submission.executor).dryrun(submission)

    def status(self, handle: str) -> AppStatus | None:
        """Give its state; None where nothing is known of the handle."""
        return self.statuses([handle])[0]

    def statuses(self, handles: Sequence[str]) -> list[AppStatus | None]:
        """Give the states of many, with as few questions as their backends need."""
        found: dict[str, AppStatus] = {}
        by_backend: dict[str, tuple[Backend, list[AppRecord]]] = {}
        for handle in handles:
            if known := _find(handle):
                backend, record = known
                by_backend.setdefault(backend.scheme, (backend, []))[1].append(record)
        for backend, records in by_backend.values():
            found.update(zip((record.handle for record in records), backend.statuses(records), strict=True))
        return [found.get(handle) for handle in handles]

    def last_seen(self, handle: str) -> AppState:
        """Give its state as it was last seen, without asking anybody."""
        return self._known(handle)[1].status.state

    def remembered(self, handles: Sequence[str]) -> list[AppStatus | None]:
        """Give the states of many as they were last seen."""
        return [known[1].status if (known := _find(handle)) else None for handle in handles]

    def wait(self, handle: str, *, log: bool = False) -> AppStatus:
        """Follow it until it ends."""
        backend, record = self._known(handle)
        return backend.follow(record, _Watch(self.console, record.task, log))

    def wait_all(self, handles: Sequence[str], *, log: bool = False) -> list[AppStatus]:
        """
        Follow jobs that belong together until all have ended.

        When one has ended, those that do not end by themselves soon after are
        ended: a server that another one used, or the peers of one that failed.
        """
        ends: dict[str, AppStatus | Exception] = {}
        threads = [
            threading.Thread(target=self._wait_into, args=(ends, handle, log), name=f"follow {handle}", daemon=True)
            for handle in handles
        ]
        for thread in threads:
            thread.start()
        while not ends:
            threads[0].join(_GROUP_LOOK)
        deadline = time.monotonic() + _GROUP_GRACE
        while len(ends) < len(handles) and time.monotonic() < deadline:
            time.sleep(_GROUP_LOOK)
        self.cancel(*(handle for handle in handles if handle not in ends))
        for thread in threads:
            thread.join()
        for end in ends.values():
            if isinstance(end, Exception):
                raise end
        return [end for handle in handles if isinstance(end := ends[handle], AppStatus)]

    def _wait_into(self, ends: dict[str, AppStatus | Exception], handle: str, log: bool) -> None:
        try:
            ends[handle] = self.wait(handle, log=log)
        except Exception as error:  # raised where the wait was asked for
            ends[handle] = error

    def log_lines(self, handle: str, *, regex: str | None = None) -> Iterator[str]:
        """Give the lines it has written so far, or those of them that match *regex*."""
        backend, record = self._known(handle)
        pattern = re.compile(regex) if regex else None
        return (line for line in backend.lines(record) if not pattern or pattern.search(line))

    def cancel(self, *handles: str) -> None:
        """End those that still run, together."""
        by_scheme: dict[str, tuple[Backend, list[AppRecord]]] = {}
        for handle in handles:
            backend, record = self._known(handle)
            by_scheme.setdefault(backend.scheme, (backend, []))[1].append(record)
        for backend, records in by_scheme.values():
            backend.cancel(records)

    def outlives_us(self, handle: str) -> bool:
        """Tell whether it goes on when this process ends."""
        backend = backend_of(parse_handle(handle)[0])
        return backend is None or backend.outlives_us

    def close(self) -> None:
        """Do nothing: a runner holds nothing open."""

    def _known(self, handle: str) -> tuple[Backend, AppRecord]:
        if known := _find(handle):
            return known
        raise ExperimentError(f"{handle}: nothing is known of this job in this NEMORUN_HOME")


def _find(handle: str) -> tuple[Backend, AppRecord] | None:
    scheme, _, app_id = parse_handle(handle)
    backend = backend_of(scheme)
    record = backend.find(app_id) if backend else None
    return (backend, record) if backend and record else None


def get_runner(component_defaults: Any = None, **scheduler_params: Any) -> AppRunner:
    """Give a runner; the arguments are accepted for callers that still pass them."""
    return AppRunner()
