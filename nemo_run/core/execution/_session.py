"""What an executor remembers between its verbs; none of it is a setting, and none of it is saved."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nemo_run.core.execution._launched import Launched
from nemo_run.exceptions import Conflict, NotAuthorized, NotFound

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run._kube.exec import PodRef
    from nemo_run.core.execution._passthrough import Dialect


_deleted: set[tuple[str, str, str]] = set()
"""Server, namespace and name of each TrainJob that this process has deleted, whichever executor did it."""


@contextmanager
def deleting(server: str, namespace: str, name: str) -> Iterator[None]:
    """
    Remember that this process deletes a TrainJob, unless the block finds that it does not.

    It is remembered before: who follows the job may see it gone before the one who deletes it has the answer.
    """
    key = (server, namespace, name)
    before = key in _deleted
    _deleted.add(key)
    try:
        yield
    except (NotFound, Conflict, NotAuthorized):
        if not before:
            _deleted.discard(key)
        raise


def deleted_here(server: str, namespace: str, name: str) -> bool:
    """Tell whether it was this process that deleted a TrainJob."""
    return (server, namespace, name) in _deleted


@dataclass
class Mover:
    """A copy pod that runs, and what ends it."""

    api: KubeApi
    pod: PodRef
    stack: ExitStack


@dataclass
class Session:
    """An executor's memory."""

    token: str = field(default_factory=lambda: secrets.token_hex(3))
    """The random part of the next job's name."""
    dialect: Dialect | None = None
    """What the server speaks, once it was asked."""
    packed: bool = False
    """Whether ``<job_dir>/code`` is what the packager gives now."""
    checked: bool = False
    """Whether the next job's runtime was looked at."""
    server: str = ""
    """Where that was: the job's code is there."""
    launched: dict[str, list[Launched]] = field(default_factory=dict)
    """The TrainJobs launched and not known to have ended, by the name that the caller gave; shared with clones."""
    known: dict[tuple[str, str], Launched] = field(default_factory=dict)
    """All TrainJobs launched, by namespace and name; shared with clones."""
    movers: dict[str, Mover] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    """Warnings given."""
    on_create: Callable[[Launched], None] | None = None
    """Told of a TrainJob just before the server is asked to create it."""
    on_progress: Callable[[int, int], None] | None = None
    """Told the bytes copied and all bytes."""
    on_state: Callable[[str], None] | None = None
    """Told what a copy pod waits for."""

    def remember(self, task: str, job: Launched) -> None:
        """Keep what was launched for *task*, so that no other job is ever taken for it."""
        self.launched.setdefault(task, []).append(job)
        self.known[job.namespace, job.name] = job

    def next_job(self) -> None:
        """Begin anew for another job: the last one's name is used up."""
        self.token = secrets.token_hex(3)
        self.checked = self.packed = False
