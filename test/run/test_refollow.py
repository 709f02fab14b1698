"""Jobs on a cluster, followed again and in order."""

from __future__ import annotations

import re
from pathlib import Path

from local_runs import states

import nemo_run as run
from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run._kube.waiting import poll_until


def executor(**changes):
    fields = {
        "image": "python:3.12",
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        "workdir_volume_mount": {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
    }
    return run.KubeflowExecutor(**{**fields, **changes})


def test_a_detached_job_is_followed_again_and_its_lines_are_kept_once(kube, capsys):
    gate = kube.claim("shared") / "gate"
    script = run.Script(inline="echo begun; until test -e /data/gate; do sleep 0.1; done; echo begun; echo done")
    mounts = [{"name": "work", "mountPath": "/data"}]
    run.run(script, executor=executor(volume_mounts=mounts), name="train", detach=True)
    gate.touch()
    for _ in range(2):
        (job,) = run.Experiment.from_title("train").jobs
        job.tail_logs = True
        assert job.wait().state.name == "SUCCEEDED"
    out = capsys.readouterr().out
    assert re.findall(r"^train/0 (.*)", out, re.MULTILINE) == ["begun", "begun", "done"] * 2
    kept = Path(job.executor.job_dir, "log-allranks_0.out").read_text().splitlines()
    assert [line.partition("] ")[2] for line in kept] == ["begun", "begun", "done"]


def test_the_logs_of_a_detached_job_that_has_ended_are_kept_when_they_are_asked_for(kube, capsys):
    """All ranks' lines, shown as of a job that was followed; they stay when the pods are gone."""
    run.run(run.Script(inline="echo $HOSTNAME"), executor=executor(num_nodes=2), name="train", detach=True)
    poll_until(lambda: states(run.Experiment.from_title("train")), {"train": "SUCCEEDED"}.__eq__,
               what="the job's end", timeout=60, interval=0.1)  # fmt: skip
    experiment = run.Experiment.from_title("train")
    log = Path(experiment.jobs[0].executor.job_dir, "log-allranks_0.out")
    assert not log.exists()
    shown = []
    for _ in range(2):
        capsys.readouterr()
        run.Experiment.from_title("train").logs("train")
        shown.append(sorted(line for line in capsys.readouterr().out.splitlines() if line.startswith("[pod/")))
        for pod in kube.do(lambda store: store.list(POD, "default")):
            kube.do(lambda store, pod=pod: store.delete(POD, "default", pod["metadata"]["name"], grace=0))
    assert shown == [sorted(log.read_text().splitlines())] * 2
    assert [line.rpartition("-")[2] for line in shown[0]] == ["0", "1"]


def test_streaming_writes_the_same_lines_as_following(kube):
    run.run(run.Script(inline="echo a; echo b"), executor=executor(), name="train")
    (job,) = run.Experiment.from_title("train").jobs
    log = Path(job.executor.job_dir, "log-allranks_0.out")
    followed = log.read_text()
    log.unlink()
    name = job.handle.rpartition("___")[2]
    assert list(job.executor.fetch_logs(name, stream=True)) == ["a", "b"]
    assert log.read_text() == followed
    assert list(job.executor.fetch_logs(name, stream=True)) == ["a", "b"]
    assert log.read_text() == followed


def test_no_job_is_created_after_one_that_failed_on_the_cluster(kube, capsys):
    with run.Experiment("dag", executor=executor()) as exp:
        exp.add(run.Script(inline="exit 3"), name="first")
        exp.add(run.Script(inline="true"), name="second", dependencies=["first"])
        exp.run()
    assert states(run.Experiment.from_title("dag")) == {"first": "FAILED", "second": "CANCELLED"}
    out = capsys.readouterr().out
    assert re.search(r"first: FAILED \(.*exit code 3", out)
    assert "second: CANCELLED (not started: first FAILED)" in out
    assert len(kube.do(lambda store: store.list(TRAINJOB, "default"))) == 1


def test_exit_codes_are_known_without_the_right_to_watch_pods(kube, capsys):
    """Only ``watch`` is missing; the pods are listed instead."""
    kube.rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "delete"]},
        {"apiGroups": [""], "resources": ["pods/log", "events"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
        {"apiGroups": ["trainer.kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
    ]
    run.run(run.Script(inline="exit 3"), executor=executor(), name="train")
    assert re.search(r"train: FAILED \(.*exit code 3", capsys.readouterr().out)
    assert not any(request.method == "WATCH" and POD.plural in request.path for request in kube.requests)
