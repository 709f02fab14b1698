"""Experiments whose executors, packagers or launchers only the script has that launched them."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, field

import pytest

import nemo_run as run
from nemo_run._kube.resources import TRAINJOB
from nemo_run.exceptions import ExperimentError
from nemo_run.run import _unknown_classes


@dataclass(kw_only=True)
class Mine(run.KubeflowExecutor):
    extra: str = "x"


@dataclass(kw_only=True)
class Here(run.LocalExecutor):
    extra: dict[str, str] = field(default_factory=lambda: {"a": "b"})


@dataclass(kw_only=True)
class Packs(run.PatternPackager):
    include_pattern: str = "*.py"
    relative_path: str = "."
    more: int = 1


@dataclass
class Strange:
    at: str


CLASSES = (Mine, Here, Packs, Strange)


@pytest.fixture
def script(monkeypatch):
    """Let the classes be those of a main script, until it is left."""
    for kind in CLASSES:
        monkeypatch.setattr(kind, "__module__", "__main__")
        monkeypatch.setattr(sys.modules["__main__"], kind.__name__, kind, raising=False)
    monkeypatch.setattr(_unknown_classes, "_told", set())

    def leave():
        for kind in CLASSES:
            monkeypatch.delattr(sys.modules["__main__"], kind.__name__)

    return leave


def test_they_count_as_what_they_extend_and_that_is_said_once(script, caplog):
    executor = Here(ntasks_per_node=3, extra={"c": "d"}, packager=Packs(include_pattern="*.sh"), launcher="torchrun")
    with run.Experiment("mine", executor=executor) as exp:
        exp.add(run.Script("a.sh"), name="a")
        exp.add(run.Script("b.sh"), executor=run.LocalExecutor(nodes=1), name="b")
        exp.dryrun(log=False, delete_exp_dir=False)
    script()
    found = run.Experiment.from_title("mine")
    first, second = (job.executor for job in found.jobs)
    assert type(found.executor) is type(first) is type(second) is run.LocalExecutor
    assert (first.ntasks_per_node, first.packager) == (
        3,
        run.PatternPackager(include_pattern="*.sh", relative_path="."),
    )
    assert first.job_dir == f"{found._exp_dir}/a"
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert sorted(warning.split(",")[0] for warning in warnings) == [
        "__main__.Here cannot be imported here and counts as LocalExecutor",
        "__main__.Packs cannot be imported here and counts as PatternPackager",
    ]


def test_in_the_script_itself_they_are_what_they_are(script):
    with run.Experiment("mine", executor=Here(extra={"c": "d"})) as exp:
        exp.add(run.Script("a.sh"), name="a")
        exp.dryrun(log=False, delete_exp_dir=False)
    assert run.Experiment.from_title("mine").jobs[0].executor.extra == {"c": "d"}


def test_a_job_on_a_cluster_is_found_and_ended(script, kube):
    with run.Experiment("mine", executor=Mine(image="python:3.12")) as exp:
        exp.add(run.Script(inline="sleep 600"), name="t")
        exp.run(detach=True)
    script()
    assert len(kube.do(lambda store: store.list(TRAINJOB, "default"))) == 1
    found = run.Experiment.from_title("mine")
    found.cancel("t")
    assert kube.do(lambda store: store.list(TRAINJOB, "default")) == []
    assert str(found.status(return_dict=True)["t"]["status"]) == "CANCELLED"


def test_what_extends_nothing_of_ours_is_an_error_that_names_it(script):
    executor = run.LocalExecutor(env_vars={"A": "b"}, launcher="torchrun")
    executor.packager = run.HybridPackager(sub_packagers={"x": Strange("y")})
    with run.Experiment("mine", executor=executor) as exp:
        exp.add(run.Script("a.sh"), name="a")
        exp.dryrun(log=False, delete_exp_dir=False)
    script()
    with pytest.raises(ExperimentError, match="has no attribute 'Strange'"):
        run.Experiment.from_title("mine")
