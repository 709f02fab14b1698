"""The names and places that tasks of an experiment get."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import nemo_run as run
from nemo_run.exceptions import ConfigError


def added(*names):
    """Give the ids and the directories of tasks added under *names*."""
    with run.Experiment("demo") as exp:
        ids = [exp.add(run.Script(inline="true"), name=name) for name in names]
        places = [Path(job.executor.job_dir).relative_to(exp._exp_dir) for job in exp.jobs]
    return ids, [str(place) for place in places]


@pytest.mark.parametrize(
    "names",
    [("train", "train", "train"), ("a_2", "a", "a", "a"), ("a", "a_1", "a", "a_3", "a")],
    ids=["taken", "the number is taken too", "twice"],
)
def test_no_two_tasks_share_an_id_or_a_directory(names):
    ids, places = added(*names)
    assert len(set(ids)) == len(names)
    assert places == ids


@pytest.mark.parametrize("name", ["a:b", "A_B", "a b", "-rf", "é", "x" * 80, "a___b", "a\nb"])
def test_a_name_stays_as_it_was_written(name):
    assert added(name) == ([name], [name])


@pytest.mark.parametrize("name", ["..", ".", "x/y", "../x", "a\0b"])
def test_a_name_that_names_no_directory_of_its_own_is_refused(name):
    with run.Experiment("demo") as exp, pytest.raises(ConfigError, match="names a directory"):
        exp.add(run.Script(inline="true"), name=name)


@pytest.mark.parametrize("size", [200, 201], ids=["longest", "too long"])
def test_a_name_has_as_many_bytes_as_file_systems_take(size):
    name = "é" * 99 + "x" * (size - 198)
    if size == 200:
        with run.Experiment(name) as exp:
            exp.add(run.Partial(textwrap.dedent, "x"), name=name)
            exp.run()
        assert [str(facts["status"]) for facts in exp.status(return_dict=True).values()] == ["SUCCEEDED"]
        return
    with pytest.raises(ConfigError, match="201 bytes"):
        run.Experiment(name)
    with run.Experiment("demo") as exp, pytest.raises(ConfigError, match="201 bytes"):
        exp.add(run.Script(inline="true"), name=name)


def test_jobs_of_one_name_that_start_side_by_side_each_run_their_own_script(kube):
    executor = run.KubeflowExecutor(
        image="python:3.12",
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run"},
        packager=run.Packager(),
    )
    with run.Experiment("sweep", executor=executor) as exp:
        for letter in "ABCD":
            exp.add(run.Script(inline=f"echo {letter}"), name="train")
        exp.run()
    logs = [Path(job.executor.job_dir, "log-allranks_0.out").read_text() for job in exp.jobs]
    assert [log.rpartition("] ")[2] for log in logs] == ["A\n", "B\n", "C\n", "D\n"]
