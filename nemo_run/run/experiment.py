"""Experiments: launch tasks together, follow them, and find them again later."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

from nemo_run.config import Config, ConfigurableMixin
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.dgxcloud import DGXCloudExecutor
from nemo_run.core.execution.docker import DockerExecutor
from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.core.execution.lepton import LeptonExecutor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.execution.skypilot import SkypilotExecutor
from nemo_run.core.execution.skypilot_jobs import SkypilotJobsExecutor
from nemo_run.core.execution.slurm import SlurmExecutor
from nemo_run.core.runners._main_script import check_may_launch
from nemo_run.exceptions import ExperimentError, ExperimentNotFound, JobFailed, NemoRunError
from nemo_run.run import _report, _saved
from nemo_run.run._adding import Request, new_job
from nemo_run.run._console import Console, shown_logging
from nemo_run.run._dag import Graph, dependents
from nemo_run.run._interrupt import Interrupted, sigterm_interrupts
from nemo_run.run._launch import (
    follow,
    follow_all,
    launch_all,
    tell_end,
    tell_interrupted,
)
from nemo_run.run._order import InOrder, Outcome, Steps
from nemo_run.run._runner import AppRunner
from nemo_run.run.backends.base import DryRun
from nemo_run.run.job import AppState, AppStatus, Job, JobGroup, is_terminal
from nemo_run.run.plugin import ExperimentPlugin

logger = logging.getLogger("nemo_run")


class Experiment(ConfigurableMixin):
    """
    Tasks that are launched, followed and kept together.

    ::

        with run.Experiment("sweep", executor=executor) as exp:
            exp.add(run.Script("train.sh"), name="train", tail_logs=True)
            exp.run()

    Leaving the block waits for the tasks, unless they were detached. What is
    needed to find them again lies in ``$NEMORUN_HOME``: any process may ask
    :meth:`from_id` or :meth:`from_title` for the experiment and then for its
    status and logs, or cancel a task.

    Args:
        title: what it is called, and the directory that holds all of that title.
        executor: for tasks that are added without one; by default this machine.
        id: made from title and time if not given.
        log_level: from which level the messages of ``nemo_run`` are shown.
        base_dir: keep it there and not in ``$NEMORUN_HOME``.
        clean_mode: show nothing but the output of tasks.
        enable_goodbye_message: tell at the end how to find it again.
        threadpool_workers: how many tasks are launched at a time.
        skip_status_at_exit: do not show how the tasks stand when the block is left.
        serialize_metadata_for_scripts: keep the configuration of scripts as YAML too.
    """

    _PARALLEL_SUPPORTED_EXECUTORS: ClassVar[tuple[type[Executor], ...]] = (
        SlurmExecutor,
        LocalExecutor,
        SkypilotExecutor,
        SkypilotJobsExecutor,
        DockerExecutor,
        DGXCloudExecutor,
        LeptonExecutor,
        KubeflowExecutor,
    )
    _DETACH_SUPPORTED_EXECUTORS: ClassVar[tuple[type[Executor], ...]] = (
        SlurmExecutor,
        SkypilotExecutor,
        SkypilotJobsExecutor,
        DGXCloudExecutor,
        LeptonExecutor,
        KubeflowExecutor,
    )

    @classmethod
    def catalog(cls, title: str = "") -> list[str]:
        """Name the experiments of *title*, oldest first; without a title, name the titles."""
        return _saved.catalog(title)

    @classmethod
    def from_id(cls, id: str) -> Experiment:
        """
        Find the experiment with that id.

        Raises:
            ExperimentNotFound: there is none; it is an AssertionError and a FileNotFoundError too.
        """
        return cls._from_dir(_saved.of_id(id))

    @classmethod
    def from_title(cls, title: str) -> Experiment:
        """
        Find the newest experiment of that title.

        Raises:
            ExperimentNotFound: there is none; it is an AssertionError and a FileNotFoundError too.
        """
        return cls._from_dir(_saved.latest(title))

    @classmethod
    def _from_dir(cls, directory: Path) -> Experiment:
        import fiddle as fdl

        config = fdl.cast(Config, _saved.load_config(directory))
        config.id, config._reconstruct = directory.name, True
        experiment: Experiment = fdl.build(config)
        experiment._exp_dir = str(directory)
        experiment._jobs = _saved.load_jobs(directory)
        experiment._find_launched()
        return experiment

    def __init__(
        self,
        title: str,
        executor: Executor | None = None,
        id: str | None = None,
        log_level: str = "INFO",
        _reconstruct: bool = False,
        jobs: list[Job | JobGroup] | None = None,
        base_dir: str | None = None,
        clean_mode: bool = False,
        enable_goodbye_message: bool = True,
        threadpool_workers: int = 16,
        skip_status_at_exit: bool = False,
        serialize_metadata_for_scripts: bool = True,
    ) -> None:
        self._title = _saved.check_title(title)
        self._id = id or f"{title}_{time.time_ns()}"
        self._base_dir = base_dir
        self._exp_dir = str(_saved.title_dir(title, base_dir) / self._id)
        self._reconstruct = _reconstruct
        self._enable_goodbye_message = enable_goodbye_message
        self._threadpool_workers = threadpool_workers
        self._skip_status_at_exit = skip_status_at_exit
        self._serialize_metadata_for_scripts = serialize_metadata_for_scripts
        self.executor: Executor = executor or LocalExecutor()
        self.log_level = log_level
        self.clean_mode = clean_mode
        self.console = Console(quiet=clean_mode)
        self.tunnels: dict[str, Any] = {}
        self.detach = False
        self._jobs: list[Job | JobGroup] = jobs or []
        self._runner = AppRunner(self.console)
        self._launched = False
        self._waited = False
        self._raise_on_failure = False
        self._used = False
        self._goodbye_said = False
        self._outcome = Outcome()
        self._block: contextlib.ExitStack | None = None

    def to_config(self) -> Config[Any]:
        """Give the configuration from which the experiment can be built again."""
        return Config(
            self.__class__,
            title=self._title,
            id=self._id,
            executor=self.executor.to_config(),
            log_level=self.log_level,
            clean_mode=self.clean_mode,
            threadpool_workers=self._threadpool_workers,
            enable_goodbye_message=self._enable_goodbye_message,
            skip_status_at_exit=self._skip_status_at_exit,
            serialize_metadata_for_scripts=self._serialize_metadata_for_scripts,
        )

    @property
    def jobs(self) -> Jobs:
        """Give the jobs, in the order in which they were added."""
        return Jobs(self._jobs)

    @jobs.setter
    def jobs(self, jobs: list[Job | JobGroup]) -> None:
        self._jobs = jobs

    @property
    def tasks(self) -> Tasks:
        """Give what each job runs: a task, or a list of them."""
        return Tasks([self._task(job) for job in self._jobs])

    def _task(self, job: Job | JobGroup) -> Any:
        if isinstance(job, Job):
            job.task = _saved.task_of(job.task)
            return job.task
        job.tasks = _saved.task_of(job.tasks)
        return job.tasks

    def add(
        self,
        task: Any,
        executor: Executor | list[Executor] | None = None,
        name: str = "",
        plugins: list[ExperimentPlugin] | None = None,
        tail_logs: bool = False,
        dependencies: list[str] | None = None,
    ) -> str:
        """
        Add a task, or a list of tasks that belong together, and give its id.

        The task and the executor are copied; *plugins* change the copies, and
        nothing that is done to the originals later reaches them.

        Args:
            task: a run.Partial, a run.Script, or a list of them, which needs a *name*.
            executor: by default the experiment's.
            name: its id and its directory; made from the task if not given.
            tail_logs: show its output while it is followed.
            dependencies: ids of tasks that must have succeeded first.
        """
        self._check_entered()
        request = Request(task, executor or self.executor, name, plugins or (), tail_logs, dependencies or ())
        known = [job.id for job in self._jobs]
        job = new_job(request, known, experiment_id=self._id, directory=self._exp_dir)
        self._jobs.append(job)
        return job.id

    def dryrun(self, log: bool = True, exist_ok: bool = False, delete_exp_dir: bool = True) -> dict[str, Any]:
        """
        Show what would be launched for each task, and give it; nothing is asked and nothing sent.

        What is shown has secrets masked; what is given has not. The experiment's
        directory is removed again unless *delete_exp_dir* is false, or it was there before.
        """
        if log:
            self.console.log(f"Experiment {self._id} dryrun...", style="bold magenta")
        self._used = True
        requests = {}
        made = not os.path.lexists(self._exp_dir)
        try:
            self._prepare(exist_ok=exist_ok)
            for job in self._jobs:
                found = job.launch(wait=False, runner=self._runner, dryrun=True)
                dryruns: list[DryRun] = found if isinstance(found, list) else [found]
                if log:
                    self._show_dryrun(job, dryruns)
                given = [one.request for one in dryruns]
                requests[job.id] = given if isinstance(found, list) else given[0]
        finally:
            if delete_exp_dir and made and os.path.isdir(self._exp_dir):
                _saved.remove(Path(self._exp_dir))
        return requests

    def _show_dryrun(self, job: Job | JobGroup, dryruns: Sequence[DryRun]) -> None:
        kind = "Task" if isinstance(job, Job) else "Task Group"
        self.console.log(f"{kind} {job.id}", style="bold magenta")
        for one in dryruns:
            for title, language, text in one.sections:
                self.console.print(f"\n# {title}", style="bold")
                self.console.code(text, language)

    def run(
        self,
        sequential: bool = False,
        detach: bool = False,
        tail_logs: bool = False,
        direct: bool = False,
        raise_on_failure: bool = False,
    ) -> None:
        """
        Launch all tasks: those that wait for none at once, the others in their order.

        Args:
            sequential: one after the other, in the order in which they were added.
            detach: return when they are launched; possible where they outlive this process.
            tail_logs: show the output of every task.
            direct: run them one after the other in this process.
            raise_on_failure: raise JobFailed once all have ended if one did not succeed.
        """
        self._check_entered()
        if self._launched or self._reconstruct:
            why = "already running" if self._launched else "in inspection mode"
            self.console.log(f"Experiment {why}...", style="bold magenta")
            if not self._launched:
                self.console.log("Nothing was launched: it was found, not made. Call reset() first to launch it again.")
            return
        check_may_launch()
        self._raise_on_failure = raise_on_failure
        self._used = True
        self._prepare(exist_ok=True)
        if direct:
            self._run_here()
            return
        _saved.check_main(self._jobs)
        if sequential:
            self._chain()
        for job in self._jobs:
            job.tail_logs = job.tail_logs or tail_logs
        with self._told_when_interrupted():
            self._run_launched(detach)

    def _run_launched(self, detach: bool) -> None:
        Graph(self._dependencies())
        in_order = any(job.dependencies for job in self._jobs)
        if detach and (stays := self._kept_by(in_order)):
            self.console.log(
                f"Cannot detach from this experiment. Please keep it running until completion. {stays}",
                style="bold red",
            )
            detach = False
        self.detach = detach
        try:
            if in_order:
                self._waited = True
                with self._board():
                    running = InOrder(self._jobs, self._steps(), workers=self._threadpool_workers)
                    self._outcome = running.outcome
                    running.run()
            else:
                launch_all(self._jobs, self._launch, workers=self._threadpool_workers)
        finally:
            self._launched = any(job.launched for job in self._jobs)
            if in_order or detach:  # else the jobs are followed next, and written when they have ended
                _saved.save_jobs(Path(self._exp_dir), self._jobs)

    def _dependencies(self) -> dict[str, list[str]]:
        return {job.id: job.dependencies for job in self._jobs}

    def _steps(self) -> Steps:
        directory = Path(self._exp_dir)
        return Steps(
            launch=self._launch,
            follow=lambda job: follow(job, self._runner, self.console),
            withheld=lambda: _saved.cancelled(directory),
            withhold=self._withhold,
        )

    def _withhold(self, job: Job | JobGroup, reason: str) -> AppStatus:
        """Note, here and on disk, that *job* is not to be launched."""
        _saved.mark_cancelled(Path(self._exp_dir), {job.id: reason})
        _report.set_cancelled(job)
        end = AppStatus(AppState.CANCELLED, reason)
        tell_end(job, end, self.console)
        return end

    def _board(self) -> contextlib.AbstractContextManager[None]:
        """Show on a terminal how the jobs stand while they are waited for, unless their output is shown."""
        if any(job.tail_logs for job in self._jobs):
            return contextlib.nullcontext()
        return self.console.board(
            self._id, lambda: [(job.id, str(job.state), is_terminal(job.state)) for job in self._jobs]
        )

    def _chain(self) -> None:
        if any(job.dependencies for job in self._jobs):
            raise ExperimentError("Jobs in this experiment have dependencies: run it with sequential=False.")
        for before, job in zip(self._jobs, self._jobs[1:], strict=False):
            job.dependencies.append(before.id)

    def _kept_by(self, in_order: bool) -> str:
        """Say why this process has to stay until all has ended; nothing if it may go."""
        if in_order:
            return "It launches tasks when those that they depend on have succeeded."
        executors = [executor for job in self._jobs for executor in job.executors]
        bound = {one.info() for one in executors if not isinstance(one, self._DETACH_SUPPORTED_EXECUTORS)}
        return f"Tasks on {', '.join(sorted(bound))} end with it." if bound else ""

    def _launch(self, job: Job | JobGroup) -> None:
        self.console.log(f"Launching job {job.id} for experiment {self._title}", style="bold cyan")
        try:
            job.launch(wait=False, runner=self._runner)
        except Exception as error:
            self.console.log(f"Error running job {job.id}: {error}", style="bold red")
            raise
        if not self.detach:
            for handle in job.handles:
                self._runner.attend(handle)
        if job.id in _saved.cancelled(Path(self._exp_dir)):  # meanwhile, by another thread or process
            job.cancel(self._runner)

    def _run_here(self) -> None:
        self.console.log("Running the experiment with direct=True: all jobs one after the other in this process.")
        if any(isinstance(job, JobGroup) or job.dependencies for job in self._jobs):
            raise ExperimentError("groups of tasks and tasks with dependencies cannot run with direct=True")
        self._waited = True
        try:
            for job in self._jobs:
                self._launched = True
                job.launch(wait=True, runner=self._runner, direct=True)
                self._outcome.ends[job.id] = AppStatus(AppState.SUCCEEDED)
        finally:
            _saved.save_jobs(Path(self._exp_dir), self._jobs)

    def _prepare(self, exist_ok: bool = False) -> None:
        directory = Path(self._exp_dir)
        directory.mkdir(parents=True, exist_ok=exist_ok)
        _saved.save_config(directory, self.to_config())
        for job in self._jobs:
            job.prepare(serialize_metadata_for_scripts=self._serialize_metadata_for_scripts)
        _saved.save_jobs(directory, self._jobs)

    def _wait_for_jobs(self, jobs: Sequence[Job | JobGroup]) -> None:
        """Follow launched *jobs* until all have ended."""
        with self._told_when_interrupted(), self._board():
            self._outcome.ends.update(follow_all(jobs, self._steps().follow).ends)
        self._save_states()

    def _save_states(self) -> None:
        if os.path.isdir(self._exp_dir):
            _saved.save_jobs(Path(self._exp_dir), self._jobs)

    @contextlib.contextmanager
    def _told_when_interrupted(self) -> Iterator[None]:
        try:
            with sigterm_interrupts():
                yield
        except Interrupted:
            raise
        except KeyboardInterrupt as error:
            self._interrupted()
            raise Interrupted(error) from None

    def _interrupted(self) -> None:
        self._find_launched()  # one whose launch was cut off may be there all the same
        self._goodbye_said = tell_interrupted(self._id, self._jobs, self._runner, self.console)
        waiting = [job.id for job in self._jobs if not job.launched and job.id not in self._outcome.ends]
        _saved.mark_cancelled(Path(self._exp_dir), dict.fromkeys(waiting, "not started: interrupted"))
        # Not asked: who wants to leave does not wait for a server.
        _report.look(self._jobs, self._runner.remembered, _saved.cancelled(Path(self._exp_dir)))
        self._save_states()

    def status(self, return_dict: bool = False) -> dict[str, dict[str, Any]] | None:
        """
        Show how each task stands; with *return_dict* give it instead.

        The dict maps task ids, in the order in which they were added, to ``name``,
        ``status`` (an AppState), ``executor``, ``job_id``, ``handle`` and ``local_dir``.
        Where a cluster does not answer it is what was last seen.
        """
        notes = _report.look(self._jobs, self._runner.statuses, _saved.cancelled(Path(self._exp_dir)))
        if return_dict:
            return {job.id: _report.facts(job) for job in self._jobs}
        rows = [_report.rows(index, job, note) for index, (job, note) in enumerate(zip(self._jobs, notes, strict=True))]
        self.console.status(self._id, rows)
        return None

    def logs(self, job_id: str, regex: str | None = None) -> None:
        """Print what a task has written, or the lines of it that match *regex*."""
        self.console.log(f"Fetching logs for {job_id}", style="bold cyan")
        if not (job := self._job(job_id)):
            return
        where = f"Logs may be present in job directory at:\n{job.executor.job_dir}."
        if job.handle.endswith("direct_run"):
            self.console.log(f"This job was run with direct=True.\n{where}")
            return
        self._find_launched()
        if not job.handle:
            self.console.log(f"Failed to get logs for {job_id}\nIt was not launched: {job.state}", style="bold red")
            return
        try:
            job.logs(runner=self._runner, regex=regex)
        except NemoRunError as error:
            self.console.log(f"Failed to get logs for {job_id}\nError: {error}\n{where}", style="bold red")

    def cancel(self, job_id: str) -> None:
        """
        End a task if it still runs, and keep it and those that depend on it from being launched.

        Any thread and any process may do so, also while another one runs the experiment.
        """
        self.console.log(f"Cancelling {job_id} if still running", style="bold cyan")
        if not (job := self._job(job_id)):
            return
        directory = Path(self._exp_dir)
        try:
            self._find_launched()
            if not job.launched:
                _saved.mark_cancelled(directory, {job_id: "by nemo_run"})
                self._find_launched()  # just now, perhaps, by a process that had not seen the mark
            job.cancel(runner=self._runner)
            _report.look([job], self._runner.statuses, _saved.cancelled(directory))
        except NemoRunError as error:
            self.console.log(f"Failed to cancel {job_id}\nError: {error}", style="bold red")
            return
        if job.state == AppState.CANCELLED:
            there = {other.id: other for other in self._jobs if not other.launched}
            waiting = [other for other in dependents(job_id, self._dependencies()) if other in there]
            _saved.mark_cancelled(directory, dict.fromkeys(waiting, f"not started: {job_id} CANCELLED"))
            for other in waiting:
                _report.set_cancelled(there[other])

    def _job(self, job_id: str) -> Job | JobGroup | None:
        for job in self._jobs:
            if job.id == job_id:
                return job
        self.console.log(
            f"Job {job_id} not found; there are: {', '.join(job.id for job in self._jobs)}", style="bold red"
        )
        return None

    def reset(self) -> Experiment:
        """Make the experiment ready to be launched again, under a new id, with equal tasks and executors."""
        if not self._reconstruct and not _saved.is_done(Path(self._exp_dir)):
            self.console.log(f"Experiment {self._id} has not run yet, skipping reset...", style="bold magenta")
            return self
        fresh = Experiment(self._title, self.executor, base_dir=self._base_dir)
        self._id, self._exp_dir = fresh._id, fresh._exp_dir
        self._launched = self._waited = self._reconstruct = self.detach = False
        self._outcome = Outcome()
        old, self._jobs = self._jobs, []
        with contextlib.nullcontext(self) if self._block else self._entered():
            for job in old:
                executor = job.executor if isinstance(job, Job) else job.executors
                self.add(self._task(job), executor, name=job.id, tail_logs=job.tail_logs, dependencies=job.dependencies)
        return self

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        with contextlib.ExitStack() as self._block:
            yield
        self._block = None

    def _check_entered(self) -> None:
        if self._block is None:
            raise ExperimentError("Using Experiment without it's context manager is not permitted.")

    def _find_launched(self) -> None:
        """Take handles from the backends' records where a process ended before it could write them here."""
        from nemo_run.run.backends import BACKENDS

        missing = [job for job in self._jobs if not job.launched]
        if not missing:
            return
        found = {task: handle for backend in BACKENDS.values() for task, handle in backend.launched(self._id).items()}
        for job in missing:
            if isinstance(job, Job) and job.id in found:
                job.handle, job.launched, job.state = found[job.id], True, self._runner.last_seen(found[job.id])
            elif isinstance(job, JobGroup):
                names = [f"{job.id}-{index}" for index in range(len(job.executors))]
                if handles := [found[name] for name in names if name in found]:
                    job.handles, job.launched = handles, True
                    job.states = [self._runner.last_seen(handle) for handle in handles]

    def __enter__(self) -> Experiment:
        self._block = contextlib.ExitStack()
        self._block.enter_context(shown_logging(self.console, self.log_level))
        self.console.rule(f"Entering Experiment {self._title} with id: {self._id}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._launched and not isinstance(error, KeyboardInterrupt):
                with self._told_when_interrupted():
                    self._leave()
            elif self._launched and not isinstance(error, Interrupted):
                self._interrupted()
            elif error is None:
                self._tell_idle()
        finally:
            self._end_block()
        if self._raise_on_failure and error is None:
            self._raise_failures()

    def _tell_idle(self) -> None:
        if self._jobs and not (self._reconstruct or self._used):
            logger.warning("%d task(s) added, none launched: call run()", len(self._jobs))

    def _leave(self) -> None:
        if self.detach:
            self.console.rule(f"Detaching from Experiment {self._id}.")
        elif self._waited:
            self.console.rule(f"Done waiting for Experiment {self._id}")
        else:
            self.console.rule(f"Waiting for Experiment {self._id} to finish")
        if not self._skip_status_at_exit:
            self.status()
        if not self.detach and not self._waited:
            self._wait_for_jobs(self._jobs)

    def _end_block(self) -> None:
        if self._launched:
            _saved.mark_done(Path(self._exp_dir))
            if self._enable_goodbye_message and not self._goodbye_said:
                self.console.goodbye(self._id, [job.id for job in self._jobs])
        if self._block:
            self._block.close()
            self._block = None

    def _raise_failures(self) -> None:
        for job in self._outcome.failed:
            end = self._outcome.ends[job]
            raise JobFailed(f"{job} of experiment {self._id}: {end}", job=job, state=str(end.state))


class Tasks(list[Any], ConfigurableMixin):
    """What the jobs of an experiment run."""


class Jobs(list[Any], ConfigurableMixin):
    """The jobs of an experiment."""


__all__ = ["Experiment", "ExperimentNotFound", "Job", "JobGroup", "Jobs", "Tasks"]
