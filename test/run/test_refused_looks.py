"""Requests that are refused while a job is followed: its log goes on where it was."""

from __future__ import annotations

import threading

import pytest
from children import wait_for

import nemo_run as run
from nemo_run.testing import Cut, Respond

PAGE = "<html><body>404 page not found</body></html>"


@pytest.mark.parametrize(
    "faults",
    [
        [Respond(403, on="GET */trainjobs/*", times=1)],
        [Respond(401, on="GET */trainjobs/*", times=2)],
        [Respond(404, on="GET */trainjobs/*", body=PAGE, times=1)],
        [Respond(403, on="GET */log", times=1), Cut("log")],
        [Respond(404, on="GET */pods", body=PAGE, times=1), Cut("watch")],
    ],
    ids=["forbidden", "unauthorized", "page", "log", "pods"],
)
def test_one_refusal_costs_no_line(kube, tmp_path, faults):
    gate = kube.claim("shared") / "gate"
    script = run.Script(inline="echo one; until test -e /data/gate; do sleep 0.1; done; echo two; echo three")
    mine = run.KubeflowExecutor(
        image="python:3.12",
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        volume_mounts=[{"name": "work", "mountPath": "/data"}],
    )
    thread = threading.Thread(target=run.run, args=(script,), kwargs={"executor": mine, "name": "train"})
    thread.start()
    logs = lambda: list((tmp_path / "nemorun").glob("experiments/train/*/train/log-allranks_0.out"))  # noqa: E731
    wait_for(lambda: logs() and "one" in logs()[0].read_text())
    with kube.fault(*faults):
        refusal = kube._cluster.faults._active[0]
        if not isinstance(faults[-1], Cut):
            wait_for(lambda: not refusal.left())
        gate.touch()
        thread.join(60)
    assert not thread.is_alive()
    assert [line.partition("] ")[2] for line in logs()[0].read_text().splitlines()] == ["one", "two", "three"]
    assert str(run.Experiment.from_title("train").status(return_dict=True)["train"]["status"]) == "SUCCEEDED"
