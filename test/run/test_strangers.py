"""Somebody deletes our TrainJob and creates another one of its name: that one is neither ended nor followed."""

from __future__ import annotations

import copy
import threading

from children import wait_for

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


def test_a_cancel_leaves_it_alone_and_says_what_became_of_ours(kube, capsys):
    run.run(run.Script(inline="true"), executor=executor(spec_kwargs={"suspend": True}), name="train", detach=True)
    uid = replace(kube, ["true"])
    run.Experiment.from_title("train").cancel("train")
    assert [job["metadata"]["uid"] for job in jobs(kube)] == [uid]
    capsys.readouterr()
    run.Experiment.from_title("train").status()
    assert f"- Status: {REPLACED}" in capsys.readouterr().out


def test_one_that_replaces_the_job_that_is_followed_ends_the_following(kube, capsys, tmp_path):
    """Its output is not taken for ours."""
    script = run.Script(inline="trap 'exit 0' TERM; echo up; sleep 60 & wait")
    thread = threading.Thread(target=run.run, args=(script,), kwargs={"executor": executor(), "name": "train"})
    thread.start()
    logs = lambda: list((tmp_path / "nemorun").glob("experiments/train/*/train/log-allranks_0.out"))  # noqa: E731
    wait_for(lambda: logs() and "up" in logs()[0].read_text())
    replace(kube, ["bash", "-c", "echo other; sleep 60"])
    thread.join(40)
    assert not thread.is_alive()
    assert f"train: {REPLACED}" in capsys.readouterr().out
    assert [line.partition("] ")[2] for line in logs()[0].read_text().splitlines()] == ["up"]


def test_its_output_is_not_shown_as_ours(kube, capsys):
    run.run(run.Script(inline="true"), executor=executor(spec_kwargs={"suspend": True}), name="train", detach=True)
    (ours,) = jobs(kube)
    kube.do(lambda store: store.delete(TRAINJOB, "default", ours["metadata"]["name"]))
    body = {key: ours[key] for key in ("apiVersion", "kind", "spec")}
    body["metadata"] = {"name": ours["metadata"]["name"]}
    body["spec"] = {**body["spec"], "suspend": False}
    body["spec"]["trainer"] = {**body["spec"]["trainer"], "command": ["bash", "-c", "echo foreign; sleep 60"]}
    kube.do(lambda store: store.create(TRAINJOB, "default", body))
    stranger = run.KubeflowExecutor(image="python:3.12")
    wait_for(lambda: list(stranger.fetch_logs(ours["metadata"]["name"], stream=False)) == ["foreign"])
    capsys.readouterr()
    run.Experiment.from_title("train").logs("train")
    assert "foreign" not in capsys.readouterr().out
