"""Launch jobs that wait for none, and follow jobs until they end."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from nemo_run.exceptions import NemoRunError
from nemo_run.run._console import Console
from nemo_run.run._interrupt import Launching, held_back
from nemo_run.run._order import AnyJob, Outcome
from nemo_run.run._runner import AppRunner
from nemo_run.run.job import AppState, AppStatus, is_terminal

logger = logging.getLogger("nemo_run")

_LOOK_EVERY = 0.5
"""Seconds after which a wait lets Ctrl-C in."""


def launch_all(jobs: Sequence[AnyJob], launch: Callable[[AnyJob], None], *, workers: int) -> None:
    """
    Launch *jobs*, several at a time; a single one in this thread, where Ctrl-C reaches it.

    All are tried; the first error is raised once the others are launched. Ctrl-C cuts
    off all launches that are under way, and is raised when they have cleaned up.
    """
    if len(jobs) == 1:
        launch(jobs[0])
        return
    todo: queue.SimpleQueue[AnyJob] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)
    errors: list[BaseException] = []
    launching = Launching()
    threads = _Threads()

    def work() -> None:
        _launch_from(todo, launch, errors, launching)

    try:
        threads.start({f"launch-{number}": work for number in range(min(workers, len(jobs)))})
        threads.wait()
    except KeyboardInterrupt:
        _drain(todo)
        launching.interrupt()
        threads.wait()
        raise
    if errors:
        raise errors[0]


def _launch_from(
    todo: queue.SimpleQueue[AnyJob],
    launch: Callable[[AnyJob], None],
    errors: list[BaseException],
    launching: Launching,
) -> None:
    while True:
        try:
            job = todo.get_nowait()
        except queue.Empty:
            return
        try:
            with launching.interruptible():
                launch(job)
        except BaseException as error:  # raised again where the launch was asked for
            errors.append(error)


def _drain(todo: queue.SimpleQueue[AnyJob]) -> None:
    while not todo.empty():
        todo.get_nowait()


class _Threads:
    """
    Threads that do not keep the process alive.

    They tell themselves that they have ended: one whose ``join`` Ctrl-C interrupts
    counts as dead for Python before 3.13, though it goes on.
    """

    def __init__(self) -> None:
        self._ended: list[threading.Event] = []

    def start(self, works: Mapping[str, Callable[[], None]]) -> None:
        """Begin all *works*, by the names of their threads."""
        with held_back():
            for name, work in works.items():
                self._ended.append(threading.Event())
                threading.Thread(target=self._run, args=(work, self._ended[-1]), name=name, daemon=True).start()

    def wait(self) -> None:
        """Return when all have ended; Ctrl-C gets in."""
        for ended in self._ended:
            while not ended.wait(_LOOK_EVERY):
                pass

    def _run(self, work: Callable[[], None], ended: threading.Event) -> None:
        try:
            work()
        finally:
            ended.set()


def follow_all(jobs: Sequence[AnyJob], follow: Callable[[AnyJob], AppStatus]) -> Outcome:
    """
    Follow launched *jobs* side by side until all have ended.

    The threads do not keep the process alive: after Ctrl-C it may end.
    """
    outcome = Outcome()

    def run(job: AnyJob) -> None:
        outcome.ends[job.id] = follow(job)

    threads = _Threads()
    threads.start({f"follow {job.id}": partial(run, job) for job in jobs if job.launched and job.handles})
    threads.wait()
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


def tell_interrupted(experiment_id: str, jobs: Sequence[AnyJob], runner: AppRunner, console: Console) -> bool:
    """Say what goes on and how to reach it, and tell whether anything does; end what cannot without this process."""
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
                f"Interrupted: {job.id} {'keeps running' if job.state else 'may run'}. To see it, or to end it:\n"
                f'    experiment = run.Experiment.from_id("{experiment_id}")\n'
                f'    experiment.logs("{job.id}")\n'
                f'    experiment.cancel("{job.id}")',
                style="bold yellow",
            )
    return len(ending) < len(running)
