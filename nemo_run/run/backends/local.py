"""
Jobs as processes on this machine.

Each runs in a process group of its own, under a shell that notes its exit code
on disk: so any process can tell how it ended, also when the one that launched it
is gone.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from nemo_run._kube.manifests.env import merge_env
from nemo_run.config import get_nemorun_home
from nemo_run.core.execution._env import entries
from nemo_run.core.execution._torchrun import DEBUG_ENV
from nemo_run.core.execution.launcher import FaultTolerance, Torchrun
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.exceptions import ConfigError
from nemo_run.run import _store
from nemo_run.run._interrupt import held_back
from nemo_run.run._lines import LineReader
from nemo_run.run._submission import Submission
from nemo_run.run.backends._processes import group_lives, started
from nemo_run.run.backends.base import AppRecord, DryRun, Watcher
from nemo_run.run.job import AppState, AppStatus, is_terminal

_SUPERVISE = """
trap 'over=1' TERM INT
file=$1 left=$2
shift 2
while "$@"; code=$?; [ $code != 0 ] && [ $left -gt 0 ] && [ -z "$over" ]; do
    left=$((left - 1))
    echo "nemo_run: exit code $code; starting it again" >&2
done
echo $code >"$file"
exit $code
"""
"""The trap lets the shell outlive a signal to its group, which the command itself gets as ever."""
_SOONEST, _LATEST = 0.02, 0.4
"""Seconds between two looks at a process: soon at first, as many end at once."""
_NOT_FOUND = 127
"""By which a shell says that there is no such program or script."""


class LocalBackend:
    """Launches submissions of a LocalExecutor."""

    scheme: ClassVar[str] = "local_persistent"
    outlives_us: ClassVar[bool] = False
    grace = 5.0
    """Seconds between SIGTERM and SIGKILL."""

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, submission: Submission, watcher: Watcher) -> AppRecord:
        """
        Start the process; an interrupt comes before it, or when it can be found and ended.

        Raises:
            ConfigError: this machine does not have the launcher's program, or a field has no such value.
        """
        _check_launcher(submission)
        with held_back():
            return self._start(submission)

    def _start(self, submission: Submission) -> AppRecord:
        app_id = f"{submission.name}-{secrets.token_hex(6)}"
        job_dir = Path(submission.executor.job_dir)
        directory = job_dir / "nemo_run" / app_id
        log = directory / submission.name / "0" / "combined.log"
        log.parent.mkdir(parents=True)
        retries = max(submission.executor.retries, 0)
        with open(log, "ab") as output:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _SUPERVISE, "sh", str(directory / "exit_code"), str(retries), *command(submission)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_ranks_logs(directory, submission.name), **environment(submission)},
                start_new_session=True,
            )
        self._children[app_id] = child
        _show_as(log, job_dir / f"log-allranks_{submission.index}.out")
        _store.write_text(directory / "process.json", json.dumps({"pid": child.pid, "started": started(child.pid)}))
        self._remember({app_id: (AppState.RUNNING, directory, submission.name)})
        return self._record(app_id, [AppState.RUNNING.name, app_id, str(directory), [submission.name]])

    def dryrun(self, submission: Submission) -> DryRun:
        """Give the command and what is added to the environment."""
        from nemo_run.core._masking import masked

        request = {"command": command(submission), "env": environment(submission)}
        return DryRun(request, [("Process", "json", json.dumps(masked(request), indent=2))])

    def find(self, app_id: str) -> AppRecord | None:
        """Give what ``.local_jobs.json`` says of the job."""
        entry = _records().get(app_id)
        return self._record(app_id, entry) if isinstance(entry, list) and len(entry) == 4 else None

    def launched(self, experiment_id: str) -> dict[str, str]:
        """Give the jobs whose directory lies in that of the experiment."""
        found = {}
        for app_id, entry in _records().read().items():
            if isinstance(entry, list) and len(entry) == 4 and experiment_id in Path(entry[2]).parts:
                found[str(entry[3][0])] = self._record(app_id, entry).handle
        return found

    def statuses(self, records: Sequence[AppRecord]) -> list[AppStatus]:
        """Look at the processes and at the exit codes they left."""
        seen = [self._seen(record) for record in records]
        self._remember(
            {
                record.app_id: (status.state, _directory(record), record.task)
                for record, status in zip(records, seen, strict=True)
                if status.state != record.status.state
            }
        )
        return seen

    def attend(self, record: AppRecord) -> None:
        """Do nothing: its process writes to its log file itself."""

    def follow(self, record: AppRecord, watcher: Watcher) -> AppStatus:
        """Show the log as it grows, until the process has ended."""
        source, pause = f"{record.task}/0", _SOONEST
        with LineReader(_log_file(record)) as reader:
            while not is_terminal(self._seen(record).state):
                for line in reader.lines():
                    watcher.line(source, line)
                time.sleep(pause)
                pause = min(pause * 1.5, _LATEST)
            for line in reader.rest():
                watcher.line(source, line)
        (status,) = self.statuses([record])
        return status

    def lines(self, record: AppRecord) -> Iterator[str]:
        """Read the log."""
        with LineReader(_log_file(record)) as reader:
            yield from reader.rest()

    def cancel(self, records: Sequence[AppRecord]) -> None:
        """End the process groups: first politely, then for certain."""
        running = [record for record in records if not is_terminal(self._seen(record).state)]
        for record in running:
            _store.write_text(_directory(record) / "cancelled", "")
        try:
            self._signal(running, signal.SIGTERM)
        finally:
            # Also where a second Ctrl-C cuts the wait short: nothing of the jobs may stay.
            self._signal(running, signal.SIGKILL)
        self._remember({record.app_id: (AppState.CANCELLED, _directory(record), record.task) for record in running})

    def _signal(self, records: Sequence[AppRecord], number: signal.Signals) -> None:
        """Send a signal to the groups, and wait a while for them to end."""
        pids = {record.app_id: int(_process(_directory(record)).get("pid", 0)) for record in records}
        for record in records:
            if self._is_there(record, pids[record.app_id]):
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pids[record.app_id], number)
        deadline = time.monotonic() + self.grace
        while any(self._is_there(record, pids[record.app_id]) for record in records):
            if time.monotonic() > deadline:
                return
            time.sleep(_SOONEST)

    def _is_there(self, record: AppRecord, pid: int) -> bool:
        """Tell whether anything of the process group is left; dead ones that nobody has reaped count as gone."""
        if not pid:
            return False
        if self._alive(record.app_id, _directory(record)):
            return True
        try:
            os.killpg(pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return group_lives(pid)

    def _seen(self, record: AppRecord) -> AppStatus:
        directory = _directory(record)
        lives = self._alive(record.app_id, directory)  # asked in any case: it reaps a child that has ended
        if lives and not is_terminal(record.status.state):
            return AppStatus(AppState.RUNNING)
        status = _end(directory) or record.status
        return status if is_terminal(status.state) else AppStatus(AppState.FAILED, "ended without an exit code: killed")

    def _alive(self, app_id: str, directory: Path) -> bool:
        if child := self._children.get(app_id):
            return child.poll() is None
        process = _process(directory)
        return _exit_code(directory) is None and bool(process) and started(process["pid"]) == process["started"]

    def _remember(self, seen: Mapping[str, tuple[AppState, Path, str]]) -> None:
        entries = {
            app_id: [state.name, app_id, str(directory), [task]] for app_id, (state, directory, task) in seen.items()
        }
        if entries:
            _records().change(lambda records: {**records, **entries})

    def _record(self, app_id: str, entry: list[Any]) -> AppRecord:
        state, _, log_dir, roles = entry
        facts = {"log_dir": log_dir}
        job_dir = str(Path(log_dir).parent.parent)
        return AppRecord(app_id, self.scheme, roles[0], app_id, job_dir, None, AppStatus(AppState[state]), facts)


def command(submission: Submission) -> list[str]:
    """Give the whole command, with the launcher and the profiler before what the task runs."""
    return _executor(submission).launcher_command(submission.command)


def _check_launcher(submission: Submission) -> None:
    program = command(submission)[0]
    path = environment(submission).get("PATH", os.environ.get("PATH"))
    if program in _PROVIDERS and program != submission.command[0] and not shutil.which(program, path=path):
        hint = f"there is no {program} on the PATH of this machine; install {_PROVIDERS[program]}, or set launcher=None"
        raise ConfigError("launcher", program, hint)


_PROVIDERS = {"torchrun": "PyTorch", "ft_launcher": "nvidia-resiliency-ext", "nsys": "Nsight Systems"}
"""What has the programs that launchers start."""


def environment(submission: Submission) -> dict[str, str]:
    """Give what is added to this process's own environment."""
    executor = submission.executor
    wanted = {**_variables("env_vars", executor.env_vars), **_variables("Script.env", submission.env)}
    if executor.retries:
        wanted.setdefault("TORCHX_MAX_RETRIES", str(executor.retries))
    if isinstance(executor.get_launcher(), Torchrun | FaultTolerance):
        wanted.setdefault("LOGLEVEL", os.environ.get("LOGLEVEL", "INFO"))
        wanted.update(DEBUG_ENV if executor.packager.debug else {})
    return {name: value for name, value in wanted.items() if value is not None}


def _variables(argument: str, given: Mapping[str, Any] | None) -> dict[str, str | None]:
    """
    Give the values as text, by the rules that hold on Kubernetes; None, which leaves a variable out, as it is.

    Raises:
        ConfigError: a name or a value that no variable can have.
    """
    plain = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in (given or {}).items()
    }
    known = {entry["name"]: entry["value"] for entry in merge_env(entries(plain), argument=argument)}
    return {name: known.get(name) for name in plain}


def execute(argv: Sequence[str], env: Mapping[str, Any], *, piped: bool = False) -> int:
    """
    Run *argv* to its end and give its exit code.

    It has this process's own input and output; *piped* sends its output through ``sys.stdout``.
    """
    added = {name: str(value) for name, value in env.items() if value is not None}
    if not piped:
        return subprocess.run(argv, env={**os.environ, **added}, check=False).returncode
    with subprocess.Popen(
        argv, env={**os.environ, **added}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
    ) as child:
        for line in child.stdout or ():
            sys.stdout.write(line)
    return child.returncode


def _executor(submission: Submission) -> LocalExecutor:
    executor = submission.executor
    if not isinstance(executor, LocalExecutor):
        raise TypeError(f"a LocalExecutor is needed, not {executor!r}")
    return executor


def _records() -> _store.Records:
    return _store.Records(Path(get_nemorun_home(), ".local_jobs.json"))


def _directory(record: AppRecord) -> Path:
    return Path(record.facts["log_dir"])


def _log_file(record: AppRecord) -> Path:
    return Path(record.facts["log_dir"], record.task, "0", "combined.log")


def _ranks_logs(directory: Path, task: str) -> dict[str, str]:
    """Let a torchrun in the job keep each rank's output where torchx had it: …/attempt_0/<rank>/stdout.log."""
    return {"PET_LOG_DIR": str(directory / "torchelastic" / task)}


def _show_as(log: Path, name: Path) -> None:
    """Give *log* the name under which logs of any executor are looked for."""
    name.unlink(missing_ok=True)
    try:
        os.link(log, name)
    except OSError:  # no hard links on this file system
        name.symlink_to(log)


def _process(directory: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((directory / "process.json").read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def _exit_code(directory: Path) -> int | None:
    try:
        return int((directory / "exit_code").read_text())
    except (FileNotFoundError, ValueError):
        return None


def _end(directory: Path) -> AppStatus | None:
    """Tell how the process ended, by what it left on disk; None if it left nothing."""
    if (directory / "cancelled").exists():
        return AppStatus(AppState.CANCELLED, "by nemo_run")
    code = _exit_code(directory)
    if code is None:
        return None
    if code == _NOT_FOUND:
        return AppStatus(AppState.FAILED, "exit code 127: its script, or a program in it, was not found")
    return AppStatus(AppState.FAILED, f"exit code {code}") if code else AppStatus(AppState.SUCCEEDED)
