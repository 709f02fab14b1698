"""``run.run`` on Kubernetes, end to end: real processes, volumes and logs of a cluster on localhost."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
import textwrap
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from children import PATIENCE, wait_for

import nemo_run as run
from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run.core.execution.kubeflow import KubeflowJobState
from nemo_run.exceptions import ConfigError, JobFailed, Rejected
from nemo_run.run.backends.base import parse_handle
from nemo_run.run.backends.kubeflow import KubeflowBackend
from nemo_run.run.job import AppState
from nemo_run.testing import Respond

HELLO = "echo node $PET_NODE_RANK of $PET_NNODES: $GREETING; echo done"


def executor(**changes):
    fields = {
        "image": "python:3.12",
        "num_nodes": 2,
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        "workdir_volume_mount": {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
        "env_vars": {"GREETING": "hello"},
    }
    return run.KubeflowExecutor(**{**fields, **changes})


def objects(kube, kind):
    return kube.do(lambda store: store.list(kind, "default"))


def job_dir(title):
    return Path(run.Experiment.from_title(title).jobs[0].executor.job_dir)


def state(title):
    (facts,) = run.Experiment.from_title(title).status(return_dict=True).values()
    return facts["status"]


def in_another_process(code, *args):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_a_script_on_two_nodes(kube, capsys, tmp_path):
    """Synced, run, followed to its end; every rank's line is kept once, and the state is known elsewhere."""
    run.run(run.Script(inline=HELLO), executor=executor(), name="train")
    kept = (job_dir("train") / "log-allranks_0.out").read_text().splitlines()
    assert sorted(re.sub(r"\[pod/(.*?)/(\w+)\]", r"\2", line) for line in kept) == [
        "node done",
        "node done",
        "node node 0 of 2: hello",
        "node node 1 of 2: hello",
    ]
    out = capsys.readouterr().out
    assert re.findall(r"^train/.*", out, re.MULTILINE) == ["train/0 node 0 of 2: hello", "train/0 done"]
    assert "train: SUCCEEDED" in out
    assert re.search(r'Experiment\.from_id\("train_\d+"\)', out)
    assert [pod["metadata"]["name"] for pod in objects(kube, POD) if "mover" in pod["metadata"]["name"]] == []

    seen = in_another_process(
        """
        import nemo_run as run
        (facts,) = run.Experiment.from_title("train").status(return_dict=True).values()
        print(str(facts["status"]), facts["handle"], facts["local_dir"])
        """
    )
    (job,) = objects(kube, TRAINJOB)
    exp_id = run.Experiment.catalog("train")[0]
    assert seen.stdout.split() == [
        "SUCCEEDED",
        f"kubeflow://nemo_run/{exp_id}___train___{job['metadata']['name']}",
        str(tmp_path / "nemorun" / "experiments" / "train" / exp_id / "train"),
    ]


def test_the_state_of_an_ended_job_needs_no_cluster(kube):
    run.run(run.Script(inline="true"), executor=executor(num_nodes=1), name="train")
    before = len(kube.requests)
    assert state("train") == AppState.SUCCEEDED
    assert len(kube.requests) == before


def test_a_failed_job_says_pod_and_exit_code_and_returns_normally(kube, capsys):
    run.run(run.Script(inline="echo bad; exit 3"), executor=executor(num_nodes=1), name="train")
    assert state("train") == AppState.FAILED
    (line,) = re.findall(r"train: FAILED .*", capsys.readouterr().out)
    assert "exit code 3" in line
    assert "node" in line


def test_a_failed_job_raises_where_asked_for(kube):
    with pytest.raises(JobFailed, match="exit code 3"):
        run.run(run.Script(inline="exit 3"), executor=executor(num_nodes=1), name="train", raise_on_failure=True)


def test_detached_it_returns_at_once_and_is_found_later(kube, tmp_path, capsys):
    gate = kube.claim("shared") / "gate"
    script = run.Script(inline="until test -e /data/gate; do sleep 0.1; done; echo open")
    mounts = [{"name": "work", "mountPath": "/data"}]
    run.run(script, executor=executor(num_nodes=1, volume_mounts=mounts), name="train", detach=True)
    assert "Detaching from Experiment" in capsys.readouterr().out
    assert state("train") in (AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING)
    wait_for(lambda: state("train") == AppState.RUNNING)
    gate.touch()
    wait_for(lambda: state("train") == AppState.SUCCEEDED)
    capsys.readouterr()
    run.Experiment.from_title("train").logs("train")
    assert any(line.endswith("open") for line in capsys.readouterr().out.splitlines())


def test_it_can_be_cancelled_by_another_process_and_stays_cancelled(kube):
    run.run(run.Script(inline="sleep 600"), executor=executor(num_nodes=1), name="train", detach=True)
    code = 'import nemo_run as run; run.Experiment.from_title("train").cancel("train")'
    assert in_another_process(code).returncode == 0
    assert state("train") == AppState.CANCELLED
    assert objects(kube, TRAINJOB) == []


def test_a_job_deleted_by_someone_else_is_cancelled_and_says_so(kube, capsys):
    run.run(run.Script(inline="sleep 600"), executor=executor(num_nodes=1), name="train", detach=True)
    (job,) = objects(kube, TRAINJOB)
    kube.do(lambda store: store.delete(TRAINJOB, "default", job["metadata"]["name"]))
    wait_for(lambda: objects(kube, TRAINJOB) == [])
    capsys.readouterr()
    run.Experiment.from_title("train").status()
    assert "- Status: CANCELLED (deleted outside nemo_run)" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["the task", "the TrainJob"])
def test_cancelled_through_its_executor_while_it_is_followed_it_says_so(kube, capsys, what):
    """As a signal handler of the launching script does."""
    mine = executor(num_nodes=1, volumes=[], workdir_volume_mount=None, spec_kwargs={"suspend": True})

    def cancel():
        wait_for(lambda: objects(kube, TRAINJOB))
        (job,) = objects(kube, TRAINJOB)
        mine.cancel("train" if what == "the task" else job["metadata"]["name"])

    canceller = threading.Thread(target=cancel)
    canceller.start()
    run.run(run.Script(inline="true"), executor=mine, name="train")
    canceller.join()
    out = capsys.readouterr().out
    assert "train: CANCELLED (by nemo_run)" in out
    assert "outside nemo_run" not in out
    assert state("train") == AppState.CANCELLED


class SaysItRuns(run.KubeflowExecutor):
    def status(self, job_name):
        state = super().status(job_name)
        return KubeflowJobState.RUNNING if state is KubeflowJobState.PENDING else state


@pytest.mark.parametrize("tasks", [1, 2], ids=["alone", "one of two"])
def test_a_status_of_a_subclass_is_heard(kube, tasks):
    mine = SaysItRuns(image="python:3.12", spec_kwargs={"suspend": True})
    with run.Experiment("exp", executor=mine) as exp:
        for number in range(tasks):
            exp.add(run.Script(inline="true"), name=f"t{number}")
        exp.run(detach=True)
    wait_for(lambda: all(job.get("status", {}).get("conditions") for job in objects(kube, TRAINJOB)))
    states = [str(facts["status"]) for facts in run.Experiment.from_title("exp").status(return_dict=True).values()]
    assert states == ["RUNNING"] * tasks
    for job in objects(kube, TRAINJOB):
        kube.do(lambda store, name=job["metadata"]["name"]: store.delete(TRAINJOB, "default", name))
    wait_for(lambda: objects(kube, TRAINJOB) == [])
    states = [str(facts["status"]) for facts in run.Experiment.from_title("exp").status(return_dict=True).values()]
    assert states == ["CANCELLED"] * tasks


def test_a_cluster_that_will_not_say_leaves_what_was_last_seen(kube, tmp_path, monkeypatch, capsys):
    run.run(run.Script(inline="sleep 600"), executor=executor(num_nodes=1), name="train", detach=True)
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(tmp_path / "nothing"))
    capsys.readouterr()
    run.Experiment.from_title("train").status()
    assert re.search(r"- Status: (SUBMITTED|PENDING|RUNNING) \(.*stale\)", capsys.readouterr().out)


def test_a_cluster_that_will_not_say_is_reported_once_with_one_request_a_look(kube, caplog):
    given = executor(num_nodes=1, volumes=[], workdir_volume_mount=None, spec_kwargs={"suspend": True})
    run.run(run.Script(inline="true"), executor=given, name="train", detach=True)
    exp = run.Experiment.from_title("train")
    assert str(exp.status(return_dict=True)["train"]["status"]) == "PENDING"
    before = len(kube.requests)
    with kube.fault(Respond(403, on="GET */trainjobs/*")):
        seen = [str(exp.status(return_dict=True)["train"]["status"]) for _ in range(3)]
    assert seen == ["PENDING"] * 3
    assert len(kube.requests) - before == 3
    assert caplog.text.count("its state is not known now") == 1


def test_cancelling_twice_is_as_good_as_once(kube):
    given = executor(num_nodes=1, volumes=[], workdir_volume_mount=None, spec_kwargs={"suspend": True})
    run.run(run.Script(inline="true"), executor=given, name="train", detach=True)
    for _ in range(2):
        run.Experiment.from_title("train").cancel("train")
    assert str(state("train")) == "CANCELLED"
    assert objects(kube, TRAINJOB) == []


@dataclass(kw_only=True)
class Privileged(run.Plugin):
    def setup(self, task, executor):
        assert isinstance(executor, run.KubeflowExecutor)
        executor.volumes.append({"name": "scratch", "emptyDir": {}})
        executor.volume_mounts.append({"name": "scratch", "mountPath": "/scratch"})
        executor.env_vars.setdefault("FROM_PLUGIN", self.experiment_id)
        task.args.extend(["--more", "a b"])


def test_a_plugin_changes_the_launched_job_and_not_the_callers_executor(kube):
    mine, script = executor(num_nodes=1), run.Script("/bin/echo", entrypoint="env", args=["--first"])
    run.run(script, executor=mine, plugins=[Privileged()], name="train", dryrun=False)
    (job,) = objects(kube, TRAINJOB)
    assert mine == executor(num_nodes=1)
    assert script == run.Script("/bin/echo", entrypoint="env", args=["--first"])
    assert "--first --more a b" in (job_dir("train") / "log-allranks_0.out").read_text()
    assert "/scratch" in json.dumps(job["spec"])


def test_each_run_takes_a_fresh_snapshot_of_the_executor(kube):
    mine = executor(num_nodes=1)
    for attempt in ("first", "second"):
        mine.env_vars.update({"GREETING": attempt})
        run.run(run.Script(inline=HELLO), executor=mine, name="retry")
        assert f": {attempt}" in (job_dir("retry") / "log-allranks_0.out").read_text()
    assert len(objects(kube, TRAINJOB)) == 2


def test_a_dry_run_asks_nobody_and_leaves_nothing(tmp_path, capsys):
    """No cluster, no kubeconfig: the manifest and the launch script, masked."""
    mine = executor(env_vars={"HF_TOKEN": "hf_abcdefgh"})
    run.run(run.Script(inline="train", env={"WANDB_API_KEY": "wandb_12345"}), executor=mine, name="train", dryrun=True)
    out = capsys.readouterr().out
    assert "kind: TrainJob" in out
    assert "subPath: team-a" in out
    assert "# launch.sh\n#!/bin/bash" in out
    assert "hf_abcdefgh" not in out
    assert "wandb_12345" not in out
    assert list((tmp_path / "nemorun").iterdir()) == []


def test_a_dry_run_gives_the_manifest_unmasked(capsys):
    with run.Experiment("train", executor=executor(env_vars={"HF_TOKEN": "hf_abcdefgh"})) as exp:
        exp.add(run.Script(inline="train"), name="train")
        manifests = exp.dryrun(log=False)
    assert {"name": "HF_TOKEN", "value": "hf_abcdefgh"} in manifests["train"]["spec"]["trainer"]["env"]
    assert "kind" not in capsys.readouterr().out


def test_records_hold_what_finds_the_very_same_job_and_are_the_owners_alone(kube, tmp_path):
    run.run(run.Script(inline="true"), executor=executor(num_nodes=1), name="train")
    path = tmp_path / "nemorun" / ".kubeflow_jobs.json"
    ((app_id, record),) = json.loads(path.read_text()).items()
    (job,) = objects(kube, TRAINJOB)
    exp_id = run.Experiment.catalog("train")[0]
    assert app_id == f"{exp_id}___train___{job['metadata']['name']}"
    assert {key: record[key] for key in ("job_name", "task", "namespace", "uid", "server", "state")} == {
        "job_name": job["metadata"]["name"],
        "task": "train",
        "namespace": "default",
        "uid": job["metadata"]["uid"],
        "server": kube.url,
        "state": "SUCCEEDED",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((job_dir("train") / "configs" / "train_executor.yaml").stat().st_mode) == 0o600


def test_what_the_server_refuses_raises_and_leaves_no_job(kube, capsys):
    script, mine = run.Script(inline="true"), executor()
    with kube.fault(Respond(422, on="POST */trainjobs")), pytest.raises(Rejected):
        run.run(script, executor=mine, name="train")
    assert objects(kube, TRAINJOB) == []
    assert objects(kube, POD) == []
    out = capsys.readouterr().out
    assert "Error running job train: create TrainJob" in out
    assert "from_id" not in out, "there is nothing to come back to"


def test_a_wrong_argument_is_told_before_anything_is_asked(kube):
    before = len(kube.requests)
    with pytest.raises(ConfigError, match="workdir_volume_mount"):
        run.run(run.Script(inline="true"), executor=executor(volumes=[]), name="train")
    assert len(kube.requests) == before


def test_several_tasks_run_side_by_side(kube):
    with run.Experiment("pair", executor=executor(num_nodes=1)) as exp:
        for name in ("a", "b"):
            exp.add(run.Script(inline=f"echo I am {name}"), name=name)
        exp.run()
    assert {task: str(facts["status"]) for task, facts in exp.status(return_dict=True).items()} == {
        "a": "SUCCEEDED",
        "b": "SUCCEEDED",
    }
    for name in ("a", "b"):
        assert f"I am {name}" in Path(exp._exp_dir, name, "log-allranks_0.out").read_text()


def test_a_launch_that_was_never_written_down_is_found_whatever_the_title_holds(kube):
    """The process died between the launch and the end of run(); the title holds what parts a job's id."""
    given = executor(num_nodes=1, volumes=[], workdir_volume_mount=None, spec_kwargs={"suspend": True})
    with run.Experiment("a___b", executor=given) as exp:
        exp.add(run.Script(inline="true"), name="t___t")
        exp.run(detach=True)
    tasks = Path(exp._exp_dir, "_TASKS")
    with run.Experiment("other", executor=given) as before:
        before.add(run.Script(inline="true"), name="t___t")
        before._id, before._exp_dir = exp._id, exp._exp_dir
        before._prepare(exist_ok=True)
        before._jobs.clear()
    assert json.loads(tasks.read_text())
    (found,) = run.Experiment.from_id(exp._id).jobs
    assert found.handle == exp.jobs[0].handle
    assert str(state("a___b")) == "PENDING"
    record = KubeflowBackend().find(parse_handle(found.handle)[2])
    assert (record.task, record.executor.experiment_id) == ("t___t", exp._id)
