"""What a user reads of a RayJob whose pods were killed: the pod, the container, why, and what helps."""

from __future__ import annotations

import re

import pytest
from raying import ray_kube

from nemo_run._kube.api import connect
from nemo_run._kube.resources import POD
from nemo_run._kube.waiting import poll_until
from nemo_run.core.execution._endings import noted
from nemo_run.core.execution._raystate import job_phase
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.run.ray import _jobs
from nemo_run.run.ray.job import RayJob
from nemo_run.testing import Pod, Respond

KILLED = {
    "head": r"pod \S+-head-\S+, container ray-head: OOMKilled, exit code 137; raise head_memory, or use less memory",
    # Before Ray another container waits for the head, which may take as long.
    "worker": (
        r"(pod \S+, container wait-gcs-ready: OOMKilled, exit code \d+; )?"
        r"pod \S+-w-worker-\S+, container ray-worker: OOMKilled, exit code 137;"
        r" raise memory_limits of worker group w, or use less memory"
    ),
}
FAULTS = {
    "head": Pod("ray.io/node-type=head", "OOMKilled", times=1),
    "worker": Pod("ray.io/node-type=worker", "OOMKilled", after=1),
}


@pytest.fixture(scope="module")
def running():
    with ray_kube() as kube:
        yield kube


@pytest.fixture
def kube(running, monkeypatch):
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(running.kubeconfig))
    return running


@pytest.fixture
def job(request, kube):
    made = RayJob(name=request.node.callspec.id, executor=KubeRayExecutor(worker_groups=[KubeRayWorkerGroup("w")]))
    yield made
    made.stop(wait=True)


def failed(kube, job):
    """Have *job* fail after one of its pods was killed, follow it, and give its last status."""
    with kube.fault(FAULTS[job.name]):
        job.start(command="sleep 3; exit 3")
        return job.backend.follow_logs_until_completion(poll_interval=1, delete_on_finish=False)


@pytest.mark.parametrize("node", KILLED)
def test_a_pod_that_ran_out_of_memory_is_named(kube, job, node, caplog):
    """At the end of what following shows and in the status, though the cluster goes as soon as the job has failed."""
    status = failed(kube, job)
    first, *_, last = status["message"].splitlines()
    assert "exit code 3" in first
    assert re.fullmatch(KILLED[node], last), last
    (end,) = [text for text in caplog.messages if f"{job.backend.job_name}: FAILED, Failed/FAILED (AppFailed: " in text]
    assert end.endswith(f"; {last})")
    assert job.status()["message"] == status["message"]
    assert last in caplog.messages[-1]
    with kube.fault(Respond(403, on="GET */pods")):
        assert job.status(display=False)["message"] == status["message"]
    assert f"cannot look which containers of RayJob {job.backend.job_name} failed: " in caplog.text


def test_a_pod_is_noted_while_it_is_there(kube):
    """Its cluster is not known from the beginning, and may be gone at the end."""
    container = {"name": "ray-head", "image": "python:3.12", "command": ["sleep", "60"]}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "killed", "namespace": "default", "labels": {"ray.io/cluster": "c"}},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }
    api, looks = connect(), iter([None, job_phase({})])
    known = job_phase({"status": {"rayClusterName": "c"}})
    with kube.fault(Pod("killed", "OOMKilled")), _jobs.witness(api, "default", lambda: next(looks, known)):
        api.create(POD, "default", body)
        said = poll_until(
            lambda: noted(api, "default", "ray.io/cluster=c"), bool, what="a note", timeout=60, interval=0.1
        )
    api.delete(POD, "default", "killed")
    assert said.startswith("pod killed, container ray-head: OOMKilled, exit code 137; ")
