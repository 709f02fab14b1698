"""Make jobs out of tasks: every job has copies of its own, in a place of its own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from nemo_run.config import Config, Partial, Script, get_type_namespace
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import ConfigError, ExperimentError
from nemo_run.run._saved import check_name, check_round_trip
from nemo_run.run.job import Job, JobGroup
from nemo_run.run.plugin import ExperimentPlugin


@dataclass(frozen=True)
class Request:
    """A task, or a list of tasks that belong together, as it was asked for."""

    task: Any
    executor: Executor | list[Executor]
    name: str = ""
    plugins: Sequence[ExperimentPlugin] = ()
    tail_logs: bool = False
    dependencies: Sequence[str] = ()


def new_job(request: Request, known: Sequence[str], *, experiment_id: str, directory: str) -> Job | JobGroup:
    """
    Make a job from copies of what *request* names, changed by its plugins.

    Args:
        known: ids of the jobs that the experiment has already.

    Raises:
        ConfigError, ExperimentError: a dependency or a name is missing, or the task cannot be saved.
        TypeError: a task is neither a Partial nor a Script.
    """
    _check_dependencies(request.dependencies, known)
    grouped = isinstance(request.task, list)
    if grouped and not request.name:
        raise ConfigError("name", request.name, "a list of tasks needs a name")
    given = request.task if grouped else [request.task]
    names = [_name_of(task) for task in given]
    task_id = _free_id(check_name(request.name or names[0], "name"), known)
    tasks = [_own_copy(task, task_id) for task in given]
    executors = _own_executors(request.executor)
    for executor in executors:
        # Its own directory also where the name is taken: jobs that start side by side each write their files there.
        executor.assign(experiment_id, directory, task_id, task_id)
    options: dict[str, Any] = {
        "plugins": list(request.plugins) or None,
        "tail_logs": request.tail_logs,
        "dependencies": list(request.dependencies),
    }
    job: Job | JobGroup
    job = JobGroup(task_id, tasks, executors, **options) if grouped else Job(task_id, tasks[0], executors[0], **options)
    for plugin in request.plugins:
        plugin.assign(experiment_id)
        for task, executor in zip(tasks, job.executors, strict=True):
            plugin.setup(task, executor)
    return job


def _check_dependencies(dependencies: Sequence[str], known: Sequence[str]) -> None:
    for wanted in dependencies:
        if wanted not in known:
            there = ", ".join(known) or "no tasks yet"
            raise ExperimentError(f"Dependency {wanted} not found; there are: {there}.")


def _name_of(task: Any) -> str:
    if isinstance(task, Script):
        return task.get_name()
    if isinstance(task, Partial | Config):
        return get_type_namespace(task.__fn_or_cls__)
    raise TypeError(f"a task is a run.Partial or a run.Script, not {task!r}")


def _free_id(name: str, known: Sequence[str]) -> str:
    numbered = (f"{name}_{number}" for number in count(len(known)))
    return name if name not in known else next(each for each in numbered if each not in known)


def _own_copy(task: Any, task_id: str) -> Any:
    """Copy *task*; a Partial is checked first to come back from disk as it went there."""
    if isinstance(task, Script):
        return copy.deepcopy(task)
    check_round_trip(task_id, task)
    return task.clone()


def _own_executors(given: Executor | list[Executor]) -> list[Executor]:
    executors = given if isinstance(given, list) else [given]
    for executor in executors:
        if not isinstance(executor, Executor):
            raise ConfigError("executor", executor, "give a run.Executor")
    return [executor.clone() for executor in executors]
