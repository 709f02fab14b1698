"""How the jobs of an experiment stand: as a dict for programs and as rows for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nemo_run.run.backends.base import parse_handle
from nemo_run.run.job import AppState, AppStatus, Job, JobGroup

Rows = list[tuple[str, str]]
Ask = Callable[[Sequence[str]], Sequence[AppStatus | None]]
"""Gives the states of the jobs with these handles."""


def look(jobs: Sequence[Job | JobGroup], ask: Ask, withheld: Mapping[str, str]) -> list[str]:
    """
    Take the states that *ask* gives into *jobs*, and give for each what there is to say of its state.

    *withheld* says of jobs that are not to be launched why that is so.
    """
    handles = [handle for job in jobs if job.launched for handle in job.handles]
    seen = dict(zip(handles, ask(handles), strict=True))
    return [_updated(job, seen, withheld) for job in jobs]


def _updated(job: Job | JobGroup, seen: Mapping[str, AppStatus | None], withheld: Mapping[str, str]) -> str:
    if not job.launched and job.id in withheld:
        set_cancelled(job)
        return f" ({withheld[job.id]})"
    now = [status for handle in job.handles if (status := seen.get(handle))]
    if not now:
        return ""
    if isinstance(job, Job):
        job.state = now[0].state
    else:
        job.states = [status.state for status in now]
    telling = next((status for status in now if status.state == job.state), now[0])
    return str(telling).removeprefix(str(telling.state))


def set_cancelled(job: Job | JobGroup) -> None:
    """Take note that a job will not be launched."""
    if isinstance(job, Job):
        job.state = AppState.CANCELLED
    else:
        job.states = [AppState.CANCELLED] * len(job.tasks)


def facts(job: Job | JobGroup) -> dict[str, Any]:
    """Give what programs read of a job, under the names they know."""
    return {
        "name": job.id,
        "status": job.state,
        "executor": job.executor.info(),
        "job_id": parse_handle(job.handle)[2],
        "handle": job.handle,
        "local_dir": job.executor.job_dir,
    }


def rows(index: int, job: Job | JobGroup, note: str) -> Rows:
    """Give what people read of a job."""
    return [
        (f"Task {index}", job.id),
        ("Status", f"{job.state}{note}"),
        ("Executor", job.executor.info()),
        ("Job id", parse_handle(job.handle)[2]),
        ("Local Directory", job.executor.job_dir),
    ]
