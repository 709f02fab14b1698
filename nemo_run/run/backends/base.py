"""What a backend does for the jobs of its executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from nemo_run.core.execution.base import Executor
from nemo_run.run._submission import Submission
from nemo_run.run.job import AppState, AppStatus

SESSION = "nemo_run"
"""The middle of every handle."""


@dataclass(frozen=True)
class AppRecord:
    """A launched job as this disk remembers it."""

    app_id: str
    scheme: str
    task: str
    job_name: str
    """What the job is called where it runs."""
    job_dir: str
    executor: Executor | None
    """As it was at the launch; None if it cannot be read any more."""
    status: AppStatus = field(default_factory=lambda: AppStatus(AppState.SUBMITTED))
    """What was last seen."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the backend needs to find the very same job again."""

    @property
    def handle(self) -> str:
        """Give the name by which the rest of nemo_run knows it."""
        return f"{self.scheme}://{SESSION}/{self.app_id}"


@dataclass(frozen=True)
class DryRun:
    """What would be launched: *request* as it is, *sections* to show, with secrets masked."""

    request: Any
    sections: Sequence[tuple[str, str, str]] = ()
    """Title, language and text of each."""


class Watcher(Protocol):
    """Is told what happens to a job while it is followed."""

    def line(self, source: str, text: str) -> None:
        """Take a line of the job's output that is meant to be seen."""

    def state(self, text: str) -> None:
        """Take a change of state, with its reason."""

    def progress(self, done: int, total: int) -> None:
        """Take how many of all bytes have been copied."""


class Backend(Protocol):
    """Launches submissions and answers for what it launched; keeps its own records."""

    scheme: ClassVar[str]
    outlives_us: ClassVar[bool]
    """Its jobs go on when this process ends."""

    def submit(self, submission: Submission, watcher: Watcher) -> AppRecord:
        """Launch it, and remember it before returning; tell *watcher* what that waits for."""

    def dryrun(self, submission: Submission) -> DryRun:
        """Give what would be launched, without asking anybody."""

    def find(self, app_id: str) -> AppRecord | None:
        """Give what this disk knows of a job."""

    def launched(self, experiment_id: str) -> dict[str, str]:
        """Give task and handle of the jobs of an experiment that this disk knows of."""

    def statuses(self, records: Sequence[AppRecord]) -> list[AppStatus]:
        """Ask how jobs stand; where nobody answers, what was last seen, marked stale."""

    def attend(self, record: AppRecord) -> None:
        """Begin to keep the output of a job that was launched just now, where it would not be kept otherwise."""

    def follow(self, record: AppRecord, watcher: Watcher) -> AppStatus:
        """Keep all its output on disk and tell *watcher* of it until it ends."""

    def lines(self, record: AppRecord) -> Iterator[str]:
        """Give the lines it has written so far."""

    def cancel(self, records: Sequence[AppRecord]) -> None:
        """End those that still run; all are tried before an error is raised."""


def parse_handle(handle: str) -> tuple[str, str, str]:
    """Split ``scheme://session/app_id``."""
    scheme, _, path = handle.partition("://")
    session, _, app_id = path.partition("/")
    return scheme, session, app_id.partition("/")[0]
