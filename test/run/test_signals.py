"""
Ctrl-C, SIGTERM and SIGKILL at every step of a submit and of what follows it, in a process of its own.

A fault of LocalKube holds the process at a step. Until the job is there, nothing is left and nothing was
created; once it is there, it goes on, and how to reach it is told, once.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from signal import SIGINT, SIGKILL, SIGTERM

import pytest
from children import PATIENCE, python, wait_for

import nemo_run as run
from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run.core.execution._ownership import MOVER_ROLE, ROLE_LABEL
from nemo_run.testing import Cut, Delay, LocalKube, Pod

PREFACE = """
    import sys, time
    import nemo_run as run

    def job(text="echo up; sleep 600"):
        return run.Script(inline=text)

    executor = run.KubeflowExecutor(
        image="python:3.12",
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run"},
        data_mover_timeout=30,
    )
"""
ONE = (
    PREFACE
    + """
    run.run(job(), executor=executor, name="train")
    print("not reached")
"""
)
THREE = (
    PREFACE
    + """
    with run.Experiment("train", executor=executor) as exp:
        for name in ("a", "b", "c"):
            exp.add(job(), name=name, tail_logs=True)
        exp.run()
    print("not reached")
"""
)
SEQUENCE = (
    PREFACE
    + """
    with run.Experiment("train", executor=executor) as exp:
        exp.add(job("true"), name="a", tail_logs=True)
        exp.add(job(), name="b", tail_logs=True)
        exp.run(sequential=True)
    print("not reached")
"""
)
IN_THE_BLOCK = (
    PREFACE
    + """
    with run.Experiment("train", executor=executor) as exp:
        exp.add(job(), name="train", tail_logs=True)
        exp.run()
        print("in the block")
        time.sleep(600)
    print("not reached")
"""
)
DETACHED = (
    PREFACE
    + """
    run.run(job(), executor=executor, name="train", detach=True)
    exp = run.Experiment.from_title("train")
    while str(exp.status(return_dict=True)["train"]["status"]) != "RUNNING":
        time.sleep(0.1)
    mine = exp.jobs[0].executor
"""
)
LOGS = (
    DETACHED
    + """
    exp.logs("train")
    print("not reached")
"""
)
RESULTS = (
    DETACHED
    + """
    mine.pull_results("train", dest_dir=sys.argv[1])
    print("not reached")
"""
)
CANCEL = (
    DETACHED.replace("job()", """job("trap '' TERM; echo up; while true; do sleep 1; done")""")
    + """
    mine.cancel("train", wait=True)
    print("not reached")
"""
)

MOVER = "*data-mover*"
DRY_RUN = "POST */trainjobs?*dryRun=All*"
CREATE = "POST */trainjobs?fieldValidation=Strict"
NEVER_READY = Pod(MOVER, "never-ready")
STUCK = Cut("exec", 60, times=None, silent=True)


@dataclass(frozen=True)
class Step:
    """Where a process is when the signal comes."""

    program: str
    fault: object = None
    strikes: int = 1
    line: str = ""
    """Or what the line holds that it has written then."""
    request: str = ""
    """Or the request that was answered then."""


SUBMITTING = {
    "dry run": Step(ONE, Cut(DRY_RUN, silent=True)),
    "copy pod, on its way": Step(ONE, Delay(2, "POST */pods", times=1)),
    "copy pod, answer lost": Step(ONE, Cut("POST */pods?*", carried_out=True, silent=True)),
    "copy pod waits": Step(ONE, NEVER_READY),
    "files are copied": Step(ONE, STUCK),
    "copy pod, delete on its way": Step(ONE, Delay(2, "DELETE */pods/*", times=1)),
    "copy pod ends": Step(ONE, Cut("GET */pods/*-data-mover-*", skip=3, silent=True)),
    "job, on its way": Step(ONE, Delay(2, CREATE, times=1)),
    "job, answer lost": Step(ONE, Cut(CREATE, carried_out=True, silent=True)),
    "three copy pods wait": Step(THREE, NEVER_READY, strikes=3),
    "three are copied": Step(THREE, STUCK, strikes=3),
    "three jobs on their way": Step(THREE, Delay(2, CREATE, times=3), strikes=3),
}
FOLLOWING = {
    "pods wait": Step(ONE, Pod("*-node-0-0*", "Unschedulable"), line="Insufficient nvidia.com/gpu"),
    "logs": Step(ONE, line="train/0 up\n"),
    "logs, silent": Step(ONE, Cut("log", silent=True, times=None), line="running, no output yet"),
}


@pytest.fixture(scope="module")
def kube():
    with LocalKube(images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        yield kube


@pytest.fixture(autouse=True)
def _no_jobs(kube, monkeypatch):
    """Let no test see another's jobs."""
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(kube.kubeconfig))
    yield
    for kind in (TRAINJOB, POD):
        for one in objects(kube, kind):
            kube.do(lambda store, one=one, kind=kind: store.delete(kind, "default", one["metadata"]["name"], grace=0))
    wait_for(lambda: objects(kube, POD) == [])


def objects(kube, kind):
    return kube.do(lambda store: store.list(kind, "default"))


def movers(kube):
    return [pod for pod in objects(kube, POD) if pod["metadata"]["labels"].get(ROLE_LABEL) == MOVER_ROLE]


def states():
    facts = run.Experiment.from_title("train").status(return_dict=True)
    return {str(one["status"]) for one in facts.values()}


@pytest.fixture
def held(kube, start_child, tmp_path):
    """Start a program, signal it at a step, and give it with what it wrote."""
    (tmp_path / "tmp").mkdir()

    def hold(step, *numbers, then=None):
        env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        with ExitStack() as stack:
            stack.enter_context(kube.fault(*([step.fault] if step.fault else [])))
            kube._cluster.server.requests.clear()
            active = kube._cluster.faults._active[:1]
            command = python(step.program, str(tmp_path / "results"))
            child = start_child(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            seen = ""
            if step.request:
                wait_for(lambda: any(fnmatch(f"{one.method} {one.path}", step.request) for one in kube.requests), child)
            elif step.line:
                for line in child.stdout:
                    seen += line
                    if step.line in line:
                        break
            else:
                wait_for(lambda: active[0].struck >= step.strikes, child)
            if then:
                stack.enter_context(kube.fault(then))
            child.send_signal(numbers[0])
            for number in numbers[1:]:
                wait_for(lambda: kube._cluster.faults._active[0].struck, child)
                child.send_signal(number)
            out, err = child.communicate(timeout=PATIENCE)
        assert "not reached" not in out
        return child.returncode, seen + out, err

    return hold


def nothing_is_left(kube, tmp_path):
    assert movers(kube) == []
    assert objects(kube, TRAINJOB) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [path for path in (tmp_path / "nemorun").rglob("*") if "spool" in path.name or ".tmp" in path.name] == []


@pytest.mark.parametrize(
    ("step", "number"),
    [*((step, SIGINT) for step in SUBMITTING.values()), (SUBMITTING["copy pod waits"], SIGTERM)],
    ids=[*SUBMITTING, "copy pod waits, SIGTERM"],
)
def test_before_the_job_is_there_nothing_is_left(kube, held, tmp_path, step, number):
    code, out, err = held(step, number)
    if isinstance(step.fault, Delay):
        time.sleep(step.fault.seconds)
    assert (code, err) == (128 + number, "")
    assert out.count("Interrupted: no job was launched.") == 1
    nothing_is_left(kube, tmp_path)
    assert states() == {"CANCELLED"}


@pytest.mark.parametrize(
    ("step", "number"),
    [*((step, SIGINT) for step in FOLLOWING.values()), (FOLLOWING["logs"], SIGTERM)],
    ids=[*FOLLOWING, "logs, SIGTERM"],
)
def test_while_it_is_followed_the_job_goes_on(kube, held, step, number):
    code, out, err = held(step, number)
    assert (code, err) == (128 + number, "")
    assert out.count("Interrupted: train keeps running. To see it, or to end it:") == 1
    assert out.count("from_id(") == 1
    assert len(objects(kube, TRAINJOB)) == 1
    assert states() <= {"PENDING", "RUNNING", "SUBMITTED"}


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_in_the_block_the_job_goes_on_and_the_signal_does_what_it_always_does(kube, held, number):
    """There the program's own code runs; SIGTERM, which it does not handle, ends it without a word."""
    code, out, _ = held(Step(IN_THE_BLOCK, line="in the block\n"), number)
    assert code == -number
    assert out.count("from_id(") == (number == SIGINT)
    assert len(objects(kube, TRAINJOB)) == 1


def test_between_two_tasks_nothing_of_the_next_is_left(kube, held):
    code, out, err = held(Step(SEQUENCE, Cut(DRY_RUN, skip=1, silent=True)), SIGINT)
    assert (code, err) == (130, "")
    assert "a: SUCCEEDED" in out
    assert len(objects(kube, TRAINJOB)) == 1
    facts = run.Experiment.from_title("train").status(return_dict=True)
    assert [str(one["status"]) for one in facts.values()] == ["SUCCEEDED", "CANCELLED"]


def test_the_server_is_away_when_ctrl_c_comes(kube, held):
    """What can be told without it is told at once."""
    code, out, err = held(Step(ONE, line="train/0 up\n"), SIGINT, then=Cut("* *", silent=True, times=None))
    assert (code, err) == (130, "")
    assert out.count("Interrupted: train keeps running.") == 1


@pytest.mark.parametrize(
    "step", [SUBMITTING["copy pod waits"], SUBMITTING["three copy pods wait"]], ids=["one", "three"]
)
def test_a_second_ctrl_c_ends_it_at_once(kube, held, step):
    """The first one's clean-up gets no answer."""
    faults = Cut("DELETE */pods/*", silent=True, times=None)
    code, _, _ = held(step, SIGINT, SIGINT, then=faults)
    assert code in (130, -SIGINT)
    assert objects(kube, TRAINJOB) == []


KILLED = {
    "copy pod, on its way": Delay(2, "POST */pods", times=1),
    "files are copied": STUCK,
}


@pytest.mark.parametrize("fault", KILLED.values(), ids=KILLED)
def test_a_copy_pod_that_a_killed_one_left_goes_with_the_next_submit(kube, held, fault):
    code, _, _ = held(Step(ONE, fault), SIGKILL)
    wait_for(lambda: movers(kube))
    assert code == -SIGKILL
    _, out, _ = held(Step(ONE, Cut("POST */pods", silent=True)), SIGINT)
    assert "removed the leftover copy pod" in out
    wait_for(lambda: movers(kube) == [])


def test_a_job_that_a_killed_one_had_asked_for_is_found(kube, held):
    code, _, _ = held(Step(ONE, Delay(2, CREATE, times=1)), SIGKILL)
    assert code == -SIGKILL
    wait_for(lambda: objects(kube, TRAINJOB))
    assert states() <= {"PENDING", "RUNNING", "SUBMITTED"}


@pytest.mark.parametrize("number", [SIGINT, SIGTERM])
def test_results_that_are_fetched_leave_the_job_and_no_copy_pod(kube, held, tmp_path, number):
    code, _, _ = held(Step(RESULTS, Cut("exec", 60, skip=2, times=None, silent=True)), number)
    assert code == -number
    assert movers(kube) == []
    assert states() == {"RUNNING"}


def test_logs_that_are_read_may_be_left(kube, held):
    code, out, err = held(Step(LOGS, Cut("GET */log*", silent=True)), SIGINT)
    assert code == -SIGINT, (out, err)
    assert states() == {"RUNNING"}


def test_a_job_that_is_cancelled_goes_though_nobody_waits(kube, held):
    code, out, err = held(Step(CANCEL, request="DELETE */trainjobs/*"), SIGINT)
    assert code == -SIGINT, (out, err)
    assert objects(kube, TRAINJOB) == []
    assert states() == {"CANCELLED"}
