"""Run the jobs of an experiment in their order, each as soon as it may."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nemo_run.run._dag import Graph
from nemo_run.run._interrupt import Launching
from nemo_run.run.job import AppState, AppStatus, Job, JobGroup

AnyJob = Job | JobGroup
_LOOK_EVERY = 0.5
"""Seconds after which a wait lets Ctrl-C in."""
_PAUSE = 0.05


@dataclass
class Outcome:
    """How each job that has ended did."""

    ends: dict[str, AppStatus] = field(default_factory=dict)

    @property
    def failed(self) -> list[str]:
        """Name the jobs that ended in another way than success."""
        return [job for job, end in self.ends.items() if end.state != AppState.SUCCEEDED]


@dataclass(frozen=True)
class Steps:
    """What is done with each job of an experiment."""

    launch: Callable[[AnyJob], None]
    follow: Callable[[AnyJob], AppStatus]
    withheld: Callable[[], Mapping[str, str]]
    """Says of jobs that are not to be launched any more why that is so."""
    withhold: Callable[[AnyJob, str], AppStatus]
    """Notes that a job will not be launched."""


class InOrder:
    """
    Launches each job as soon as all that it depends on have succeeded, and follows it.

    A job whose dependency ended otherwise is not launched: it counts as cancelled.
    """

    def __init__(self, jobs: Sequence[AnyJob], steps: Steps, *, workers: int) -> None:
        self.outcome = Outcome()
        self._jobs = {job.id: job for job in jobs}
        self._graph = Graph({job.id: job.dependencies for job in jobs})
        self._steps = steps
        self._slots = threading.Semaphore(workers)
        self._running: dict[str, threading.Thread] = {}
        self._launching: set[str] = set()
        self._reach = Launching()
        self._ended: queue.SimpleQueue[tuple[str, AppStatus]] = queue.SimpleQueue()
        self._errors: list[BaseException] = []

    def run(self) -> Outcome:
        """
        Return when all have ended.

        A launch that raises ends its job; the first such error is raised when the others have ended.
        """
        try:
            self._start(self._graph.ready())
            while self._running:
                try:
                    job_id, end = self._ended.get(timeout=_LOOK_EVERY)
                except queue.Empty:
                    continue
                self._running.pop(job_id)
                self._note(job_id, end)
                self._start(self._graph.ready())
        except KeyboardInterrupt:
            self._reach.interrupt()
            while self._launching:  # what is being launched needs a handle before it can be told of
                time.sleep(_PAUSE)
            raise
        if self._errors:
            raise self._errors[0]
        return self.outcome

    def _start(self, ready: Sequence[str]) -> None:
        withheld = self._steps.withheld() if ready else {}
        for job_id in ready:
            job = self._jobs[job_id]
            if job_id in withheld:
                self._note(job_id, self._steps.withhold(job, withheld[job_id]))
                continue
            # Alone, it is launched in this thread, where Ctrl-C reaches it.
            here = len(ready) == 1 and not self._running
            if here and not self._launched(job):
                self._note(job_id, AppStatus(AppState.FAILED, "could not be launched"))
                continue
            if not here:
                self._launching.add(job_id)
            run = self._follow if here else self._launch_and_follow
            thread = threading.Thread(target=run, args=(job,), name=f"job {job_id}", daemon=True)
            self._running[job_id] = thread
            thread.start()

    def _note(self, job_id: str, end: AppStatus) -> None:
        self.outcome.ends[job_id] = end
        if end.state == AppState.SUCCEEDED:
            self._graph.succeeded(job_id)
            return
        for waiting in self._graph.failed(job_id):
            self._note(waiting, self._steps.withhold(self._jobs[waiting], f"not started: {job_id} {end.state}"))

    def _launch_and_follow(self, job: AnyJob) -> None:
        launched = False
        try:
            with self._slots, self._reach.interruptible():
                launched = self._launched(job)
        except KeyboardInterrupt:  # the main thread's: it has nobody to wait for any more
            return
        finally:
            self._launching.discard(job.id)
        if launched:
            self._follow(job)
        else:
            self._ended.put((job.id, AppStatus(AppState.FAILED, "could not be launched")))

    def _launched(self, job: AnyJob) -> bool:
        try:
            self._steps.launch(job)
        except Exception as error:  # raised again when the others have ended
            self._errors.append(error)
            return False
        return True

    def _follow(self, job: AnyJob) -> None:
        self._ended.put((job.id, self._steps.follow(job)))
