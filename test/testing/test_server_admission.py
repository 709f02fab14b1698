"""TrainJobs: each release's schema, and what Trainer's webhook says."""

from __future__ import annotations

from typing import Any

import pytest
from serving import trainjob

from nemo_run._kube.resources import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME, TRAINJOB
from nemo_run.testing._admission import WEBHOOK
from nemo_run.testing._cluster import Cluster
from nemo_run.testing._errors import ApiError
from nemo_run.testing._seeds import torch_runtime
from nemo_run.testing._store import Review

Json = dict[str, Any]

DENIED = f'admission webhook "{WEBHOOK}" denied the request: '


def create(cluster: Cluster, name: str = "j", *, strict: bool = True, **spec: Any) -> Json:
    return cluster.store.create(TRAINJOB, "default", trainjob(name, **spec), review=Review(strict=strict))


def refusal(cluster: Cluster, name: str = "j", **spec: Any) -> ApiError:
    with pytest.raises(ApiError) as refused:
        create(cluster, name, **spec)
    return refused.value


def patch(pod: Json, *, manager: str = "example.com/m", job: str = "node") -> Json:
    spec = {"replicatedJobs": [{"name": job, "template": {"spec": {"template": {"spec": pod}}}}]}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": spec}}}


MOUNT = {"containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/a"}]}]}


def test_defaults_are_set() -> None:
    made = create(Cluster(), trainer={"numNodes": 1})
    assert made["spec"] == {
        "managedBy": "trainer.kubeflow.org/trainjob-controller",
        "runtimeRef": {**made["spec"]["runtimeRef"], "apiGroup": TRAINJOB.group, "kind": "ClusterTrainingRuntime"},
        "suspend": False,
        "trainer": {"numNodes": 1},
    }


FIELDS = {
    "2.0": {"podSpecOverrides": [{"targetJobs": [{"name": "node"}]}]},
    "2.1": {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}]}]},
    "2.2": {"runtimePatches": [patch(MOUNT)]},
    "2.3": {"runtimePatches": [patch(MOUNT)]},
}


@pytest.mark.parametrize("release", FIELDS)
def test_each_release_knows_its_own_field_and_no_other(release: str) -> None:
    cluster = Cluster(trainer=release)
    create(cluster, **FIELDS[release])
    for field in {key: value for each in FIELDS.values() for key, value in each.items() if key not in FIELDS[release]}:
        error = refusal(cluster, "other", **{field: []})
        assert error.status == 400
        assert f'strict decoding error: unknown field "spec.{field}"' in error.message


def test_without_strict_unknown_fields_vanish() -> None:
    review = Review()
    body = trainjob("j", podTemplateOverrides=[{"targetJobs": [{"name": "node"}]}])
    made = Cluster().store.create(TRAINJOB, "default", body, review=review)
    assert "podTemplateOverrides" not in made["spec"]
    assert review.warnings == ['unknown field "spec.podTemplateOverrides"']


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("70b", "metadata.name must match RFC 1035 DNS label format"),
        ("a" * 64, "metadata.name must be no more than 63 characters"),
        ("a.b", "metadata.name must match RFC 1035 DNS label format"),
    ],
)
def test_names(name: str, message: str) -> None:
    error = refusal(Cluster(), name)
    assert (error.status, error.reason) == (422, "Invalid")
    assert message in error.message


def test_in_2_0_the_webhook_checks_names() -> None:
    error = refusal(Cluster(trainer="2.0"), "70b")
    assert error.status == 403
    assert error.message.startswith(f'{DENIED}metadata.name: Invalid value: "70b": a DNS-1035 label must consist of')


@pytest.mark.parametrize("release", ["2.1", "2.3"])
def test_auto_processes_are_known_until_2_2(release: str) -> None:
    cluster = Cluster(trainer=release)
    if release == "2.1":
        create(cluster, trainer={"numProcPerNode": "auto"})
    else:
        assert refusal(cluster, trainer={"numProcPerNode": "auto"}).status == 422


def test_env_twice_is_a_duplicate() -> None:
    error = refusal(Cluster(), trainer={"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})
    assert error.message == (
        'TrainJob.trainer.kubeflow.org "j" is invalid: [spec.trainer.env[1]: Duplicate value: {"name":"A"}, '
        '<nil>: Invalid value: "null": some validation rules were not checked because the object was invalid; '
        "correct the existing errors to complete validation]"
    )


def test_one_volume_twice_in_one_patch_is_a_duplicate_but_not_in_two() -> None:
    mounts = [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]
    pods = [{"containers": [{"name": "node", "volumeMounts": [mount]}]} for mount in mounts]
    cluster = Cluster()
    together = patch({"containers": [{"name": "node", "volumeMounts": mounts}]})
    assert 'Duplicate value: {"name":"v"}' in refusal(cluster, runtimePatches=[together]).message
    create(cluster, runtimePatches=[patch(pods[0]), patch(pods[1], manager="example.com/n")])


def test_a_missing_runtime_is_denied() -> None:
    error = refusal(Cluster(), runtimeRef={"name": "nope"})
    assert (error.status, error.reason) == (403, "Forbidden")
    assert error.message == (
        f"{DENIED}spec.runtimeRef: Invalid value: "
        '{"name":"nope","apiGroup":"trainer.kubeflow.org","kind":"ClusterTrainingRuntime"}: '
        'ClusterTrainingRuntime.trainer.kubeflow.org "nope" not found: '
        "specified clusterTrainingRuntime must be created before the TrainJob is created"
    )


def test_an_unknown_kind_of_runtime_is_denied() -> None:
    assert (
        "unsupported runtime: Job.batch"
        in refusal(Cluster(), runtimeRef={"name": "x", "kind": "Job", "apiGroup": "batch"}).message
    )


def test_a_runtime_of_the_namespace_is_found() -> None:
    cluster = Cluster()
    runtime = {**torch_runtime("2.3"), "kind": "TrainingRuntime"}
    runtime["metadata"] = {"name": "mine", "labels": {"trainer.kubeflow.org/support": "deprecated"}}
    cluster.store.create(TRAINING_RUNTIME, "default", runtime)
    review = Review()
    job = trainjob("j", runtimeRef={"name": "mine", "kind": "TrainingRuntime"})
    cluster.store.create(TRAINJOB, "default", job, review=review)
    assert review.warnings == ['Referenced TrainingRuntime "mine" is deprecated']


PET = [{"name": "PET_NNODES", "value": "2"}, {"name": "PET_MASTER_PORT", "value": "1"}, {"name": "A", "value": "1"}]


def test_reserved_env_is_denied_for_torch() -> None:
    error = refusal(Cluster(), trainer={"env": PET})
    assert error.status == 403
    assert error.message.startswith(f"{DENIED}spec.trainer.env: Invalid value: ")
    assert error.message.endswith("must not have reserved envs, invalid envs configured: [PET_MASTER_PORT PET_NNODES]")


def test_reserved_env_is_allowed_elsewhere() -> None:
    """For torchtune, for runtimes other than torch, and up to 2.1 where numProcPerNode is not given."""
    cluster = Cluster()
    create(cluster, "tune", trainer={"env": PET, "command": ["tune", "run"]})
    plain = torch_runtime("2.3")
    plain["metadata"] = {"name": "plain"}
    del plain["spec"]["mlPolicy"]["torch"]
    cluster.store.create(CLUSTER_TRAINING_RUNTIME, "", plain)
    create(cluster, "plain", runtimeRef={"name": "plain"}, trainer={"env": PET})
    create(Cluster(trainer="2.1"), trainer={"env": PET})
    assert refusal(Cluster(trainer="2.1"), trainer={"env": PET, "numProcPerNode": 1}).status == 403


@pytest.mark.parametrize(
    ("manager", "message"),
    [
        ("nemo-run", 'Invalid value: "nemo-run": must be a domain-prefixed path (such as "acme.io/foo")'),
        ("/x", 'Invalid value: "/x": must be a domain-prefixed path (such as "acme.io/foo")'),
        ("Acme_/x", 'Invalid value: "Acme_": a lowercase RFC 1123 subdomain'),
    ],
)
def test_a_manager_has_a_domain(manager: str, message: str) -> None:
    error = refusal(Cluster(), runtimePatches=[patch(MOUNT, manager=manager)])
    assert error.status == 403
    assert error.message.startswith(f"{DENIED}spec.runtimePatches.manager: {message}")


def test_env_of_the_node_container_goes_elsewhere() -> None:
    pod = {"containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}]}
    error = refusal(Cluster(), runtimePatches=[patch(pod)])
    assert error.message.endswith("must not have envs for the dataset-initializer, model-initializer, node containers")


def test_unknown_job_names_are_seen_up_to_2_2_only() -> None:
    wrong = [patch(MOUNT, job="trainer")]
    assert "must not have targetJob that doesn't exist" in refusal(Cluster(trainer="2.2"), runtimePatches=wrong).message
    create(Cluster(trainer="2.3"), runtimePatches=wrong)


def test_patches_are_stamped_and_change_only_while_suspended() -> None:
    cluster = Cluster()
    made = create(cluster, runtimePatches=[patch(MOUNT)])
    stamp = made["spec"]["runtimePatches"][0]["time"]
    assert stamp == made["metadata"]["creationTimestamp"]
    tolerant = patch({"tolerations": [{"key": "a"}]}, manager="example.com/other")
    change = {"spec": {"runtimePatches": [*made["spec"]["runtimePatches"], tolerant]}}
    with pytest.raises(ApiError, match="RuntimePatches can only be modified when the TrainJob is suspended"):
        cluster.store.patch(TRAINJOB, "default", "j", change)
    cluster.store.patch(TRAINJOB, "default", "j", {"spec": {"suspend": True}})
    after = cluster.store.patch(TRAINJOB, "default", "j", change)
    assert after["spec"]["runtimePatches"][0]["time"] == stamp


@pytest.mark.parametrize("change", [{"trainer": {"numNodes": 3}}, {"runtimeRef": {"name": "other"}}])
def test_trainer_and_runtime_are_immutable(change: Json) -> None:
    cluster = Cluster()
    create(cluster, trainer={"numNodes": 1})
    with pytest.raises(ApiError, match="immutable") as refused:
        cluster.store.patch(TRAINJOB, "default", "j", {"spec": change})
    assert refused.value.status == 422
