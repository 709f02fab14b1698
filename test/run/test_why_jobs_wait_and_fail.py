"""What a user reads of jobs that do not start or fail: in what ``run.run`` prints, and in a status later."""

from __future__ import annotations

import re
import time

import pytest

import nemo_run as run
from nemo_run._kube import logs
from nemo_run._kube.resources import EVENT, POD, TRAINJOB
from nemo_run.core.execution import _progress, _trainjob
from nemo_run.run.job import AppState
from nemo_run.testing import LocalKube, Pod, Respond
from nemo_run.testing._errors import ApiError
from nemo_run.testing._podstatus import now
from nemo_run.testing.local import ENVIRONMENT

pytestmark = pytest.mark.timeout(600)  # several jobs that fail and are begun anew, one after the other

QUOTA = 'pods "x" is forbidden: exceeded quota: team, requested: nvidia.com/gpu=8, used: 8, limited: 8'


FOREIGN = {"spec_kwargs": {"managedBy": "kueue.x-k8s.io/multikueue"}}
"""What keeps LocalKube's controller from a job: the test plays it."""


@pytest.fixture(scope="module")
def one():
    with LocalKube(images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        yield kube


@pytest.fixture
def kube(one, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(one.kubeconfig))
    return one


def executor(**changes):
    """Give one that copies nothing, so that a job is created at once."""
    return run.KubeflowExecutor(**{"image": "python:3.12", **changes})


def experiment(title, tasks, **how):
    """Run *tasks*: a script, and fields of the executor, by name."""
    with run.Experiment(title) as exp:
        for name, (script, fields) in tasks.items():
            exp.add(run.Script(inline=script), executor=executor(**fields), name=name, tail_logs=True)
        exp.run(**how)
    return exp


def statuses(capsys, exp):
    """Give each task's line of a status that another process would ask for."""
    capsys.readouterr()
    run.Experiment.from_id(exp._id).status()
    found = re.findall(r"^Task \d+: (\S+)\n- Status: (.*)$", capsys.readouterr().out, re.MULTILINE)
    return dict(found)


def settled(capsys, exp, wanted):
    """Wait until the status of each task is what *wanted* has a pattern of."""
    deadline = time.monotonic() + 90
    while other := {name: text for name, text in statuses(capsys, exp).items() if not re.fullmatch(wanted[name], text)}:
        assert time.monotonic() < deadline, other
        time.sleep(0.3)


def over_quota(kind, obj, old, review):
    """Refuse the pods that the Job controller makes, as a quota does; a Job by itself is within each."""
    meta = obj["metadata"]
    if kind == POD and meta["name"].startswith("quota-") and meta["ownerReferences"][0]["uid"]:
        raise ApiError(403, "Forbidden", QUOTA)
    return obj


WAITING = {
    "image": r"PENDING \((ErrImagePull|ImagePullBackOff) for image 'python:3\.12': .*python:3\.12.*\)",
    "room": r"PENDING \(Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia\.com/gpu\..*\)",
    "mount": r'PENDING \(ContainerCreating \(FailedMount: MountVolume\.SetUp failed for volume "work" : .*\)\)',
    "claim": r'PENDING \(Unschedulable: 0/1 nodes are available: persistentvolumeclaim "absent" not found\..*\)',
    "ready": r"PENDING \(running, but not ready\)",
    "quota": r'(SUBMITTED|PENDING) \(FailedCreate: Error creating: pods "x" is forbidden: exceeded quota: team, .*\)',
    "queue": r"PENDING \(Suspended: suspended, waiting in queue\)",
    "volume": r"SUBMITTED \(JobCreationFailed: .*\)",
    "nobody": r"SUBMITTED",
}


def test_each_reason_why_a_job_waits_is_shown(kube, capsys):
    """Of all jobs of an experiment at once, and of one alone; in what is shown while it is followed, too."""
    tasks = {name: ("sleep 30", {}) for name in WAITING}
    tasks["mount"][1]["volumes"] = [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}]
    tasks["claim"][1]["volumes"] = [{"name": "work", "persistentVolumeClaim": {"claimName": "absent"}}]
    tasks["queue"][1]["spec_kwargs"] = {"suspend": True}
    tasks["nobody"] = ("true", FOREIGN)
    broken = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}, "emptyDir": {}}
    tasks["volume"][1]["volumes"] = [broken]
    faults = [
        Pod("image-*", "ImagePullBackOff"),
        Pod("room-*", "Unschedulable"),
        Pod("mount-*", "FailedMount"),
        Pod("ready-*", "never-ready"),
    ]
    kube.do(lambda store: store.checks.append(over_quota))
    with kube.fault(*faults):
        exp = experiment("waiting", tasks, detach=True)
        settled(capsys, exp, WAITING)
        for job in exp.jobs:
            trainjob = job.handle.rpartition("___")[2]
            report = job.executor.report(trainjob)
            alone = ": ".join(note for note in (report.reason, report.message) if note)
            assert re.fullmatch(WAITING[job.id], f"{job.state} ({alone})" if alone else str(job.state)), job.id
            exp.cancel(job.id)
    kube.do(lambda store: store.checks.remove(over_quota))


def test_what_is_waited_for_is_shown_while_it_is_followed(kube, capsys, monkeypatch):
    monkeypatch.setattr(logs, "EVENTS_EVERY", 0.0)
    volumes = [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}]
    with kube.fault(Pod("mount-*", "FailedMount", times=8)):
        experiment("following", {"mount": ("true", {"volumes": volumes})})
    told = re.findall(r"mount: pod mount-\S+: (ContainerCreating.*)", capsys.readouterr().out)
    assert len(told) == len(set(told))
    assert told[-1].startswith('ContainerCreating (FailedMount: MountVolume.SetUp failed for volume "work"')


def test_a_job_that_no_controller_touches_says_so(kube, monkeypatch, capsys):
    monkeypatch.setattr(_trainjob, "PICKED_UP", 0.0)
    exp = experiment("nobody", {"alone": ("true", FOREIGN)}, detach=True)
    pattern = r"SUBMITTED \(no status since \S+Z: it is left to kueue\.x-k8s\.io/multikueue\)"
    settled(capsys, exp, {"alone": pattern})
    exp.cancel("alone")


FAILING = {
    "code": r"container node: Error, exit code 3\)",
    "absent": r"container node: Error, exit code 127; exit code 127 means that the image does not have a command\)",
    "memory": r"container node: OOMKilled, exit code 137; raise memory_limits, or use less memory\)",
    "evicted": r"pod evicted-\S+: Evicted: The node was low on resource: memory\. .*; request what it uses .*\)",
    "late": r"FAILED \(DeadlineExceeded: TrainJob exceeded its active deadline",
}


def test_each_failure_says_what_failed_how_and_what_helps(kube, capsys):
    """In what is shown at its end, and later: the pods are gone by then."""
    tasks = {name: ("trap 'exit 0' TERM; sleep 60 & wait", {}) for name in FAILING}
    tasks["code"] = ("exit 3", {})
    tasks["absent"] = ("no-such-program", {})
    tasks["late"][1]["spec_kwargs"] = {"activeDeadlineSeconds": 1}
    with kube.fault(Pod("memory-*", "OOMKilled"), Pod("evicted-*", "Evicted")):
        exp = experiment("failing", tasks)
    out = capsys.readouterr().out
    later = statuses(capsys, exp)
    for name, pattern in FAILING.items():
        (line,) = re.findall(rf"{name}: (FAILED \(.*)", out)
        assert re.search(pattern, line), line
        assert later[name] == line


FAILS_ON_SECOND = """
for n in $(seq 15); do echo rank $PET_NODE_RANK at $n; done
test $PET_NODE_RANK = 1 && { echo the reason on rank $PET_NODE_RANK; exit 4; }
trap 'exit 0' TERM
sleep 60 & wait
"""


def test_the_last_lines_of_the_pod_that_failed_are_shown_if_no_line_of_it_was(kube, capsys):
    """The first node's lines are shown; what the second one fails of would be in the file only."""
    exp = experiment("last", {"train": (FAILS_ON_SECOND, {"num_nodes": 2})})
    out = capsys.readouterr().out
    before, _, after = out.partition("the last lines of pod train-")
    assert "train/1 " not in before
    shown = re.findall(r"^train/1 (.*)$", after, re.MULTILINE)
    assert len(shown) == 10
    assert shown[-1] == "the reason on rank 1"
    assert f"all lines of all pods are in {exp.jobs[0].executor.job_dir}/log-allranks_0.out" in after


def test_lines_that_were_shown_are_not_shown_again(kube, capsys):
    experiment("once", {"train": ("echo the reason; exit 4", {})})
    out = capsys.readouterr().out
    assert "the last lines" not in out
    assert "train/0 the reason" in out
    assert "all lines of all pods are in " in out


def write_status(kube, name, **status):
    kube.do(lambda store: store.patch_status(TRAINJOB, "default", name, status))


@pytest.fixture
def failed(kube, capsys):
    """Give an experiment whose only job has failed, and that job's name on the cluster."""
    exp = experiment("failed", {"train": ("exit 3", FOREIGN)}, detach=True)
    name = exp.jobs[0].handle.rpartition("___")[2]
    failure = {
        "type": "Failed",
        "status": "True",
        "reason": "FailedJobs",
        "message": "first",
        "lastTransitionTime": now(),
    }
    write_status(kube, name, conditions=[failure])
    assert statuses(capsys, exp) == {"train": "FAILED (FailedJobs: first)"}
    return exp, name


def begin_again(kube, name):
    """Do what Trainer up to 2.3 does where the JobSet of a failed TrainJob is cleaned up."""
    counts = {"name": "node", "active": 1, "ready": 1, "succeeded": 0, "failed": 0, "suspended": 0}
    write_status(kube, name, conditions=[], jobsStatus=[counts])


def test_the_first_end_of_a_job_stays_though_trainer_runs_it_again(kube, failed, capsys):
    exp, name = failed
    begin_again(kube, name)
    assert statuses(capsys, exp) == {"train": "FAILED (FailedJobs: first)"}


def test_a_failed_job_that_trainer_runs_again_is_ended_by_a_cancel(kube, failed, caplog, capsys):
    exp, name = failed
    begin_again(kube, name)
    exp.cancel("train")
    assert f"{name} was FAILED, and runs again: it is ended now" in caplog.messages
    assert kube.do(lambda store: [job["metadata"]["name"] for job in store.list(TRAINJOB, "default")]).count(name) == 0
    assert statuses(capsys, exp) == {"train": "FAILED (FailedJobs: first)"}


def test_a_failed_job_that_stays_failed_is_left_there_by_a_cancel(kube, failed):
    exp, name = failed
    exp.cancel("train")
    assert kube.do(lambda store: store.get(TRAINJOB, "default", name))["status"]["conditions"]


def test_a_cancel_of_a_failed_job_does_not_need_the_cluster(kube, failed):
    exp, _ = failed
    with kube.fault(Respond(403, on="GET */trainjobs/*")):
        exp.cancel("train")


def test_a_job_that_was_there_and_is_not_any_more_is_cancelled(kube, capsys):
    exp = experiment("gone", {"train": ("sleep 60", {})}, detach=True)
    kube.do(lambda store: store.delete(TRAINJOB, "default", exp.jobs[0].handle.rpartition("___")[2]))
    settled(capsys, exp, {"train": r"CANCELLED \(deleted outside nemo_run\)"})
    assert exp.jobs[0].state != AppState.FAILED


@pytest.mark.parametrize("kind", [EVENT, POD], ids=["events", "pods"])
def test_without_the_right_to_look_it_works_and_says_once_what_is_not_shown(kube, kind, caplog, capsys, monkeypatch):
    monkeypatch.setattr(_progress, "_told", set())
    with kube.fault(Respond(403, on=f"GET */{kind.plural}"), Pod("room-*", "Unschedulable")):
        exp = experiment("blind", {"room": ("true", {}), "two": ("true", {})}, detach=True)
        for _ in range(3):
            assert statuses(capsys, exp).keys() == {"room", "two"}
        said = [text for text in caplog.messages if text.startswith(f"cannot read the {kind.plural} of namespace")]
        assert len(said) == 1
        exp.cancel("room")
