"""Steps that depend on each other, looked at by what surrounds the experiment: handles, runner, states."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import nemo_run as run
from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.core.execution.slurm import SlurmJobDetails, get_packaging_job_key  # noqa: F401
from nemo_run.run.job import AppState, Job, Runner  # noqa: F401

UNFINISHED = [AppState.RUNNING, AppState.PENDING, AppState.SUBMITTED, AppState.UNKNOWN]


def handles(name: str, *, unfinished_only: bool) -> list[str] | None:
    """Give the handles of an experiment's jobs, by its title or its id; None where there is none."""
    try:
        with run.Experiment.from_title(name) as exp:
            return handles_of(exp, unfinished_only)
    except FileNotFoundError:
        try:
            with run.Experiment.from_id(name) as exp:
                return handles_of(exp, unfinished_only)
        except AssertionError:
            return None


def handles_of(exp: run.Experiment, unfinished_only: bool) -> list[str]:
    return [job.handle for job in exp.jobs if not unfinished_only or job.status(exp._runner) in UNFINISHED]


def uncommitted(message: str) -> bool:
    """Tell whether a launch fails, and tells so, because of changes that are not committed."""
    packager = run.GitArchivePackager(check_uncommitted_changes=True)
    executor = KubeflowExecutor(
        image="python:3.12",
        packager=packager,
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run"},
    )
    try:
        with run.Experiment("dirty") as exp:
            exp.add(run.Script(inline="true"), executor=executor, name="dirty")
            exp.run(detach=True)
    except RuntimeError as error:
        return message in str(error)
    return False


def main() -> None:
    executor = run.LocalExecutor(env_vars={"SHARD": "3"})
    with run.Experiment("pipeline", skip_status_at_exit=True) as exp:
        generate = exp.add(
            run.Script(inline="echo generated $SHARD"),
            executor=executor,
            name="generate",
        )
        judge = exp.add(run.Script(inline="exit 4"), executor=executor, name="judge", dependencies=[generate])
        report = exp.add(run.Script(inline="true"), executor=executor, name="summary", dependencies=[judge])
        before = [job.status(exp._runner) for job in exp.jobs]
        exp.run(detach=False, sequential=False)
    states = [job.status(exp._runner) for job in exp.jobs]

    with run.Experiment("waited") as waited:
        waited.add(run.Script(inline="sleep 0.5"), executor=executor, name="slow")
        waited.run(detach=True, sequential=True)
        early = waited.jobs[0].status(waited._runner) in UNFINISHED
        waited._wait_for_jobs(waited.jobs)
        late = waited.jobs[-1].status(waited._runner) is AppState.SUCCEEDED

    facts = {
        "tasks": [generate, judge, report],
        "before": [str(state) for state in before],
        "states": [str(state) for state in states],
        "same": states[0] is AppState.SUCCEEDED and states[1] is AppState.FAILED and states[2] is AppState.CANCELLED,
        "status": {name: str(record["status"]) for name, record in exp.status(return_dict=True).items()},
        "id": exp._id.rpartition("_")[0] == exp._title and exp._id.rpartition("_")[2].isdigit(),
        "waited": [early, late],
        "app": exp.jobs[0].handle.split("://")[1].split("/")[1] == exp.status(return_dict=True)["generate"]["job_id"],
        "by title": handles("pipeline", unfinished_only=False) == [job.handle for job in exp.jobs],
        "unfinished": handles(exp._id, unfinished_only=True),
        "nowhere": handles("nowhere_123", unfinished_only=False),
        "tunnels": exp.tunnels,
        "job dir": exp.jobs[0].executor.job_dir == str(Path(exp._exp_dir, "generate")),
        "uncommitted": uncommitted("Your repo has uncommitted changes."),
    }
    print("REPORT", json.dumps(facts))


if __name__ == "__main__":
    sys.exit(main())
