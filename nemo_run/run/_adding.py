"""Make jobs out of tasks: every job has copies of its own, in a place of its own."""

from __future__ import annotations

import copy
import inspect
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
        ConfigError, ExperimentError: a dependency, a name or an argument is missing, or the task cannot be saved.
        TypeError: a task is neither a Partial nor a Script.
    """
    _check_dependencies(request.dependencies, known)
    _check_plugins(request.plugins)
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
    for task in tasks:
        _check_arguments(task_id, task)
    return job


def _check_dependencies(dependencies: Sequence[str], known: Sequence[str]) -> None:
    if isinstance(dependencies, str):
        raise ConfigError("dependencies", dependencies, f"write a list: dependencies=[{dependencies!r}]")
    for wanted in dependencies:
        if wanted not in known:
            there = ", ".join(known) or "no tasks yet"
            raise ExperimentError(f"Dependency {wanted} not found; there are: {there}.")


def _check_plugins(plugins: Sequence[ExperimentPlugin]) -> None:
    wrong = plugins if not isinstance(plugins, list | tuple) else [p for p in plugins if not hasattr(p, "setup")]
    if wrong:
        raise ConfigError("plugins", wrong, "give a list of run.Plugin objects: plugins=[…]")


def _check_arguments(task_id: str, task: Any) -> None:
    """
    Check that all calls that the job makes have the arguments they need; plugins have given theirs by now.

    Raises:
        ExperimentError: it names the parameter, and the place of the call in the task.
    """
    import fiddle as fdl
    from fiddle._src import daglish

    for node, path in daglish.iterate(task, memoized=False):
        # A Partial inside the task is called by the user's own code, which may know the rest.
        called = isinstance(node, fdl.Config) or (isinstance(node, fdl.Partial) and node is task)
        if called and (missing := _missing(node)):
            function, kind = get_type_namespace(node.__fn_or_cls__), type(node).__name__
            place = ": ".join(filter(None, (task_id, daglish.path_str(path).lstrip("."))))
            raise ExperimentError(
                f"Failed to validate task {place}: {function} needs a value for {missing[0]!r};"
                f" write run.{kind}({function.rpartition('.')[2]}, {missing[0]}=…)"
            )


def _missing(config: Any) -> list[str]:
    """Name the parameters without which the call fails; none where a wrapper may be filling them in."""
    try:
        parameters = inspect.signature(config.__fn_or_cls__, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):
        return []
    given = config.__arguments__
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        parameter.name
        for position, parameter in enumerate(parameters)
        if parameter.default is parameter.empty
        and parameter.kind not in optional
        and parameter.name not in given
        and position not in given
    ]


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
            raise ConfigError("executor", executor, "give a run.Executor, such as run.LocalExecutor()")
    clones = [executor.clone() for executor in executors]
    for clone in clones:
        if not hasattr(clone.packager, "package"):
            raise ConfigError("packager", clone.packager, "give a run.Packager, such as run.GitArchivePackager()")
    return clones
