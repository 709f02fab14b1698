"""Somebody deletes our TrainJob and creates another one of its name: that one is neither ended nor followed."""

from __future__ import annotations

import copy
import time

import nemo_run as run
from nemo_run._kube.resources import TRAINJOB

REPLACED = "CANCELLED (deleted outside nemo_run; another job has its name)"


def executor(**changes):
    return run.KubeflowExecutor(**{"image": "python:3.12", **changes})


def jobs(kube):
    return kube.do(lambda store: store.list(TRAINJOB, "default"))


def replace(kube, command):
    """Let someone delete the only TrainJob and create another of its name; give that one's uid."""
    (ours,) = jobs(kube)
    name, body = ours["metadata"]["name"], copy.deepcopy(ours)
    body.pop("status", None)
    body["metadata"] = {"name": name, "labels": {"owner": "somebody"}}
    body["spec"]["trainer"]["command"] = command
    kube.do(lambda store: store.delete(TRAINJOB, "default", name))
    return kube.do(lambda store: store.create(TRAINJOB, "default", body))["metadata"]["uid"]


def wait_for(what, seconds=40):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def test_a_cancel_leaves_it_alone_and_says_what_became_of_ours(kube, capsys):
    run.run(run.Script(inline="true"), executor=executor(spec_kwargs={"suspend": True}), name="train", detach=True)
    uid = replace(kube, ["true"])
    run.Experiment.from_title("train").cancel("train")
    assert [job["metadata"]["uid"] for job in jobs(kube)] == [uid]
    capsys.readouterr()
    run.Experiment.from_title("train").status()
    assert f"- Status: {REPLACED}" in capsys.readouterr().out
