"""Many jobs and several processes on one namespace: none is lost, mixed up or left over, and questions are shared."""

from __future__ import annotations

import runpy
import threading
from pathlib import Path

import pytest
from children import wait_for

import nemo_run as run
from nemo_run._kube.resources import TRAINJOB
from nemo_run.core.execution._ownership import LAUNCH_ANNOTATION
from nemo_run.run._runner import AppRunner
from nemo_run.run._store import Records
from nemo_run.run.job import AppState
from nemo_run.testing import LocalKube, Respond

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "many_jobs.py"))


@pytest.fixture(scope="module")
def cluster():
    with LocalKube(images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        yield kube


@pytest.fixture
def kube(cluster, monkeypatch):
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(cluster.kubeconfig))
    cluster._cluster.server.requests.clear()
    yield cluster
    for job in cluster.do(lambda store: store.list(TRAINJOB, "default")):
        cluster.do(lambda store, name=job["metadata"]["name"]: store.delete(TRAINJOB, "default", name))


def test_none_is_lost_mixed_up_or_left_over(kube, tmp_path):
    """As ``benchmarks/many_jobs.py`` does it with more."""
    found = BENCHMARK["launch"](kube, tmp_path / "nemorun", {"many": 6, "left": 1, "right": 1})
    assert found.wrong == []
    assert found.requests["POST trainjobs"] == 2 * 8, "a dry run and a create for each"


def test_the_status_of_two_hundred_is_asked_for_in_one_request_a_round(kube, tmp_path):
    ((_, name),) = launched(1)
    records = Records(tmp_path / "nemorun" / ".kubeflow_jobs.json")
    ((app_id, record),) = records.read().items()
    more = {}
    for number in range(1, 200):
        body = kube.do(lambda store: store.get(TRAINJOB, "default", name))
        annotations = {**body["metadata"]["annotations"], LAUNCH_ANNOTATION: str(number)}
        body["metadata"] = {
            "name": f"t{number}-x",
            "labels": body["metadata"]["labels"],
            "annotations": annotations,
        }
        made = kube.do(lambda store, body=body: store.create(TRAINJOB, "default", body))
        own = {"job_name": made["metadata"]["name"], "uid": made["metadata"]["uid"], "launch_id": str(number)}
        more[f"{app_id.partition('___')[0]}___t{number}___t{number}-x"] = {**record, **own, "task": f"t{number}"}
    records.change(lambda old: {**old, **more})
    handles = [f"kubeflow://nemo_run/{one}" for one in records.read()]
    runner = AppRunner()
    runner.statuses(handles)
    kube._cluster.server.requests.clear()
    assert {status.state for status in runner.statuses(handles)} == {AppState.PENDING}
    assert len(handles) == 200
    assert [one.path.rpartition("/")[2] for one in kube.requests] == ["trainjobs"]


def launched(count):
    """Launch jobs that have no pods until they are let go, and give their executors."""
    executor = run.KubeflowExecutor(image="python:3.12", spec_kwargs={"suspend": True})
    with run.Experiment("many", executor=executor) as exp:
        for number in range(count):
            exp.add(run.Script(inline="true"), name=f"t{number}")
        exp.run(detach=True)
    return [(job.executor, job.handle.rpartition("___")[2]) for job in exp.jobs]


def followed(jobs):
    threads = [
        threading.Thread(
            target=executor.follow_logs, args=[name], kwargs={"write": print, "on_state": print}, daemon=True
        )
        for executor, name in jobs
    ]
    for thread in threads:
        thread.start()
    return threads


def looks(kube):
    """Give how often TrainJobs were listed, and how often one was asked for."""
    paths = [one.path for one in kube.requests if one.method == "GET" and "/trainjobs" in one.path]
    lists = sum(path.endswith("/trainjobs") for path in paths)
    return lists, len(paths) - lists


@pytest.mark.parametrize("may_list", [True, False])
def test_jobs_that_are_followed_together_are_asked_for_together(kube, may_list):
    """Three rounds; without the right to list, each is asked for by itself."""
    jobs = launched(6)
    kube._cluster.server.requests.clear()
    with kube.fault(*([] if may_list else [Respond(403, on="GET */trainjobs")])):
        threads = followed(jobs)
        wait_for(lambda: looks(kube)[0] >= 4 if may_list else looks(kube)[1] >= 3 * 6)
        lists, single = looks(kube)
    assert lists <= (5 if may_list else 1)
    assert single <= (6 if may_list else 4 * 6)
    for executor, name in jobs:
        executor.cancel(name)
    for thread in threads:
        thread.join()
