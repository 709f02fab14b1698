"""Order jobs by what they depend on; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter

from nemo_run.exceptions import ConfigError


class Graph:
    """
    Jobs that wait for other jobs, and which of them may start now.

    *dependencies* maps every job to the jobs it waits for.

    Raises:
        ConfigError: a job waits for one that is not there, or for itself by way of others.
    """

    def __init__(self, dependencies: Mapping[str, Collection[str]]) -> None:
        check_known(dependencies)
        try:
            TopologicalSorter(dependencies).prepare()
        except CycleError as error:
            cycle = [str(job) for job in error.args[1]]
            raise ConfigError("dependencies", " -> ".join(cycle), "jobs wait for each other in a circle") from None
        self._dependencies = dependencies
        self._waiting = {job: set(wanted) for job, wanted in dependencies.items()}

    def ready(self) -> list[str]:
        """Take those jobs that wait for nothing more, in the order of the mapping."""
        found = [job for job, wanted in self._waiting.items() if not wanted]
        for job in found:
            del self._waiting[job]
        return found

    def succeeded(self, job: str) -> None:
        """Let start who waited for *job* last."""
        for wanted in self._waiting.values():
            wanted.discard(job)

    def failed(self, job: str) -> list[str]:
        """Take those jobs that will never start, as they wait for *job* itself."""
        found = [waiting for waiting, wanted in self._waiting.items() if job in wanted]
        for waiting in found:
            del self._waiting[waiting]
        return found


def dependents(job: str, dependencies: Mapping[str, Collection[str]]) -> list[str]:
    """Name the jobs that wait for *job*, also by way of others, in the order of the mapping."""
    found = {job}
    while more := {other for other, wanted in dependencies.items() if other not in found and found & set(wanted)}:
        found |= more
    return [other for other in dependencies if other in found and other != job]


def check_known(dependencies: Mapping[str, Collection[str]]) -> None:
    """
    Check that every dependency is itself a job of the mapping.

    Raises:
        ConfigError: it names the job, the missing dependency and what is there.
    """
    for job, wanted in dependencies.items():
        missing = sorted(set(wanted) - set(dependencies))
        if missing:
            known = ", ".join(dependencies)
            raise ConfigError(
                "dependencies", missing, f"job {job} waits for jobs that are not there; there are: {known}"
            )
