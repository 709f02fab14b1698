"""Turn a task and its executor into what a backend launches."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nemo_run.config import SCRIPTS_DIR, USE_WITH_RAY_CLUSTER_KEY, Script, misspelt
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.launcher import FaultTolerance, Launcher
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.runners._main_script import main_source, mentions_main
from nemo_run.core.serialization.yaml import YamlSerializer
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer, unpacked
from nemo_run.exceptions import ConfigError
from nemo_run.run import _store

logger = logging.getLogger("nemo_run")

RUNNER = "nemo_run.core.runners.fdl_runner"
"""The module that runs a Partial in its job."""


@dataclass(frozen=True)
class Submission:
    """One task on one executor, its files written, ready to be launched."""

    name: str
    executor: Executor
    command: Sequence[str]
    """What the task itself runs; a launcher may still come before it."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What the task asks for beyond the executor's own ``env_vars``."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts that must be there when it starts, by path below ``$NEMO_RUN_DIR``, where the job is sent no files."""
    index: int = 0
    """Which of the tasks it is that share a job directory."""


def submission(name: str, task: Any, executor: Executor, *, serialize_metadata: bool = True) -> Submission:
    """
    Write what the task needs into its job directory and tell what is to be run.

    An inline script becomes ``scripts/<name>.sh``, a Partial its serialised
    configuration; both configurations are also kept as YAML to read.

    Raises:
        ConfigError: the task asks for what there is on Slurm only.
    """
    for mistake in misspelt(executor, task):
        logger.warning("%s: %s", name, mistake)
    _tell_unused(name, executor)
    if not isinstance(task, Script):
        _write_yaml(name, task, executor)
        return _of_partial(name, task, executor)
    _tell_of_script(name, task)
    if serialize_metadata:
        _write_yaml(name, task.to_config(), executor)
    if task.metadata and USE_WITH_RAY_CLUSTER_KEY in task.metadata:
        hint = "is for Slurm; on Kubernetes nemo_run.run.ray.job.RayJob runs a command on a Ray cluster"
        raise ConfigError("metadata", USE_WITH_RAY_CLUSTER_KEY, hint)
    command, files = _script_command(name, task, executor)
    if executor.supports_launcher_transform() and (other := executor.get_launcher().transform(command)):
        command, files = _script_command(name, other, executor)
    return _with_macros(Submission(name, executor, command, dict(task.env or {}), dict(task.metadata or {}), files))


def _tell_of_script(name: str, script: Script) -> None:
    """Warn of what the script says and does not get, or hardly means."""
    if script.inline and script.args:
        logger.warning("%s: args are for a file, not for inline text, and are left out; write them into the text", name)
    if not script.inline and script.path.endswith(".py") and Path(script.entrypoint).name in ("bash", "sh"):
        logger.warning(
            '%s: %s is run by %s; for Python write entrypoint="python"', name, script.path, script.entrypoint
        )


def _tell_unused(name: str, executor: Executor) -> None:
    """Warn of what the executor's launcher is told and does nothing with here, as it is for other executors."""
    launcher = executor.get_launcher()
    kind, where = type(launcher).__name__, executor.info()
    if type(launcher).transform is not Launcher.transform and not executor.supports_launcher_transform():
        logger.warning("%s: %s has no use for the launcher %s; the command runs without it", name, where, kind)
    if isinstance(launcher, FaultTolerance):
        flags = ("cfg_path", "finished_flag_file", "job_results_file")
        if given := ", ".join(flag for flag in flags if getattr(launcher, flag)):
            logger.warning(
                "%s: %s has no use for %s of %s; ft_launcher reads FAULT_TOL_CFG_PATH in env_vars",
                *(name, where, given, kind),
            )


def _with_macros(made: Submission) -> Submission:
    """Replace the executor's macros in arguments and variables of the task."""
    if not (macros := made.executor.macro_values()):
        return made
    env = {name: macros.substitute(value) if isinstance(value, str) else value for name, value in made.env.items()}
    return replace(made, command=[macros.substitute(part) for part in made.command], env=env)


def _of_partial(name: str, task: Any, executor: Executor) -> Submission:
    serializer = ZlibJSONSerializer()
    text = serializer.serialize(task)
    here = isinstance(executor, LocalExecutor)
    # Two directories above it the runner looks for the launching script: in the
    # experiment's on this machine, and in the job's own where its files are copied.
    stem = name if here else f"tasks/{name}"
    _, path = executor.package_configs(
        (f"{stem}_packager", serializer.serialize(executor.packager.to_config())), (f"{stem}_fn_or_script", text)
    )
    files: dict[str, str] = {}
    if found := executor.path_in_job(path):
        argument = found
        if not here and mentions_main(unpacked(text)):
            _write_main(executor)
    elif mentions_main(unpacked(text)):
        argument, files = _carried(Path(path), text, executor)
        files["__main__.py"] = main_source()
    else:
        argument = text
    # A process of this machine needs no python on the PATH, nor another one than this.
    command = [sys.executable if here else "python", "-m", RUNNER, "-n", name, argument]
    return Submission(name, executor, command, _import_path(executor), files=files)


def _write_main(executor: Executor) -> None:
    """Let the job have the script that made the experiment; others do not: scripts that launch often hold secrets."""
    saved = Path(executor.experiment_dir, "__main__.py")
    source = saved.read_text() if saved.is_file() else main_source()
    _store.write_private(Path(executor.job_dir, saved.name), source)


def _carried(path: Path, text: str, executor: Executor) -> tuple[str, dict[str, str]]:
    """Give what the job may call *path*, a file that is not sent, and the text that it must find there."""
    place = path.relative_to(executor.job_dir).as_posix()
    return f"$NEMO_RUN_DIR/{place}", {place: text}


def _import_path(executor: Executor) -> dict[str, str]:
    """
    Let a task use modules that lie beside the launching script, as the script itself can.

    On this machine that is the script's directory, elsewhere what is copied from this machine.
    """
    if isinstance(executor, LocalExecutor):
        script = getattr(sys.modules["__main__"], "__file__", None)
        place = script and str(Path(script).absolute().parent)
        before = executor.env_vars.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
    else:
        place = executor.path_in_job(executor.job_dir)
        before = executor.env_vars.get("PYTHONPATH", "$PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (before, place)))} if place else {}


def _script_command(name: str, task: Script, executor: Executor) -> tuple[list[str], dict[str, str]]:
    if not task.inline:
        what = ["-m", task.path] if task.m else [task.path] if task.path else []
        return [task.entrypoint, *what, *map(str, task.args)], {}
    file = Path(executor.job_dir, SCRIPTS_DIR, f"{name}.sh")
    path, *args = task.to_command(filename=str(file), is_local=isinstance(executor, LocalExecutor))
    files: dict[str, str] = {}
    if executor.path_in_job(str(file)) is None:
        path, files = _carried(file, file.read_bytes().decode("utf-8", "surrogateescape"), executor)
    return [task.entrypoint, path, *args], files


def _write_yaml(name: str, task: Any, executor: Executor) -> None:
    """
    Keep both configurations in a form for people; the executor's may hold secrets.

    Nothing reads them back, so a value that YAML cannot hold costs a warning.
    """
    configs = Path(executor.job_dir, "configs")
    serializer = YamlSerializer()
    try:
        texts = {"executor": serializer.serialize(executor.to_config()), "config": serializer.serialize(task)}
    except (TypeError, ValueError) as error:
        logger.warning("%s: its configuration is not kept as YAML: %s", name, error)
        return
    for kind, text in texts.items():
        _store.write_private(configs / f"{name}_{kind}.yaml", text)
