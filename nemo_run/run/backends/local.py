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
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from nemo_run.config import get_nemorun_home
from nemo_run.core.execution._torchrun import DEBUG_ENV
from nemo_run.core.execution.launcher import FaultTolerance, Torchrun
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.run import _store
from nemo_run.run._lines import LineReader
from nemo_run.run._submission import Submission
from nemo_run.run.backends.base import AppRecord, DryRun, Watcher
from nemo_run.run.job import AppState, AppStatus, is_terminal

_NOTE_EXIT = (
    'trap : TERM INT; file=$1; shift; "$@"; code=$?; echo $code >"$file.tmp" && mv "$file.tmp" "$file"; exit $code'
)
"""The trap lets the shell outlive a signal to its group, which the command itself gets as ever."""
_LOOK_EVERY = 0.1
_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class LocalBackend:
    """Launches submissions of a LocalExecutor."""

    scheme: ClassVar[str] = "local_persistent"
    outlives_us: ClassVar[bool] = False

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, submission: Submission, watcher: Watcher) -> AppRecord:
        """Start the process."""
        app_id = f"{submission.name}-{secrets.token_hex(6)}"
        job_dir = Path(submission.executor.job_dir)
        directory = job_dir / "nemo_run" / app_id
        log = directory / submission.name / "0" / "combined.log"
        log.parent.mkdir(parents=True)
        with open(log, "ab") as output:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _NOTE_EXIT, "sh", str(directory / "exit_code"), *command(submission)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment(submission)},
                start_new_session=True,
            )
        self._children[app_id] = child
        _show_as(log, job_dir / "log-allranks_0.out")
        _store.write_text(directory / "process.json", json.dumps({"pid": child.pid, "started": _started(child.pid)}))
        self._remember(app_id, AppState.RUNNING, directory, submission.name)
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
        return [self._status(record) for record in records]

    def follow(self, record: AppRecord, watcher: Watcher) -> AppStatus:
        """Show the log as it grows, until the process has ended."""
        source = f"{record.task}/0"
        with LineReader(_log_file(record)) as reader:
            while not is_terminal((status := self._status(record)).state):
                for line in reader.lines():
                    watcher.line(source, line)
                time.sleep(_LOOK_EVERY)
            for line in reader.rest():
                watcher.line(source, line)
        return status

    def lines(self, record: AppRecord) -> Iterator[str]:
        """Read the log."""
        with LineReader(_log_file(record)) as reader:
            yield from reader.rest()

    def cancel(self, record: AppRecord) -> None:
        """End the process group: first politely, then for certain."""
        if is_terminal(self._status(record).state):
            return
        directory = Path(record.facts["log_dir"])
        _store.write_text(directory / "cancelled", "")
        pid = int(_process(directory)["pid"])
        try:
            self._signal(pid, signal.SIGTERM, record.app_id, directory)
        finally:
            # Also where a second Ctrl-C cuts the wait short: nothing of the job may stay.
            self._signal(pid, signal.SIGKILL, record.app_id, directory)
        self._remember(record.app_id, AppState.CANCELLED, directory, record.task)

    def _signal(self, pid: int, number: signal.Signals, app_id: str, directory: Path) -> None:
        """Send a signal to the group, and wait a while for its leader to end."""
        with suppress(ProcessLookupError):
            os.killpg(pid, number)
        deadline = time.monotonic() + _GRACE
        while self._alive(app_id, directory) and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY / 2)

    def _status(self, record: AppRecord) -> AppStatus:
        directory = Path(record.facts["log_dir"])
        lives = self._alive(record.app_id, directory)  # asked in any case: it reaps a child that has ended
        if lives and not is_terminal(record.status.state):
            return AppStatus(AppState.RUNNING)
        status = _end(directory) or record.status
        if not is_terminal(status.state):
            status = AppStatus(AppState.FAILED, "ended without an exit code: killed")
        if status.state != record.status.state:
            self._remember(record.app_id, status.state, directory, record.task)
        return status

    def _alive(self, app_id: str, directory: Path) -> bool:
        if child := self._children.get(app_id):
            return child.poll() is None
        process = _process(directory)
        return _exit_code(directory) is None and bool(process) and _started(process["pid"]) == process["started"]

    def _remember(self, app_id: str, state: AppState, directory: Path, task: str) -> None:
        _records().put(app_id, [state.name, app_id, str(directory), [task]])

    def _record(self, app_id: str, entry: list[Any]) -> AppRecord:
        state, _, log_dir, roles = entry
        facts = {"log_dir": log_dir}
        job_dir = str(Path(log_dir).parent.parent)
        return AppRecord(app_id, self.scheme, roles[0], app_id, job_dir, None, AppStatus(AppState[state]), facts)


def command(submission: Submission) -> list[str]:
    """Give the whole command, with the launcher and the profiler before what the task runs."""
    return _executor(submission).launcher_command(submission.command)


def environment(submission: Submission) -> dict[str, str]:
    """Give what is added to this process's own environment."""
    executor = submission.executor
    wanted: dict[str, Any] = {**executor.env_vars, **submission.env}
    if isinstance(executor.get_launcher(), Torchrun | FaultTolerance):
        wanted.setdefault("LOGLEVEL", os.environ.get("LOGLEVEL", "INFO"))
        wanted.update(DEBUG_ENV if executor.packager.debug else {})
    return {name: str(value) for name, value in wanted.items() if value is not None}


def execute(argv: Sequence[str], env: Mapping[str, Any]) -> int:
    """Run *argv* to its end, on this process's own input and output, and give its exit code."""
    added = {name: str(value) for name, value in env.items() if value is not None}
    return subprocess.run(argv, env={**os.environ, **added}, check=False).returncode


def _executor(submission: Submission) -> LocalExecutor:
    executor = submission.executor
    if not isinstance(executor, LocalExecutor):
        raise TypeError(f"a LocalExecutor is needed, not {executor!r}")
    return executor


def _records() -> _store.Records:
    return _store.Records(Path(get_nemorun_home(), ".local_jobs.json"))


def _log_file(record: AppRecord) -> Path:
    return Path(record.facts["log_dir"], record.task, "0", "combined.log")


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


def _started(pid: int) -> str:
    """Tell when *pid* began, so that a later process of the same number is not taken for it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() else _answers(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _answers(pid: int) -> str:
    """Do without ``/proc``: only tell whether there is a process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"


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
    return AppStatus(AppState.FAILED, f"exit code {code}") if code else AppStatus(AppState.SUCCEEDED)
