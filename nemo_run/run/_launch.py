"""Launch the jobs of an experiment, each as soon as it may, and follow them until they end."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nemo_run.exceptions import NemoRunError
from nemo_run.run._console import Console
from nemo_run.run._dag import Graph
from nemo_run.run._runner import AppRunner
from nemo_run.run.job import AppState, AppStatus, Job, JobGroup, is_terminal

logger = logging.getLogger("nemo_run")

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
        self._ended: queue.SimpleQueue[tuple[str, AppStatus]] = queue.SimpleQueue()
        self._errors: list[BaseException] = []
        self._interrupted = False

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
            self._interrupted = True
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
        try:
            with self._slots:
                launched = not self._interrupted and self._launched(job)
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


def launch_all(jobs: Sequence[AnyJob], launch: Callable[[AnyJob], None], *, workers: int) -> None:
    """
    Launch *jobs*, several at a time; a single one in this thread, where Ctrl-C reaches it.

    All are tried; the first error is raised once the others are launched.
    """
    if len(jobs) == 1:
        launch(jobs[0])
        return
    todo: queue.SimpleQueue[AnyJob] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)
    errors: list[BaseException] = []
    threads = [
        threading.Thread(target=_launch_from, args=(todo, launch, errors), name=f"launch-{number}", daemon=True)
        for number in range(min(workers, len(jobs)))
    ]
    try:
        _join(threads)
    except KeyboardInterrupt:
        _drain(todo)
        _join(threads, started=True)
        raise
    if errors:
        raise errors[0]


def _launch_from(
    todo: queue.SimpleQueue[AnyJob], launch: Callable[[AnyJob], None], errors: list[BaseException]
) -> None:
    while True:
        try:
            job = todo.get_nowait()
        except queue.Empty:
            return
        try:
            launch(job)
        except BaseException as error:  # raised again where the launch was asked for
            errors.append(error)


def _drain(todo: queue.SimpleQueue[AnyJob]) -> None:
    while not todo.empty():
        todo.get_nowait()


def _join(threads: Sequence[threading.Thread], *, started: bool = False) -> None:
    for thread in () if started else threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK_EVERY)


def follow_all(jobs: Sequence[AnyJob], follow: Callable[[AnyJob], AppStatus]) -> Outcome:
    """
    Follow launched *jobs* side by side until all have ended.

    The threads do not keep the process alive: after Ctrl-C it may end.
    """
    outcome = Outcome()

    def run(job: AnyJob) -> None:
        outcome.ends[job.id] = follow(job)

    _join(
        [
            threading.Thread(target=run, args=(job,), name=f"follow {job.id}", daemon=True)
            for job in jobs
            if job.launched and job.handles
        ]
    )
    return outcome


def follow(job: AnyJob, runner: AppRunner, console: Console) -> AppStatus:
    """Follow *job* until it has ended, tell how, and let its executor clean up."""
    try:
        end = job.wait(runner)
    except NemoRunError as error:
        logger.error("%s cannot be followed any more: %s", job.id, error)
        end = AppStatus(AppState.UNKNOWN, str(error))
    except BaseException as error:
        logger.exception("%s cannot be followed any more", job.id)
        end = AppStatus(AppState.UNKNOWN, repr(error))
    tell_end(job, end, console)
    try:
        job.cleanup()
    except Exception:
        logger.exception("%s: its executor could not clean up", job.id)
    return end


def tell_end(job: AnyJob, end: AppStatus, console: Console) -> None:
    """Say how *job* ended."""
    console.log(f"{job.id}: {end}", style="bold green" if end.state == AppState.SUCCEEDED else "bold red")


def tell_interrupted(experiment_id: str, jobs: Sequence[AnyJob], runner: AppRunner, console: Console) -> None:
    """Say what goes on and how to reach it; end what cannot go on without this process."""
    running = [job for job in jobs if job.launched and not is_terminal(job.state)]
    if not running:
        console.log("Interrupted: no job was launched.", style="bold red")
    ending = {job.id: job for job in running if not runner.outlives_us(job.handle)}
    runner.cancel(*(handle for job in ending.values() for handle in job.handles))
    for job in ending.values():
        console.log(f"Interrupted: {job.id} was ended.", style="bold red")
    for job in running:
        if job.id not in ending:
            console.log(
                f"Interrupted: {job.id} keeps running. To see it, or to end it:\n"
                f'    experiment = run.Experiment.from_id("{experiment_id}")\n'
                f'    experiment.logs("{job.id}")\n'
                f'    experiment.cancel("{job.id}")',
                style="bold yellow",
            )
