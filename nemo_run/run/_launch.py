"""Launch the jobs of an experiment in their order, and follow them until they end."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nemo_run.exceptions import NemoRunError
from nemo_run.run._console import Console
from nemo_run.run._dag import blocked, generations
from nemo_run.run._runner import AppRunner
from nemo_run.run.job import AppState, AppStatus, Job, JobGroup, is_terminal

logger = logging.getLogger("nemo_run")

AnyJob = Job | JobGroup
_LOOK_EVERY = 0.5
"""Seconds after which a wait lets Ctrl-C in."""


@dataclass
class Outcome:
    """How each job that has ended did."""

    ends: dict[str, AppStatus] = field(default_factory=dict)

    @property
    def failed(self) -> list[str]:
        """Name the jobs that ended in another way than success."""
        return [job for job, end in self.ends.items() if end.state != AppState.SUCCEEDED]


def run_in_order(
    jobs: Sequence[AnyJob],
    launch: Callable[[AnyJob], None],
    follow: Callable[[Sequence[AnyJob]], Outcome],
    console: Console,
) -> Outcome:
    """
    Launch and follow each job after those that it depends on.

    A job whose dependency did not succeed is not launched: it counts as cancelled.
    """
    by_id = {job.id: job for job in jobs}
    dependencies = {job.id: job.dependencies for job in jobs}
    outcome = Outcome()
    for generation in generations(dependencies):
        ready = []
        for job_id in generation:
            if bad := blocked(job_id, dependencies, outcome.failed):
                outcome.ends[job_id] = _not_started(by_id[job_id], bad, outcome, console)
            else:
                ready.append(by_id[job_id])
        launch_all(ready, launch)
        outcome.ends.update(follow(ready).ends)
    return outcome


def _not_started(job: AnyJob, bad: Sequence[str], outcome: Outcome, console: Console) -> AppStatus:
    reasons = ", ".join(f"{name} {outcome.ends[name].state}" for name in bad)
    end = AppStatus(AppState.CANCELLED, f"not started: {reasons}")
    console.log(f"{job.id}: {end}", style="bold red")
    if isinstance(job, Job):
        job.state = end.state
    return end


def launch_all(jobs: Sequence[AnyJob], launch: Callable[[AnyJob], None], *, workers: int = 16) -> None:
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


def follow_all(jobs: Sequence[AnyJob], runner: AppRunner, console: Console) -> Outcome:
    """
    Follow launched *jobs* side by side until all have ended.

    The threads do not keep the process alive: after Ctrl-C it may end.
    """
    outcome = Outcome()
    threads = [
        threading.Thread(target=_follow, args=(job, runner, console, outcome), name=f"follow-{job.id}", daemon=True)
        for job in jobs
        if job.launched and job.handles
    ]
    _join(threads)
    return outcome


def _follow(job: AnyJob, runner: AppRunner, console: Console, outcome: Outcome) -> None:
    try:
        end = job.wait(runner)
    except NemoRunError as error:
        logger.error("%s cannot be followed any more: %s", job.id, error)
        end = AppStatus(AppState.UNKNOWN, str(error))
    except BaseException as error:
        logger.exception("%s cannot be followed any more", job.id)
        end = AppStatus(AppState.UNKNOWN, repr(error))
    outcome.ends[job.id] = end
    console.log(f"{job.id}: {end}", style="bold green" if end.state == AppState.SUCCEEDED else "bold red")
    try:
        job.cleanup()
    except Exception:
        logger.exception("%s: its executor could not clean up", job.id)


def tell_interrupted(experiment_id: str, jobs: Sequence[AnyJob], runner: AppRunner, console: Console) -> None:
    """Say what goes on and how to reach it; end what cannot go on without this process."""
    running = [job for job in jobs if job.launched and not is_terminal(job.state)]
    if not running:
        console.log("Interrupted: no job was launched.", style="bold red")
    for job in running:
        if not runner.outlives_us(job.handle):
            job.cancel(runner)
            console.log(f"Interrupted: {job.id} was ended.", style="bold red")
            continue
        console.log(
            f"Interrupted: {job.id} keeps running. To see it, or to end it:\n"
            f'    experiment = run.Experiment.from_id("{experiment_id}")\n'
            f'    experiment.logs("{job.id}")\n'
            f'    experiment.cancel("{job.id}")',
            style="bold yellow",
        )
