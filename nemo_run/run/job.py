"""Jobs: a task with its executor, its place in the experiment and its state."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from nemo_run.config import Config, ConfigurableMixin, Partial, Script
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.docker import DockerExecutor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.execution.slurm import SlurmExecutor
from nemo_run.exceptions import ConfigError
from nemo_run.run._jobtext import rest_text, task_text, with_state
from nemo_run.run._submission import Submission, submission
from nemo_run.run._tee import kept_output
from nemo_run.run.plugin import ExperimentPlugin

Task: TypeAlias = Any
"""A Partial or a Script; fiddle's types are not known to type checkers."""


class AppState(int, Enum):
    """
    Where a job stands, with torchx's names and numbers.

    ``str()`` is the bare name: scripts compare it with ``"SUCCEEDED"``.
    """

    UNSUBMITTED = 0
    SUBMITTED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    UNKNOWN = 7

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.name} ({self.value})"


TERMINAL = frozenset({AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED})


def is_terminal(state: AppState) -> bool:
    """Tell whether *state* is one that a job never leaves."""
    return state in TERMINAL


@dataclass(frozen=True)
class AppStatus:
    """A state, and why it is so as far as is known."""

    state: AppState
    msg: str = ""
    stale: bool = False
    """The backend did not answer; this is what was last seen."""

    def __str__(self) -> str:
        notes = [note for note in (self.msg, "stale" if self.stale else "") if note]
        return f"{self.state} ({'; '.join(notes)})" if notes else str(self.state)


class Runner(Protocol):
    """Launches jobs and answers for them by handle: ``scheme://session/app_id``."""

    def submit(self, submission: Submission) -> str:
        """Launch it and give its handle."""

    def dryrun(self, submission: Submission) -> Any:
        """Give what would be launched, without asking anybody."""

    def status(self, handle: str) -> AppStatus | None:
        """Give its state; None where nothing is known of the handle."""

    def wait(self, handle: str, *, log: bool = False) -> AppStatus:
        """Follow it until it ends; *log* shows its output meanwhile."""

    def wait_all(self, handles: Sequence[str], *, log: bool = False) -> list[AppStatus]:
        """Follow many side by side until all have ended."""

    def log_lines(self, handle: str, *, regex: str | None = None) -> Iterator[str]:
        """Give the lines it has written so far."""

    def cancel(self, *handles: str) -> None:
        """End those that still run, together."""


@dataclass
class Job(ConfigurableMixin):
    """One task of an experiment, on its own copy of an executor."""

    id: str
    task: Task
    executor: Executor
    handle: str = ""
    """``scheme://session/app_id`` once launched."""
    launched: bool = False
    state: AppState = AppState.UNSUBMITTED
    """What was last seen."""
    plugins: list[ExperimentPlugin] | None = None
    tail_logs: bool = False
    dependencies: list[str] = field(default_factory=list)
    name: str = ""

    def __post_init__(self) -> None:
        self._submissions: list[Submission] = []
        self._text: tuple[str, str] | None = None

    @property
    def handles(self) -> list[str]:
        """Give the handles of everything that runs for this job."""
        return [self.handle] if self.handle else []

    @property
    def executors(self) -> list[Executor]:
        """Give the executors of everything that runs for this job."""
        return [self.executor]

    def serialize(self) -> tuple[str, str]:
        """Give the job without its task, and the task, as text; plugins have done their work by now."""
        if self._text is None:
            self._text = rest_text(self, "task", None), task_text(self.task)
            return self._text
        rest, task = self._text
        return with_state(rest, handle=self.handle, launched=self.launched, state=self.state), task

    def prepare(self, serialize_metadata_for_scripts: bool = True) -> None:
        """Write what the task needs into its job directory."""
        self.executor.create_job_dir()
        self._text = None
        self._submissions = [
            submission(self.id, self.task, self.executor, serialize_metadata=serialize_metadata_for_scripts)
        ]

    def launch(
        self, wait: bool, runner: Runner, dryrun: bool = False, log_dryrun: bool = False, direct: bool = False
    ) -> Any:
        """
        Launch the task; *dryrun* gives what would be launched instead.

        Raises:
            TypeError: the task is neither a Partial nor a Script.
        """
        _check_task(self.task)
        if direct:
            return self._run_here(dryrun)
        (prepared,) = self._submissions
        if dryrun:
            return runner.dryrun(prepared)
        self.handle = runner.submit(prepared)
        self.launched, self.state = True, AppState.SUBMITTED
        if wait:
            self.wait(runner)
        return None

    def _run_here(self, dryrun: bool) -> None:
        from nemo_run.run.task import direct_run_fn
        from nemo_run.run.torchx_backend.schedulers.api import get_executor_str

        self.handle = f"{get_executor_str(self.executor)}://nemo_run/{self.id}_direct_run"
        self.launched, self.state = True, AppState.FAILED
        with kept_output(Path(self.executor.job_dir, f"log_{self.id.replace('/', '_')}_direct_run.out")):
            direct_run_fn(self.task, dryrun=dryrun)
        self.state = AppState.SUCCEEDED

    def status(self, runner: Runner) -> AppState:
        """Ask how the job stands; what was last seen where nothing is known."""
        if self.launched and self.handle and (now := runner.status(self.handle)):
            self.state = now.state
        return self.state

    def wait(self, runner: Runner | None = None) -> AppStatus:
        """Follow the job until it ends."""
        end = _some(runner).wait(self.handle, log=self.tail_logs)
        self.state = end.state
        return end

    def logs(self, runner: Runner, regex: str | None = None) -> None:
        """Print what the job has written, or the lines of it that match *regex*."""
        from nemo_run.run.logs import get_logs

        get_logs(sys.stdout, self.handle, regex, runner=runner)

    def cancel(self, runner: Runner) -> None:
        """End the job if it still runs; nothing to do if it was never launched."""
        if self.handle:
            runner.cancel(self.handle)

    def cleanup(self) -> None:
        """Let the executor clean up after a job that has ended."""
        if self.handle and is_terminal(self.state):
            self.executor.cleanup(self.handle)


@dataclass
class JobGroup(ConfigurableMixin):
    """Tasks of an experiment that are launched, followed and ended together."""

    SUPPORTED_EXECUTORS: ClassVar[list[type[Executor]]] = [SlurmExecutor, DockerExecutor, LocalExecutor]

    id: str
    tasks: list[Task]
    executors: list[Executor]
    """One per task; a single one is used for all."""
    handles: list[str] = field(default_factory=list)
    launched: bool = False
    states: list[AppState] = field(default_factory=list)
    plugins: list[ExperimentPlugin] | None = None
    tail_logs: bool = False
    dependencies: list[str] = field(default_factory=list)
    name: str = ""

    def __post_init__(self) -> None:
        given: Any = self.executors
        executors: list[Executor] = [given] if isinstance(given, Executor) else list(given)
        if len(executors) not in (1, len(self.tasks)):
            raise ConfigError("executor", len(executors), f"give one for all {len(self.tasks)} tasks, or one for each")
        kinds = {type(executor) for executor in executors}
        if len(kinds) > 1 or not isinstance(executors[0], tuple(self.SUPPORTED_EXECUTORS)):
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ConfigError("executor", names, "a group of tasks needs executors of one kind: Local, Docker or Slurm")
        self.executors = executors * len(self.tasks) if len(executors) == 1 else executors
        self._submissions: list[Submission] = []

    @property
    def state(self) -> AppState:
        """
        Give what its tasks have come to: failed if one has, else the least advanced.

        One that succeeded makes up for others that were ended with it.
        """
        if not self.states:
            return AppState.UNSUBMITTED
        if AppState.FAILED in self.states:
            return AppState.FAILED
        if unfinished := [state for state in self.states if not is_terminal(state)]:
            return min(unfinished)
        return AppState.SUCCEEDED if AppState.SUCCEEDED in self.states else AppState.CANCELLED

    @property
    def handle(self) -> str:
        """Give the first task's handle."""
        return self.handles[0] if self.handles else ""

    @property
    def executor(self) -> Executor:
        """Give the first task's executor."""
        return self.executors[0]

    def serialize(self) -> tuple[str, str]:
        """Give the group without its tasks, and the tasks, as text."""
        return rest_text(self, "tasks", [None] * len(self.tasks)), task_text(self.tasks)

    def prepare(self, serialize_metadata_for_scripts: bool = True) -> None:
        """Write what the tasks need into their job directory."""
        self.executor.create_job_dir()
        self._submissions = [
            replace(
                submission(f"{self.id}-{index}", task, executor, serialize_metadata=serialize_metadata_for_scripts),
                index=index,
            )
            for index, (task, executor) in enumerate(zip(self.tasks, self.executors, strict=True))
        ]

    def launch(
        self, wait: bool, runner: Runner, dryrun: bool = False, log_dryrun: bool = False, direct: bool = False
    ) -> Any:
        """Launch all tasks; *dryrun* gives what would be launched instead."""
        for task in self.tasks:
            _check_task(task)
        if direct:
            raise NotImplementedError("a group of tasks cannot run in this process")
        if dryrun:
            return [runner.dryrun(prepared) for prepared in self._submissions]
        for prepared in self._submissions:
            self.handles.append(runner.submit(prepared))
            self.states.append(AppState.SUBMITTED)
            self.launched = True
        if wait:
            self.wait(runner)
        return None

    def status(self, runner: Runner) -> AppState:
        """Ask how the tasks stand, and give the state of the whole."""
        if self.launched:
            seen = [runner.status(handle) for handle in self.handles]
            self.states = [now.state if now else AppState.UNKNOWN for now in seen]
        return self.state

    def wait(self, runner: Runner | None = None) -> AppStatus:
        """Follow the tasks, side by side, until all have ended."""
        ends = _some(runner).wait_all(self.handles, log=self.tail_logs)
        self.states = [end.state for end in ends]
        notes = [end.msg for end in ends if end.state == self.state and end.msg]
        return AppStatus(self.state, notes[0] if notes else "")

    def logs(self, runner: Runner, regex: str | None = None) -> None:
        """Print what the tasks have written, one after the other."""
        from nemo_run.run.logs import get_logs

        for handle in self.handles:
            get_logs(sys.stdout, handle, regex, runner=runner)

    def cancel(self, runner: Runner) -> None:
        """End the tasks that still run."""
        runner.cancel(*self.handles)

    def cleanup(self) -> None:
        """Let the executors clean up after tasks that have ended."""
        if is_terminal(self.state):
            for executor, handle in zip(self.executors, self.handles, strict=True):
                executor.cleanup(handle)


def _some(runner: Runner | None) -> Runner:
    from nemo_run.run._runner import get_runner

    return runner or get_runner()


def _check_task(task: Any) -> None:
    if not isinstance(task, Partial | Config | Script):
        raise TypeError(f"a task is a run.Partial or a run.Script, not {task!r}")
