"""Ctrl-C and SIGTERM while something for Ray is started: no copy pod, no half-made cluster, no job, no file stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from raying import movers, ray_kube, tree, workdir_executor

from nemo_run._kube.resources import RAYCLUSTER, RAYJOB
from nemo_run.run.ray.job import RayJob
from nemo_run.testing import Cut, Delay, Pod

JOB = 'RayJob(name="cut", executor=executor).start(command="true", workdir={workdir!r})'
CLUSTER = 'RayCluster(name="cut", executor=executor).start(timeout=300)'
CLIENT = """
from raying import workdir_executor
from nemo_run.run.ray.cluster import RayCluster
from nemo_run.run.ray.job import RayJob

executor = workdir_executor()
print("started", {what})
"""


@pytest.fixture(scope="module")
def kube():
    with ray_kube() as running:
        yield running


def struck(kube, times):
    return lambda: any(entry.struck >= times for entry in kube._cluster.faults._active)


def wait_for(what, child=None):
    deadline = time.monotonic() + 120
    while not what():
        assert child is None or child.poll() is None, child.communicate()
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def interrupted(kube, program, fault, strikes, number, **variables):
    """Run *program*, send it signal *number* once *fault* has struck, and give exit code, output and errors."""
    paths = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "NEMO_RUN_LOCAL_KUBE": str(kube.kubeconfig), **variables}
    with (
        kube.fault(fault),
        subprocess.Popen(
            [sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child,
    ):
        try:
            wait_for(struck(kube, strikes), child)
            child.send_signal(number)
            out, err = child.communicate(timeout=120)
        finally:
            child.kill()
    return child.returncode, out, err


@pytest.mark.parametrize(
    ("what", "fault", "strikes", "number"),
    [
        pytest.param(JOB, Pod("*data-mover*", "never-ready"), 1, signal.SIGINT, id="copy pod starts"),
        pytest.param(JOB, Cut("exec", 60, times=None, silent=True), 1, signal.SIGINT, id="files are copied"),
        pytest.param(JOB, Cut("exec", 60, times=None, silent=True), 1, signal.SIGTERM, id="files are copied, SIGTERM"),
        pytest.param(JOB, Delay(2, "POST */rayjobs", times=2), 2, signal.SIGINT, id="job is created"),
        pytest.param(CLUSTER, Delay(2, "POST */rayclusters", times=1), 1, signal.SIGINT, id="cluster is created"),
        pytest.param(CLUSTER, Pod("*-head-*", "Unschedulable"), 1, signal.SIGINT, id="cluster starts"),
        pytest.param(CLUSTER, Pod("*-head-*", "Unschedulable"), 1, signal.SIGTERM, id="cluster starts, SIGTERM"),
    ],
)
def test_nothing_is_left(kube, tmp_path, what, fault, strikes, number):
    code = tree(tmp_path / "code", {"a": "1"})
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    program = CLIENT.format(what=what.format(workdir=str(code)))
    code, out, err = interrupted(kube, program, fault, strikes, number, TMPDIR=str(temporary))
    wait_for(lambda: not kube._cluster.server._late)
    assert code not in (0, -signal.SIGTERM), err
    assert "started" not in out
    assert movers(kube) == []
    assert kube.do(lambda store: store.list(RAYJOB, "default")) == []
    assert kube.do(lambda store: store.list(RAYCLUSTER, "default")) == []
    assert list(temporary.iterdir()) == []


def test_a_job_that_is_there_already_is_kept_and_it_says_how_to_come_back(kube, monkeypatch):
    program = CLIENT.format(what='RayJob(name="kept", executor=executor).start(command="sleep 60")')
    fault = Delay(3, "GET */rayjobs/*", times=1)
    code, out, err = interrupted(kube, program, fault, 1, signal.SIGINT)
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(kube.kubeconfig))
    RayJob(name="kept", executor=workdir_executor()).stop(wait=True)
    assert code == 130, err
    assert "keeps running" in out
    assert "Traceback" not in err
