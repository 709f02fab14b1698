"""``run.run``: one task, launched and followed."""

from __future__ import annotations

from typing import Any

from nemo_run.config import Script, get_type_namespace
from nemo_run.core.execution.base import Executor
from nemo_run.core.runners._main_script import check_may_launch
from nemo_run.run.experiment import Experiment
from nemo_run.run.plugin import ExperimentPlugin as Plugin
from nemo_run.run.task import direct_run_fn


def run(
    fn_or_script: Any,
    executor: Executor | None = None,
    plugins: Plugin | list[Plugin] | None = None,
    name: str = "",
    dryrun: bool = False,
    direct: bool = False,
    detach: bool = False,
    tail_logs: bool = True,
    log_level: str = "INFO",
    raise_on_failure: bool = False,
) -> None:
    """
    Run one configured function or script on *executor*, and return when it has ended.

    Without an executor it runs in this process. A task that fails does not raise
    unless *raise_on_failure* says so: ``run.Experiment.from_title(name).status()``
    tells how it ended, here and in any other process.

    Args:
        fn_or_script: a run.Partial or a run.Script.
        plugins: change the task's own copies of script and executor.
        name: of the experiment, the task and its directory; made from the task if not given.
        dryrun: show what would be launched, without asking or sending anything.
        direct: run in this process whatever the executor.
        detach: return when it is launched.
        tail_logs: show its output.
        log_level: from which level messages of ``nemo_run`` are shown.
        raise_on_failure: raise JobFailed if it does not succeed.
    """
    from fiddle import Buildable

    if not isinstance(fn_or_script, Buildable | Script):
        raise TypeError(f"a task is a run.Partial or a run.Script, not {fn_or_script!r}")
    check_may_launch()
    if direct or executor is None:
        direct_run_fn(fn_or_script, dryrun=dryrun)
        return
    task: Any = fn_or_script
    if getattr(task, "is_lazy", False):
        task = task.resolve()
    name = name or _name(task)
    chosen = [plugins] if isinstance(plugins, Plugin) else plugins
    with Experiment(title=name, executor=executor, log_level=log_level) as experiment:
        experiment.add(task, tail_logs=tail_logs, plugins=chosen, name=name)
        if dryrun:
            experiment.dryrun()
            return
        experiment.run(detach=detach, raise_on_failure=raise_on_failure)


def _name(task: Any) -> str:
    return task.get_name() if isinstance(task, Script) else get_type_namespace(task.__fn_or_cls__)
