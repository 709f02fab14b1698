"""
An experiment's own directory: what is written there, and how it is found again.

::

    $NEMORUN_HOME/experiments/<title>/<id>/
        _CONFIG      the experiment and its default executor
        _TASKS       its jobs: executor, handle, state; and their tasks
        _TUNNELS     {}
        _VERSION     of the nemo_run that wrote it
        _CANCELLED   why jobs that were never launched will not be
        __main__.py  the script that ran
        _DONE        once its ``with`` block has ended
        <task>/      what the job was launched with, and its logs
"""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from nemo_run.config import Script, get_nemorun_home
from nemo_run.core.runners._main_script import main_source, mentions_main
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer, unpacked
from nemo_run.exceptions import ConfigError, ExperimentError, ExperimentNotFound
from nemo_run.package_info import __version__
from nemo_run.run import _store, _unknown_classes
from nemo_run.run.job import AppState, Job, JobGroup

NAME_MAX = 200
"""Bytes that a title or a task's name may have: file systems take 255, and some of them are needed for more."""

CONFIG, TASKS, TUNNELS, VERSION, MAIN, DONE = "_CONFIG", "_TASKS", "_TUNNELS", "_VERSION", "__main__.py", "_DONE"
CANCELLED = "_CANCELLED"


def title_dir(title: str, base_dir: str | None = None) -> Path:
    """Give the directory that holds all experiments of a title."""
    return Path(base_dir or get_nemorun_home(), "experiments", title)


def check_title(title: str) -> str:
    """
    Give *title* if it can name a directory.

    Raises:
        ConfigError: it is empty, would lead elsewhere, or is too long.
    """
    return check_name(title, "title")


def check_name(name: str, argument: str) -> str:
    """
    Give *name*, a title or a task's name, if it can name a directory.

    Raises:
        ConfigError: it is empty, would lead elsewhere, or is too long.
    """
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        hint = "names a directory: not empty, without '/', and not '.' or '..'"
        raise ConfigError(argument, name, f"a {argument} {hint}")
    if (size := len(os.fsencode(name))) > NAME_MAX:
        raise ConfigError(
            argument, name, f"it has {size} bytes; a {argument} names a directory and has {NAME_MAX} at most"
        )
    return name


def catalog(title: str = "") -> list[str]:
    """Name the directories below *title*'s, oldest first: ids of a title, or titles."""
    parent = title_dir(title)
    return [path.name for path in _by_age(parent)] if parent.is_dir() else []


def latest(title: str) -> Path:
    """
    Give the directory of the newest experiment of *title*.

    Raises:
        ExperimentNotFound: there is none.
    """
    parent = title_dir(title)
    found = [path for path in _by_age(parent) if (path / CONFIG).exists()] if parent.is_dir() else []
    if not found:
        raise ExperimentNotFound(f"no experiment with the title {title!r} in {parent.parent}; {_titles(parent.parent)}")
    return found[-1]


def of_id(experiment_id: str) -> Path:
    """
    Give the directory of the experiment with that id.

    Raises:
        ExperimentNotFound: there is none.
    """
    parent = title_dir(experiment_id.rpartition("_")[0])
    if not experiment_id or not (parent / experiment_id / CONFIG).exists():
        raise ExperimentNotFound(f"Experiment {experiment_id} not found in {parent}. {_others(experiment_id)}.")
    return parent / experiment_id


def _by_age(parent: Path) -> list[Path]:
    """Sort by the time in the id, which moves with the files; by the file's own time where there is none."""
    return sorted((path for path in parent.iterdir() if path.is_dir()), key=_made)


def _made(path: Path) -> tuple[int, str]:
    stamp = re.search(r"_(\d{10,})$", path.name)
    if not stamp:
        return path.stat().st_mtime_ns, path.name
    digits = stamp[1]
    return int(digits) * (10**9 if len(digits) < 15 else 1), path.name  # older releases counted in seconds


def _others(experiment_id: str) -> str:
    """Say which ids there are that were perhaps meant; titles where there are none of that title."""
    title = experiment_id.rpartition("_")[0]
    if title and (known := catalog(title)):
        return f"Of that title there are: {', '.join(difflib.get_close_matches(experiment_id, known, n=5, cutoff=0))}"
    return f"Of titles {_titles(title_dir(''))}"


def _titles(parent: Path) -> str:
    names = [path.name for path in _by_age(parent)][-5:] if parent.is_dir() else []
    return f"there are: {', '.join(names)}" if names else "there are none"


def save_config(directory: Path, config: Any) -> None:
    """Write what is known before any job is."""
    _store.write_private(directory / CONFIG, ZlibJSONSerializer().serialize(config), durable=True)
    _store.write_text(directory / VERSION, f"{__version__}\n")
    _store.write_text(directory / TUNNELS, "{}")


def save_jobs(directory: Path, jobs: Sequence[Job | JobGroup]) -> None:
    """Write the jobs as they stand, and the script that made them."""
    _store.write_private(directory / TASKS, json.dumps([job.serialize() for job in jobs]), durable=True)
    if source := main_source():
        _store.write_text(directory / MAIN, source)


def check_main(jobs: Sequence[Job | JobGroup]) -> None:
    """
    Check that jobs will find what their tasks use of this process's main script.

    Raises:
        ExperimentError: there is no such script.
    """
    if main_source():
        return
    for job in jobs:
        for task in [job.task] if isinstance(job, Job) else job.tasks:
            if not isinstance(task, Script) and mentions_main(unpacked(ZlibJSONSerializer().serialize(task))):
                raise ExperimentError(
                    f"{job.id} uses what this interactive session defines, which a job cannot find, as no file has it;"
                    " write it into a module and import that here"
                )


def load_config(directory: Path) -> Any:
    """
    Read the experiment's configuration.

    Raises:
        ExperimentError: the file cannot be read; it stays as it is.
    """
    return _deserialized(directory / CONFIG, (directory / CONFIG).read_text())


def load_jobs(directory: Path) -> list[Job | JobGroup]:
    """
    Read the jobs; their tasks stay text until :func:`task_of` is asked for one.

    Raises:
        ExperimentError: the file cannot be read; it stays as it is.
    """
    import fiddle as fdl

    path = directory / TASKS
    if not path.exists():
        return []
    try:
        pairs = [(job, task) for job, task in json.loads(path.read_text())]
    except (ValueError, TypeError) as error:
        raise ExperimentError(f"{path} cannot be read; it was left as it is: {error}") from error
    jobs = []
    for text, task in pairs:
        job = fdl.build(_deserialized(path, _without_torchx(text)))
        setattr(job, "task" if isinstance(job, Job) else "tasks", task)
        _assign(job, directory)
        jobs.append(job)
    return jobs


def _assign(job: Job | JobGroup, directory: Path) -> None:
    """Tell the job's executors where it lies: what they were assigned is not saved with them."""
    for executor in [job.executor] if isinstance(job, Job) else job.executors:
        with suppress(ConfigError):  # an executor of NeMo-Run's that is not run here
            executor.assign(directory.name, str(directory), job.id, Path(executor.job_dir).name or job.id)


def task_of(text: Any) -> Any:
    """Give the task, or the list of tasks, that *text* holds; what is no text already is one."""
    if not isinstance(text, str):
        return text
    config = ZlibJSONSerializer().deserialize(text)
    return [_task(one) for one in config] if isinstance(config, list) else _task(config)


def _task(config: Any) -> Any:
    """Build scripts, which are values; leave Partials to be built where they run."""
    import fiddle as fdl

    is_script = isinstance(config, fdl.Buildable) and config.__fn_or_cls__ is Script
    return fdl.build(config) if is_script else config


def check_round_trip(task_id: str, task: Any) -> None:
    """
    Check that *task* can be written down and read again unchanged.

    Raises:
        ExperimentError: it names the values that cannot.
    """
    serializer = ZlibJSONSerializer()
    try:
        again = serializer.deserialize(serializer.serialize(task))
    except (TypeError, ValueError, AttributeError) as error:
        cause = None if isinstance(error, ConfigError) else error  # a ConfigError says all that there is to know
        raise ExperimentError(f"Failed to validate task {task_id}: {error}") from cause
    if lost := _lost(again, task):
        raise ExperimentError(
            f"Failed to validate task {task_id}: {', '.join(lost)}: changes when it is written to a file;"
            " have the job make it: run.Config(its class or function, its arguments)"
        )


def _lost(again: Any, task: Any) -> list[str]:
    """Name the innermost places of *task* where *again* is another; one NaN is as good as another."""
    from fiddle._src import daglish

    again, task = (daglish.MemoizedTraversal.run(_without_nan, config) for config in (again, task))
    if again == task:
        return []
    there = {path: value for value, path in daglish.iterate(again, memoized=False)}
    lost = [path for value, path in daglish.iterate(task, memoized=False) if path not in there or there[path] != value]
    inner = [path for path in lost if not any(other[: len(path)] == path != other for other in lost)]
    return sorted(daglish.path_str(path).lstrip(".") for path in inner)


def _without_nan(value: Any, state: Any) -> Any:
    if state.is_traversable(value):
        return state.map_children(value)
    return "nan" if isinstance(value, float) and value != value else value


def _deserialized(path: Path, text: str) -> Any:
    try:
        return _unknown_classes.restored(text)
    except Exception as error:  # whatever a class of the user's raises while it is imported
        raise ExperimentError(f"{path} cannot be read; it was left as it is: {error}") from error


def _without_torchx(text: str) -> str:
    """Let the states of jobs that NeMo-Run wrote, which are torchx's, be ours: equal in name and number."""
    try:
        plain = zlib.decompress(base64.urlsafe_b64decode(text)).decode()
    except (ValueError, zlib.error):  # the deserialiser says what is wrong with it
        return text
    if '"torchx.specs.api"' not in plain:
        return text
    ours = plain.replace('"torchx.specs.api"', f'"{AppState.__module__}"')
    return base64.urlsafe_b64encode(zlib.compress(ours.encode())).decode("ascii")


def cancelled(directory: Path) -> Mapping[str, str]:
    """Say of each job that is not to be launched why that is so."""
    return _store.Records(directory / CANCELLED).read()


def mark_cancelled(directory: Path, reasons: Mapping[str, str]) -> None:
    """Note that jobs are not to be launched, for whichever process would."""
    _store.Records(directory / CANCELLED).change(lambda records: {**reasons, **records})


def mark_done(directory: Path) -> None:
    """Note that the experiment's ``with`` block has ended."""
    (directory / DONE).touch()


def is_done(directory: Path) -> bool:
    """Tell whether the experiment's ``with`` block has ended."""
    return (directory / DONE).is_file()


def remove(directory: Path) -> None:
    """Remove an experiment's directory, and the title's if nothing else is in it."""
    import shutil

    shutil.rmtree(directory)
    for parent in (directory.parent, directory.parent.parent):
        try:
            os.rmdir(parent)
        except OSError:  # other experiments live there
            return
