"""Run a task in this process, or show what it would be called with."""

from __future__ import annotations

import logging
import sys
from typing import Any

from nemo_run.config import Config, Partial, Script, misspelt
from nemo_run.core.execution.base import Executor
from nemo_run.exceptions import JobFailed

logger = logging.getLogger("nemo_run")


def direct_run_fn(task: Any, dryrun: bool = False) -> None:
    """
    Run *task* here and now: call the function, or execute the script.

    Raises:
        JobFailed: the script ended with a code other than 0.
        TypeError: *task* is neither a Partial nor a Script.
    """
    import fiddle as fdl

    if getattr(task, "is_lazy", False):
        task = task.resolve()
    if not isinstance(task, Partial | Script):
        raise TypeError(f"a task is a run.Partial or a run.Script, not {task!r}")
    if dryrun:
        dryrun_fn(task, build=not isinstance(task, Script))
    elif isinstance(task, Script):
        for mistake in misspelt(task):
            logger.warning(mistake)
        _execute(task)
    else:
        fdl.build(task)()


def _execute(script: Script) -> None:
    from nemo_run.run._tee import Tee
    from nemo_run.run.backends.local import execute

    # An inline script needs no file here: the interpreter takes its text.
    command = [script.entrypoint, "-c", script.inline] if script.inline else script.to_command(with_entrypoint=True)
    if code := execute(command, script.env or {}, piped=isinstance(sys.stdout, Tee)):
        raise JobFailed(f"{script.get_name()} ended with exit code {code}", job=script.get_name(), state="FAILED")


def dryrun_fn(configured_task: Any, executor: Executor | None = None, build: bool = False) -> None:
    """
    Show what *configured_task* would be called with; *build* also builds it.

    Raises:
        TypeError: it is neither configured nor a script.
    """
    import fiddle as fdl

    from nemo_run.core._masking import masked
    from nemo_run.run._console import Console

    if not isinstance(configured_task, Config | Partial | Script):
        raise TypeError(f"a run.Partial, run.Config or run.Script is needed, not {configured_task!r}")
    console = Console()
    if isinstance(configured_task, Script):
        console.print(f"Dry run: {' '.join(masked(configured_task.to_command(with_entrypoint=True)))}")
        return
    function = configured_task.__fn_or_cls__
    console.print(f"Dry run for task {function.__module__}:{function.__name__}", style="bold cyan")
    arguments = fdl.ordered_arguments(configured_task, include_defaults=True, include_equal_to_default=True)
    for name, value in sorted(arguments.items(), key=lambda item: (isinstance(item[0], str), item[0])):
        console.print(f"  {name} = {masked(repr(value))}")
    if executor:
        console.print(f"Executor: {masked(repr(executor))}")
    if build:
        fdl.build(configured_task)
