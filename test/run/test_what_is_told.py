"""What an experiment tells its user before anything runs: deprecated arguments, and launchers that do nothing here."""

from __future__ import annotations

import logging
import re

import pytest

import nemo_run as run
from nemo_run.exceptions import ConfigError, KubeError


def dryrun(executor, **environment):
    with run.Experiment("told", executor=executor) as exp:
        exp.add(run.Script("train.py", entrypoint="python"), name="t")
        return exp.dryrun(log=False)["t"]["command"]


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_deprecated_arguments_are_told_to_the_script_that_launches_several_tasks():
    """Python shows the warning to the author of that line alone: threads that launch have none."""
    with run.Experiment("told", executor=run.KubeflowExecutor(workdir_pvc="claim-of-several")) as exp:
        exp.add(run.Script("a.sh"), name="a")
        exp.add(run.Script("b.sh"), name="b")
        with pytest.warns(DeprecationWarning, match=re.escape("{'name': 'nemo-run-workdir', 'mountPath':")) as caught:
            launch_without_a_cluster(exp)
    assert [warning.filename for warning in caught if "workdir_pvc" in str(warning.message)] == [__file__]


def launch_without_a_cluster(exp):
    with pytest.raises((ConfigError, KubeError)):
        exp.run()


@pytest.mark.parametrize(
    ("launcher", "word"),
    [
        (run.SlurmTemplate(template_inline="srun {{ command }}"), "SlurmTemplate"),
        ("slurm_ray", "SlurmRay"),
    ],
    ids=["template", "ray"],
)
@pytest.mark.parametrize("kind", [run.LocalExecutor, run.KubeflowExecutor])
def test_a_launcher_for_slurm_does_nothing_here_and_that_is_said(caplog, kind, launcher, word):
    executor = kind(launcher=launcher)
    with run.Experiment("told", executor=executor) as exp:
        exp.add(run.Script("train.py", entrypoint="python"), name="t")
        exp.dryrun(log=False)
    (message,) = told(caplog)
    assert message == f"t: {kind.__name__} has no use for the launcher {word}; the command runs without it"


def test_files_of_fault_tolerance_are_for_slurm_and_that_is_said(caplog):
    dryrun(run.LocalExecutor(launcher=run.FaultTolerance(cfg_path="/a.yaml", finished_flag_file="/b")))
    (message,) = told(caplog)
    assert "no use for cfg_path, finished_flag_file of FaultTolerance" in message


@pytest.mark.parametrize("launcher", [None, "torchrun", "ft"])
def test_launchers_that_do_their_work_are_not_told_of(caplog, launcher):
    dryrun(run.LocalExecutor(launcher=launcher))
    assert told(caplog) == []


def test_several_nodes_that_nothing_lets_meet_are_refused(monkeypatch):
    """Without a place to meet, torchrun would wait for the others for a quarter of an hour."""
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ConfigError, match="MASTER_ADDR, MASTER_PORT and NODE_RANK") as caught:
        dryrun(run.LocalExecutor(nodes=2, launcher="torchrun"))
    assert caught.value.argument == "nodes"
    assert dryrun(run.LocalExecutor(nodes=2)) == ["python", "train.py"]


def test_several_nodes_meet_under_one_id(monkeypatch):
    """Each runs an experiment of its own, which has an id of its own."""
    monkeypatch.setenv("MASTER_ADDR", "head")
    monkeypatch.setenv("MASTER_PORT", "1234")
    first, second = (dryrun(run.LocalExecutor(nodes=2, launcher="torchrun")) for _ in range(2))
    assert first == second
    assert first[first.index("--rdzv-endpoint") + 1] == "head:1234"


def test_a_script_for_a_ray_cluster_of_slurm_is_refused():
    with run.Experiment("told") as exp:
        exp.add(run.Script("train.py", entrypoint="python", metadata={"use_with_ray_cluster": True}), name="t")
        with pytest.raises(ConfigError, match="RayJob"):
            exp.dryrun(log=False)
