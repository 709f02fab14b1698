"""
Experiments that NeMo-Run 0.11.1 wrote are opened as before.

``written_by_0_11_1`` is what it left of an experiment with a script on Kubernetes
(its cluster played by stand-ins) and one on the machine itself, in ``/tmp/nemorun``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import nemo_run as run

ID = "old_1796060787064397591"
LEFT = Path(__file__).with_name("written_by_0_11_1")


@pytest.fixture
def experiment(tmp_path):
    home = tmp_path / "nemorun"
    directory = home / "experiments" / "old" / ID
    directory.mkdir(parents=True)
    for name in ("_CONFIG", "_TASKS", "_VERSION", "_TUNNELS"):
        shutil.copy(LEFT / name, directory / name)
    for name in ("kubeflow_jobs.json", "local_jobs.json"):
        shutil.copy(LEFT / name, home / f".{name}")
    return run.Experiment.from_id(ID)


def test_its_jobs_and_tasks_are_there(experiment):
    assert [(job.id, type(job.executor).__name__, job.launched) for job in experiment.jobs] == [
        ("train", "KubeflowExecutor", True),
        ("local", "LocalExecutor", True),
    ]
    assert experiment.tasks == [run.Script(inline="echo hello"), run.Script("x.py", entrypoint="python")]
    assert experiment.jobs[0].executor.workdir_pvc == "model-cache"


def test_without_a_cluster_the_status_is_what_was_last_seen(experiment, caplog):
    found = experiment.status(return_dict=True)
    assert {task: str(facts["status"]) for task, facts in found.items()} == {"train": "SUBMITTED", "local": "FAILED"}
    assert found["train"]["handle"] == f"kubeflow://nemo_run/{ID}___train___train-abc123"
    assert found["train"]["local_dir"] == f"{experiment._exp_dir}/train", "the home may have moved"
    assert "train-abc123: its state is not known now" in caplog.text


def test_the_newest_of_its_title_is_found(experiment):
    assert run.Experiment.from_title("old")._id == ID
