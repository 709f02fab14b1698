"""Turn a task and its executor into what a backend launches."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_run.config import SCRIPTS_DIR, Script
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.serialization.yaml import YamlSerializer
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.run import _store
from nemo_run.run._command import Program

logger = logging.getLogger("nemo_run")


@dataclass(frozen=True)
class Submission:
    """One task on one executor, its files written, ready to be launched."""

    name: str
    executor: Executor
    program: Program
    """What the task itself runs; a launcher may still come before it."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What the task asks for beyond the executor's own ``env_vars``."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


def submission(name: str, task: Any, executor: Executor, *, serialize_metadata: bool = True) -> Submission:
    """
    Write what the task needs into its job directory and tell what is to be run.

    An inline script becomes ``scripts/<name>.sh``, a Partial its serialised
    configuration; both configurations are also kept as YAML to read.
    """
    if not isinstance(task, Script):
        _write_yaml(name, task, executor)
        return Submission(name, executor, _partial_program(name, task, executor))
    if serialize_metadata:
        _write_yaml(name, task.to_config(), executor)
    program = _script_program(name, task, executor)
    if executor.supports_launcher_transform() and (other := executor.get_launcher().transform(program.argv())):
        program = _script_program(name, other, executor)
    return Submission(name, executor, program, dict(task.env or {}), dict(task.metadata or {}))


def _partial_program(name: str, task: Any, executor: Executor) -> Program:
    serializer = ZlibJSONSerializer()
    _, task_file = executor.package_configs(
        (f"{name}_packager", serializer.serialize(executor.packager.to_config())),
        (f"{name}_fn_or_script", serializer.serialize(task)),
    )
    return Program("python", ("-n", name, task_file), module="nemo_run.core.runners.fdl_runner")


def _script_program(name: str, task: Script, executor: Executor) -> Program:
    if not task.inline:
        where = {"module": task.path} if task.m else {"path": task.path}
        return Program(task.entrypoint, tuple(map(str, task.args)), **where)
    filename = os.path.join(executor.job_dir, SCRIPTS_DIR, f"{name}.sh")
    path, *args = task.to_command(filename=filename, is_local=isinstance(executor, LocalExecutor))
    return Program(task.entrypoint, tuple(args), path=path)


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
