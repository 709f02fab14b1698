"""Launch jobs that wait for none, and follow jobs until they end."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence

from nemo_run.exceptions import NemoRunError
from nemo_run.run._console import Console
from nemo_run.run._interrupt import Launching
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
    threads = [
        threading.Thread(
            target=_launch_from, args=(todo, launch, errors, launching), name=f"launch-{number}", daemon=True
        )
        for number in range(min(workers, len(jobs)))
    ]
    try:
        _join(threads)
    except KeyboardInterrupt:
        _drain(todo)
        launching.interrupt()
        _join(threads, started=True)
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
                f"Interrupted: {job.id} {'keeps running' if job.state else 'may run'}. To see it, or to end it:\n"
                f'    experiment = run.Experiment.from_id("{experiment_id}")\n'
                f'    experiment.logs("{job.id}")\n'
                f'    experiment.cancel("{job.id}")',
                style="bold yellow",
            )
