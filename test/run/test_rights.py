"""The Role in the guide is enough, and no more than that: what is missing of it is named, or done without."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import yaml

import nemo_run as run
from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run._kube.waiting import SYSTEM_CLOCK
from nemo_run.core.execution import _progress
from nemo_run.exceptions import NotAuthorized
from nemo_run.run.job import AppState
from nemo_run.testing import LocalKube
from nemo_run.testing.local import ENVIRONMENT

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/executors/kubeflow.md"
NAMESPACE = "research"


def documented():
    """Give the guide's rules, one for each verb on each resource."""
    text = "\n---\n".join(re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL))
    roles = [document for document in yaml.safe_load_all(text) if document["kind"] in ("Role", "ClusterRole")]
    return [
        {"apiGroups": rule["apiGroups"], "resources": [resource], "verbs": [verb]}
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def right(rule):
    return f"{rule['verbs'][0]} {rule['resources'][0]}"


def without(name):
    rules = documented()
    left = [rule for rule in rules if right(rule) != name]
    assert len(left) == len(rules) - 1
    return left


@pytest.fixture(scope="module")
def one():
    with pytest.MonkeyPatch.context() as patch, LocalKube(images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        patch.setattr(SYSTEM_CLOCK, "pace", 10.0)
        yield kube


@pytest.fixture
def kube(one, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(one.kubeconfig))
    monkeypatch.setattr(_progress, "_told", set())
    yield one
    one.rules = None


def executor(*, workdir=True):
    mount = {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}
    return run.KubeflowExecutor(
        namespace=NAMESPACE,
        image="python:3.12",
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        workdir_volume_mount=mount if workdir else None,
    )


def refusals(kube):
    return [request for request in kube.requests if request.status == 403]


def test_the_role_of_the_guide_is_enough_for_all_of_a_job(kube, capsys):
    kube.rules = documented()
    before = len(refusals(kube))
    script = run.Script(inline="echo hello; echo 7 > $NEMO_RUN_DIR/result")
    run.run(script, executor=executor(), name="train")
    again = run.Experiment.from_title("train")
    (job,) = again.jobs
    name = job.handle.rpartition("___")[2]
    assert again.status(return_dict=True)["train"]["status"] == AppState.SUCCEEDED
    capsys.readouterr()
    again.logs("train")
    assert "hello" in capsys.readouterr().out
    assert list(job.executor.fetch_logs(name)) == ["hello"]
    job.executor.pull_results(name)
    assert Path(job.executor.job_dir, "result").read_text() == "7\n"
    with run.Experiment("more", executor=executor(workdir=False)) as more:
        more.add(run.Script(inline="sleep 30"), name="a")
        more.add(run.Script(inline="sleep 30"), name="b")
        more.run(detach=True)
    other = run.Experiment.from_title("more")
    other.status()
    for task in "ab":
        other.cancel(task)
    assert {str(facts["status"]) for facts in other.status(return_dict=True).values()} == {"CANCELLED"}
    assert job.executor.cancel(name, wait=True, timeout=60, poll_interval=1) is True
    assert refusals(kube)[before:] == []


NEEDED = [
    "create trainjobs",
    "get trainjobs",
    "create pods",
    "get pods",
    "delete pods",
    "get pods/exec",
    "create pods/exec",
]


@pytest.mark.parametrize("missing", NEEDED)
def test_what_a_launch_cannot_do_without_is_named_before_anything_is_created(kube, missing):
    kube.rules = without(missing)
    with pytest.raises(NotAuthorized) as caught:
        run.run(run.Script(inline="true"), executor=executor(), name="early")
    verb, resource = missing.split()
    error = caught.value
    assert (error.namespace, error.context, error.status) == (NAMESPACE, "localkube", 403)
    assert re.search(rf'{verb} {resource}\b|cannot {verb} resource "{resource}"', str(error))
    assert f"namespace {NAMESPACE}" in str(error)
    assert "context localkube" in str(error)
    assert (
        kube.do(lambda store: [*store.list(TRAINJOB, NAMESPACE, labels="nemo-run/job-name=early"), *movers(store)])
        == []
    )


def movers(store):
    return store.list(POD, NAMESPACE, labels="nemo-run/role=data-mover")


DISPENSABLE = {
    "list events": "cannot read the events of namespace research, so reasons are not shown",
    "get clustertrainingruntimes": "cannot read the runtime, so containers, volumes and mounts are not checked",
    "list trainjobs": "jobs are asked for one by one",
    "watch pods": "",
}


@pytest.mark.parametrize(("missing", "told"), DISPENSABLE.items(), ids=DISPENSABLE.keys())
def test_what_only_tells_more_is_done_without_in_one_line(kube, missing, told, caplog, capsys):
    caplog.set_level(logging.INFO, "nemo_run")
    kube.rules = without(missing)
    with run.Experiment("train", executor=executor(workdir=False)) as exp:
        exp.add(run.Script(inline="sleep 30"), name="a")
        exp.add(run.Script(inline="sleep 30"), name="b")
        exp.run(detach=True)
    for _ in range(2):
        run.Experiment.from_title("train").status()
    for task in "ab":
        run.Experiment.from_title("train").cancel(task)
    run.run(run.Script(inline="echo hello"), executor=executor(workdir=False), name="one", tail_logs=True)
    out = capsys.readouterr().out
    assert "one/0 hello" in out
    assert "one: SUCCEEDED" in out
    verb, resource = missing.split()
    lines = [text for text in caplog.messages if f'cannot {verb} resource "{resource}"' in text]
    assert all(told in text for text in lines)
    assert len(set(lines)) == bool(told)


@pytest.mark.parametrize("missing", ["list pods", "get pods/log"])
def test_without_the_right_to_read_output_a_job_still_runs_to_its_known_end(kube, missing, capsys):
    kube.rules = without(missing)
    run.run(run.Script(inline="echo hello"), executor=executor(workdir=False), name="train", tail_logs=True)
    out = capsys.readouterr().out
    verb, resource = missing.split()
    assert f'cannot {verb} resource "{resource}" in API group "" in the namespace "{NAMESPACE}"' in out
    assert "train: SUCCEEDED" in out
    assert "--- lines may be missing ---" in out


def test_without_the_right_to_delete_a_job_runs_and_it_is_told_that_none_can_be_cancelled(kube, caplog):
    kube.rules = without("delete trainjobs")
    run.run(run.Script(inline="true"), executor=executor(workdir=False), name="kept", raise_on_failure=True)
    (told,) = [text for text in caplog.messages if "delete trainjobs" in text]
    assert "cannot be cancelled" in told


def test_every_documented_right_is_one_of_those():
    others = {"delete trainjobs", "list pods", "get pods/log"}
    assert {right(rule) for rule in documented()} == {*NEEDED, *DISPENSABLE, *others}
