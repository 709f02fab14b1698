"""Order jobs by what they depend on; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter

from nemo_run.exceptions import ConfigError


def generations(dependencies: Mapping[str, Collection[str]]) -> list[list[str]]:
    """
    Group jobs so that each depends only on jobs of earlier groups.

    *dependencies* maps every job to the jobs it waits for. Within a group the
    order is that of the mapping.

    Raises:
        ConfigError: a job waits for one that is not there, or for itself by way of others.
    """
    check_known(dependencies)
    sorter = TopologicalSorter(dependencies)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle = [str(job) for job in error.args[1]]
        raise ConfigError("dependencies", " -> ".join(cycle), "jobs wait for each other in a circle") from None
    place = {job: index for index, job in enumerate(dependencies)}
    order = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        order.append(ready)
        sorter.done(*ready)
    return order


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


def blocked(job: str, dependencies: Mapping[str, Collection[str]], failed: Collection[str]) -> list[str]:
    """Name the dependencies of *job* that did not succeed, in the order it lists them."""
    return [wanted for wanted in dependencies[job] if wanted in failed]
