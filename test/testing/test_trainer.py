"""TrainJobs as Trainer, JobSet and the Job controller carry them out."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import Working, working

from nemo_run._kube.resources import CLUSTER_TRAINING_RUNTIME, POD, TRAINJOB
from nemo_run.testing import Down, _jobset, _seeds, _strategic
from nemo_run.testing._errors import ApiError
from nemo_run.testing._kinds import JOB, JOBSET

Json = dict[str, Any]

COMPLETE = {
    "type": "Complete",
    "status": "True",
    "reason": "AllJobsCompleted",
    "message": "jobset completed successfully",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Working]:
    with working(tmp_path) as node:
        yield node


def counts(**own: int) -> list[Json]:
    return [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **own}]


def test_a_trainjob_completes(node):
    node.train("job", "echo hello")
    assert node.condition("job", "Complete", "Failed") == COMPLETE
    assert node.get("job", TRAINJOB)["status"]["jobsStatus"] == counts(succeeded=1)
    (pod,) = node.list()
    assert node.log(pod["metadata"]["name"]) == b"hello\n"


def test_pods_are_named_and_labelled_as_jobset_does(node):
    job = node.train("job", "true", nodes=2)
    node.condition("job", "Complete")
    jobset, child = node.get("job", JOBSET), node.get("job-node-0", JOB)
    pods = sorted(node.list(), key=lambda pod: pod["metadata"]["name"])
    assert [re.sub("-[a-z0-9]{5}$", "", pod["metadata"]["name"]) for pod in pods] == ["job-node-0-0", "job-node-0-1"]
    assert [(pod["spec"]["hostname"], pod["spec"]["subdomain"]) for pod in pods] == [
        ("job-node-0-0", "job"),
        ("job-node-0-1", "job"),
    ]
    shared = {
        "jobset.sigs.k8s.io/jobset-name": "job",
        "jobset.sigs.k8s.io/jobset-uid": jobset["metadata"]["uid"],
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "1",
        "jobset.sigs.k8s.io/global-replicas": "1",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/job-key": child["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"],
        "jobset.sigs.k8s.io/job-global-index": "0",
        "jobset.sigs.k8s.io/group-name": "default",
        "jobset.sigs.k8s.io/group-replicas": "1",
        "jobset.sigs.k8s.io/job-group-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": "0",
    }
    assert re.fullmatch("[0-9a-f]{40}", shared["jobset.sigs.k8s.io/job-key"])
    own = {
        "batch.kubernetes.io/job-name": "job-node-0",
        "job-name": "job-node-0",
        "batch.kubernetes.io/controller-uid": child["metadata"]["uid"],
        "controller-uid": child["metadata"]["uid"],
    }
    index = "batch.kubernetes.io/job-completion-index"
    assert [pod["metadata"]["labels"] for pod in pods] == [{**shared, **own, index: str(rank)} for rank in (0, 1)]
    assert [pod["metadata"]["annotations"] for pod in pods] == [{**shared, index: str(rank)} for rank in (0, 1)]
    owners = [(obj["metadata"]["ownerReferences"][0]["uid"]) for obj in (jobset, child, pods[0])]
    assert owners == [job["metadata"]["uid"], jobset["metadata"]["uid"], child["metadata"]["uid"]]
    step = "trainer.kubeflow.org/trainjob-ancestor-step"
    assert (child["metadata"]["labels"][step], step in pods[0]["metadata"]["labels"]) == ("trainer", False)


RENDEZVOUS = r"""
import os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("0.0.0.0", place[1])) as server:
        others = [server.accept()[0] for _ in range(1, world)]
        seen = sorted(int(other.recv(16)) for other in others)
        for other in others:
            other.sendall(b"go")
    print("met", seen, flush=True)
else:
    while True:
        try:
            connection = socket.create_connection(place, 5)
            break
        except OSError:
            time.sleep(0.05)
    connection.sendall(str(rank).encode())
    assert connection.recv(2) == b"go"
    print("rank", rank, "of", world, flush=True)
"""


@pytest.mark.parametrize("trainer", ["2.0", "2.1", "2.2", "2.3"])
def test_the_processes_of_two_nodes_meet(tmp_path, trainer):
    """Through the names and ports that Trainer gives them, with torchrun or what stands in for it."""
    with working(tmp_path, trainer=trainer) as node:
        (node.claim / "meet.py").write_text(RENDEZVOUS)
        runtime = node.do(lambda store: store.get(CLUSTER_TRAINING_RUNTIME, "", "torch-distributed"))
        pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        pod["volumes"] = [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}]
        pod["containers"][0]["volumeMounts"] = [{"name": "work", "mountPath": "/work"}]
        node.do(lambda store: store.update(CLUSTER_TRAINING_RUNTIME, runtime))
        node.train("job", "torchrun --tee 3 /work/meet.py", nodes=2, processes=2)
        assert node.condition("job", "Complete", "Failed") == COMPLETE
        pods = sorted(node.list(), key=lambda each: each["metadata"]["name"])
        logs = [sorted(node.log(each["metadata"]["name"]).decode().splitlines()) for each in pods]
    assert logs == [
        ["[default0]:met [1, 2, 3]", "[default1]:rank 1 of 4"],
        ["[default0]:rank 2 of 4", "[default1]:rank 3 of 4"],
    ]


def test_a_job_that_keeps_failing_fails_with_its_logs_gone(node):
    """Six restarts in place are what a Job has; then the pod is deleted."""
    node.train("job", "echo trying; exit 3")
    assert node.condition("job", "Complete", "Failed") == {
        "type": "Failed",
        "status": "True",
        "reason": "FailedJobs",
        "message": "jobset failed due to one or more job failures (first failed job: job-node-0)",
    }
    assert node.get("job", TRAINJOB)["status"]["jobsStatus"] == counts(failed=1)
    node.until(lambda: node.list() == [])
    condition = node.get("job-node-0", JOB)["status"]["conditions"][0]
    assert (condition["type"], condition["reason"]) == ("Failed", "BackoffLimitExceeded")
    assert "BackoffLimitExceeded" in dict(node.events("job-node-0", kind="Job"))


def test_a_job_that_fails_once_still_completes(node):
    script = "[ -e /dev/shm/n ] && exit 0; echo; exit 1"
    patch = _patch({"volumes": [{"name": "m", "emptyDir": {}}], "containers": [_mounting({"name": "m"}, "/dev/shm")]})
    node.train("job", script.replace("echo", "touch /dev/shm/n"), runtimePatches=[patch])
    assert node.condition("job", "Complete", "Failed") == COMPLETE
    (pod,) = node.list()
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


def _mounting(volume: Json, path: str) -> Json:
    return {"name": "node", "volumeMounts": [{"name": volume["name"], "mountPath": path}]}


def _patch(pod: Json, manager: str = "nemo-run.test/one") -> Json:
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}


@pytest.mark.parametrize(
    ("pod", "problem"),
    [
        (
            {"containers": [{"name": "sidecar"}]},
            "spec.template.spec.containers[0].image: Required value",
        ),
        (
            {"containers": [_mounting({"name": "nowhere"}, "/x")]},
            'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "nowhere"',
        ),
    ],
    ids=["container without image", "mount of an unknown volume"],
)
def test_a_pod_template_that_cannot_be_shows_only_as_an_event_of_the_jobset(node, pod, problem):
    node.train("job", "true", runtimePatches=[_patch(pod)])
    ((reason, message),) = node.until(lambda: node.events("job", kind="JobSet"))
    assert reason == "JobCreationFailed"
    assert message == f'job "job-node-0" creation failed with error: Job.batch "job-node-0" is invalid: {problem}'
    assert node.get("job", TRAINJOB).get("status", {}) == {}
    assert node.list() == []


def test_a_name_that_leaves_no_room_for_pods_shows_as_an_event(node):
    name = "j" * 49
    node.train(name, "true")
    ((reason, message),) = node.until(lambda: node.events(name, kind="TrainJob"))
    assert reason == "TrainJobResourcesCreationFailed"
    assert "pod names generated from it exceed 63" in message


def test_a_pod_that_waits_makes_its_job_active_but_not_ready(node):
    patch = _patch(
        {
            "volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": "none"}}],
            "containers": [_mounting({"name": "m"}, "/m")],
        }
    )
    node.train("job", "true", runtimePatches=[patch])
    status = node.until(lambda: node.get("job", TRAINJOB).get("status", {}).get("jobsStatus"))
    assert status == counts(active=1)


def test_a_running_job_is_ready(node):
    node.train("job", "sleep 600", nodes=2)
    node.until(lambda: node.get("job", TRAINJOB).get("status", {}).get("jobsStatus") == counts(active=1, ready=1))


def is_up(node: Working, pod: str) -> None:
    """Wait until the pod's script has said so: before it handles TERM, it would outlive its grace period."""
    node.phase(pod, "Running")
    node.until(lambda: b"up" in node.log(pod))


def test_a_deleted_trainjob_takes_all_with_it(node):
    node.train("job", "trap 'exit 0' TERM; echo up; sleep 600 & wait", nodes=2)
    for pod in node.until(lambda: node.list(), lambda pods: len(pods) == 2):
        is_up(node, pod["metadata"]["name"])
    node.delete("job", TRAINJOB)
    node.until(lambda: not any(node.list(kind) for kind in (TRAINJOB, JOBSET, JOB, POD)))


def test_a_deadline_ends_a_trainjob(node):
    """Its jobsStatus stays as it last was: only the condition tells."""
    node.train("job", "trap 'exit 0' TERM; sleep 600 & wait", activeDeadlineSeconds=3)
    assert node.condition("job", "Failed") == {
        "type": "Failed",
        "status": "True",
        "reason": "DeadlineExceeded",
        "message": "TrainJob exceeded its active deadline",
    }
    assert node.get("job", TRAINJOB)["status"]["jobsStatus"][0]["active"] == 1
    node.until(lambda: not any(node.list(kind) for kind in (JOBSET, JOB, POD)))


def test_a_suspended_trainjob_waits_and_resumes(node):
    node.train("job", "echo resumed", suspend=True)
    assert node.condition("job", "Suspended")["message"] == "TrainJob is suspended"
    status = node.until(lambda: node.get("job", TRAINJOB)["status"].get("jobsStatus"))
    assert (status, node.list()) == (counts(suspended=1), [])
    node.do(lambda store: store.patch(TRAINJOB, "default", "job", {"spec": {"suspend": False}}))
    assert node.condition("job", "Complete", "Failed") == COMPLETE
    suspended = node.get("job", TRAINJOB)["status"]["conditions"][0]
    assert (suspended["type"], suspended["status"], suspended["reason"]) == ("Suspended", "False", "Resumed")


def test_suspending_takes_the_pods_away(node):
    node.train("job", "trap 'exit 0' TERM; sleep 600 & wait")
    node.until(lambda: node.get("job", TRAINJOB).get("status", {}).get("jobsStatus") == counts(active=1, ready=1))
    node.do(lambda store: store.patch(TRAINJOB, "default", "job", {"spec": {"suspend": True}}))
    node.until(lambda: node.list() == [])
    assert node.get("job", TRAINJOB)["status"]["jobsStatus"] == counts(suspended=1)


def test_a_deleted_pod_is_made_again(node):
    node.train("job", "trap 'exit 143' TERM; echo up; sleep 600 & wait")
    first = node.until(lambda: node.list())[0]["metadata"]["name"]
    is_up(node, first)
    node.delete(first)
    node.until(lambda: [pod["metadata"]["name"] for pod in node.list()] not in ([first], []))


PATCHED = {
    "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "nodeSelector": {"pool": "a"},
    "containers": [{"name": "node", "volumeMounts": [{"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}]}],
}
TARGET = [{"name": "node"}]


@pytest.mark.parametrize(
    ("version", "patches"),
    [
        ("2.0", {"podSpecOverrides": [{"targetJobs": TARGET, **PATCHED}]}),
        ("2.1", {"podTemplateOverrides": [{"targetJobs": TARGET, "spec": PATCHED}]}),
        ("2.2", {"runtimePatches": [_patch(PATCHED)]}),
        ("2.3", {"runtimePatches": [_patch(PATCHED)]}),
    ],
)
def test_every_dialect_reaches_the_pods(version, patches):
    (pod,) = pods(version, trainer={"image": "i", "command": ["c"], "numNodes": 1, "numProcPerNode": 8}, **patches)
    assert pod["spec"] == {
        **{key: value for key, value in PATCHED.items() if key != "containers"},
        "containers": [
            {
                **PATCHED["containers"][0],
                "image": "i",
                "command": ["c"],
                "env": [*torch_env("1", "8"), JOB_INDEX],
            }
        ],
        "restartPolicy": "OnFailure",
        "subdomain": "job",
        "hostname": "job-node-0-0",
    }


def pods(version: str = "2.3", *, runtime: Json | None = None, **spec: Any) -> list[Json]:
    """Give the pods of a TrainJob."""
    trainjob = {"metadata": {"name": "job", "namespace": "default", "uid": "u"}, "spec": spec}
    jobset = _jobset.jobset(trainjob, runtime or _seeds.torch_runtime(version), version=version)
    jobset["metadata"] |= {"uid": "v", "namespace": "default"}
    return [_jobset.pod(job, index) for job in _jobset.jobs(jobset) for index in range(job["spec"]["completions"])]


RANK = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
JOB_INDEX = {"name": "JOB_COMPLETION_INDEX", "valueFrom": RANK}


def torch_env(nodes: str, processes: str) -> list[Json]:
    return [
        {"name": "PET_NNODES", "value": nodes},
        {"name": "PET_NPROC_PER_NODE", "value": processes},
        {"name": "PET_NODE_RANK", "valueFrom": RANK},
        {"name": "PET_MASTER_ADDR", "value": "job-node-0-0.job"},
        {"name": "PET_MASTER_PORT", "value": "29500"},
    ]


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        ({"numProcPerNode": 4}, "4"),
        ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": "8"}}}, "auto"),
        ({"resourcesPerNode": {"requests": {"cpu": "2500m"}}}, "3"),
        ({}, "1"),
    ],
    ids=["given", "gpus", "cpus", "nothing"],
)
def test_the_number_of_processes(trainer, processes):
    (pod,) = pods(trainer=trainer)
    assert pod["spec"]["containers"][0]["env"] == [*torch_env("1", processes), JOB_INDEX]


def test_a_trainjob_without_a_trainer_gets_no_environment_of_torch():
    (pod,) = pods()
    assert pod["spec"]["containers"][0]["env"] == [JOB_INDEX]


def test_environment_and_resources_merge_over_the_runtimes():
    runtime = _seeds.torch_runtime("2.3")
    template = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    template["containers"][0] |= {
        "env": [{"name": "A", "value": "runtime"}, {"name": "B", "value": "runtime"}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
    }
    trainer = {
        "env": [{"name": "C", "value": "job"}, {"name": "A", "value": "job"}],
        "resourcesPerNode": {"limits": {"cpu": "2"}},
    }
    found = {
        version: pods(version, runtime=runtime, trainer=trainer)[0]["spec"]["containers"][0]
        for version in ("2.2", "2.3")
    }
    own = [{"name": "A", "value": "job"}, {"name": "B", "value": "runtime"}, {"name": "C", "value": "job"}]
    assert found["2.3"]["env"] == [*own, *torch_env("1", "2"), JOB_INDEX]
    assert {version: container["resources"] for version, container in found.items()} == {
        "2.2": {"limits": {"cpu": "2"}},
        "2.3": {"limits": {"cpu": "2", "memory": "1Gi"}},
    }


@pytest.mark.parametrize(
    ("base", "patch", "result"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        (
            {"containers": [{"name": "node", "image": "i"}]},
            {"containers": [{"name": "extra"}, {"name": "node", "command": ["c"]}]},
            {"containers": [{"name": "extra"}, {"name": "node", "image": "i", "command": ["c"]}]},
        ),
        (
            {"volumeMounts": [{"name": "a", "mountPath": "/x", "subPath": "s", "readOnly": True}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/x", "subPath": "", "readOnly": False}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/x", "subPath": "s", "readOnly": True}]},
        ),
        (
            {"env": [{"name": "a", "value": "1"}, {"name": "b", "value": "1"}]},
            {"env": [{"name": "b", "value": "2"}, {"name": "c", "value": "2"}]},
            {"env": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}, {"name": "c", "value": "2"}]},
        ),
    ],
    ids=["maps", "null", "replaced list", "list by name", "mounts cannot be unset", "order"],
)
def test_patches_merge_as_kubernetes_merges_them(base, patch, result):
    assert _strategic.merged(base, patch) == result


def test_a_jobset_can_start_over(node):
    """Where its runtime says so: a failed Job is counted against maxRestarts first."""
    runtime = _seeds.torch_runtime("2.3")
    runtime["metadata"]["name"] = "again"
    spec = runtime["spec"]["template"]["spec"]
    spec["failurePolicy"] = {"maxRestarts": 1}
    job = spec["replicatedJobs"][0]["template"]["spec"]
    job["backoffLimit"] = 0
    job["template"]["spec"]["restartPolicy"] = "Never"
    node.do(lambda store: store.create(CLUSTER_TRAINING_RUNTIME, "", runtime))
    node.train("job", "exit 1", runtimeRef={"name": "again"})
    assert node.condition("job", "Failed", "Complete")["reason"] == "FailedJobs"
    assert node.get("job", JOBSET)["status"]["restarts"] == 1
    label = "jobset.sigs.k8s.io/restart-attempt"
    assert {pod["metadata"]["labels"][label] for pod in node.list()} == {"1"}


def test_success_can_hang_on_some_jobs_only(node):
    runtime = _seeds.torch_runtime("2.3")
    runtime["metadata"]["name"] = "launcher"
    spec = runtime["spec"]["template"]["spec"]
    job = spec["replicatedJobs"][0]
    helper = {"spec": {"containers": [{"name": "helper", "image": "any", "command": ["sleep", "600"]}]}}
    helper["spec"]["terminationGracePeriodSeconds"] = 1
    spec["replicatedJobs"] = [job, {"name": "helper", "template": {"spec": {"template": helper}}}]
    spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ["node"]}
    node.do(lambda store: store.create(CLUSTER_TRAINING_RUNTIME, "", runtime))
    node.train("job", "true", runtimeRef={"name": "launcher"})
    assert node.condition("job", "Complete", "Failed") == COMPLETE
    deadline = time.monotonic() + 60
    while len(node.list()) > 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [pod["metadata"]["labels"]["job-name"] for pod in node.list()] == ["job-node-0"]


def test_while_the_controller_is_away_nothing_happens_and_nothing_is_taken(node):
    with node.cluster.faults.active(Down()):
        with pytest.raises(ApiError, match=r"failed calling webhook .* no endpoints available") as caught:
            node.train("late", "true")
        assert caught.value.status == 500
    node.train("job", "echo hello")
    node.condition("job", "Complete")


def test_a_job_goes_on_when_its_controller_is_back(node):
    node.train("job", "trap 'exit 0' TERM; sleep 600 & wait")
    node.until(lambda: [pod for pod in node.list() if pod["status"].get("phase") == "Running"])
    with node.cluster.faults.active(Down()):
        node.delete("job", JOBSET)
        node.until(lambda: not node.list())
        assert node.list(JOBSET) == []
    node.until(lambda: [pod for pod in node.list() if pod["status"].get("phase") == "Running"])
    node.delete("job", TRAINJOB)


def test_a_runtime_can_have_ended_jobs_cleaned_up(node):
    def expire(store):
        runtime = store.get(CLUSTER_TRAINING_RUNTIME, "", "torch-distributed")
        runtime["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] = 0
        store.update(CLUSTER_TRAINING_RUNTIME, runtime)

    node.do(expire)
    node.train("job", "true")
    node.condition("job", "Complete")
    node.until(lambda: not node.list() and not node.list(JOBSET))
    assert node.condition("job", "Complete") == COMPLETE
