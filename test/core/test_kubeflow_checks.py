"""Fields of the Kubeflow executor that are seen to be wrong without asking a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.exceptions import ConfigError, InvalidName

WORK = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        ("num_nodes", 0, "write 1 or more"),
        ("num_nodes", -1, "write 1 or more"),
        ("num_nodes", True, "a whole number"),
        ("num_nodes", None, "a whole number"),
        ("num_nodes", 2.0, "a whole number"),
        ("num_nodes", "2", "without quotes: num_nodes=2"),
        ("nprocs_per_node", 0, "write 1 or more"),
        ("nprocs_per_node", "two", "a whole number"),
        ("gpus_per_node", -1, "write 0 or more"),
        ("gpus_per_node", "eight", "a whole number"),
        ("cpu_requests", ["8"], "an amount"),
        ("cpu_limits", True, "an amount"),
        ("memory_requests", "16 GB", "'16Gi' or '16G'"),
        ("memory_limits", {"memory": "1Gi"}, "an amount"),
        ("namespace", "Research_Team", "write a namespace"),
        ("namespace", "", "write a namespace"),
        ("namespace", None, "write a namespace"),
        ("runtime_ref", None, "ClusterTrainingRuntime"),
        ("runtime_ref", "", "ClusterTrainingRuntime"),
        ("volumes", WORK, "write a list"),
        ("volume_mounts", {"name": "work", "mountPath": "/data"}, "write a list"),
        ("volume_mounts", ["work"], "each entry"),
        ("volumes", ["work"], "each entry"),
        ("tolerations", {"key": "a"}, "write a list"),
        ("tolerations", ["gpu"], "each entry"),
        ("env_list", {"name": "A", "value": "1"}, "write a list"),
        ("image_pull_secrets", "registry", "write a list"),
        ("image_pull_secrets", [{"secret": "registry"}], "each entry is"),
        ("image_pull_secrets", [""], "each entry is"),
        ("labels", ["a"], "write a dict"),
    ],
)
def test_what_can_only_be_wrong_is_refused_by_name_before_any_request(kube, tmp_path, field, value, hint):
    executor = KubeflowExecutor(**{field: value})
    executor.assign("exp_1", str(tmp_path), "train", "train")
    asked = [
        lambda: executor.get_job_body("n", ["true"]),
        lambda: executor.materialize_launch_script(["true"]),
        lambda: executor.launch("train", ["true"]),
    ]
    for ask in asked:
        with pytest.raises(ConfigError, match=hint) as caught:
            ask()
        assert caught.value.argument == field
    assert kube.requests == []


def test_an_extra_resource_is_named_with_its_key():
    executor = KubeflowExecutor(extra_resource_requests={"rdma/hca": [1]})
    with pytest.raises(ConfigError) as caught:
        executor.get_job_body("n", ["true"])
    assert caught.value.argument == "extra_resource_requests['rdma/hca']"


def test_a_wrong_namespace_is_a_wrong_name():
    with pytest.raises(InvalidName):
        KubeflowExecutor(namespace="a.b").get_job_body("n", ["true"])


def test_numbers_are_amounts_too():
    executor = KubeflowExecutor(
        namespace="2nd-team",
        nprocs_per_node=2,
        gpus_per_node=0,
        cpu_requests=8,  # type: ignore[arg-type]
        cpu_limits=0.5,  # type: ignore[arg-type]
        memory_requests="1e3",
        memory_limits="",
        extra_resource_requests={"rdma/hca": 1},  # type: ignore[dict-item]
    )
    assert executor.get_job_body("n", ["true"])["spec"]["trainer"]["resourcesPerNode"] == {
        "requests": {"cpu": "8", "memory": "1e3", "rdma/hca": "1"},
        "limits": {"cpu": "0.5"},
    }


LISTS = ["volumes", "volume_mounts", "tolerations", "image_pull_secrets", "env_list"]
DICTS = ["labels", "annotations", "pod_labels", "pod_annotations", "affinity", "env_vars", "data_mover"]
DICTS += ["extra_resource_requests", "extra_resource_limits", "spec_kwargs", "container_kwargs", "pod_spec_overrides"]


def test_none_is_nothing():
    fields: Any = dict.fromkeys(LISTS + DICTS)
    executor = KubeflowExecutor(**fields)
    assert executor.get_job_body("n", ["true"]) == KubeflowExecutor().get_job_body("n", ["true"])
    assert executor.secret_values() == []
    assert "None" in repr(executor)


def test_a_copy_pod_takes_none_for_nothing(kube, tmp_path):
    fields: Any = dict.fromkeys(set(LISTS + DICTS) - {"volumes"})
    place: Any = {"volumes": [WORK], "workdir_volume_mount": {"name": "work", "mountPath": "/nemo_run"}}
    executor = KubeflowExecutor(**fields, **place)
    executor.assign("exp_1", str(tmp_path), "train", "train")
    executor.materialize_launch_script(["true"])
    executor.package(executor.packager, "train")
    assert (kube.claim("shared") / executor.code_dir.removeprefix("/nemo_run/") / "launch.sh").is_file()


def test_a_pull_secret_is_a_name_or_a_reference():
    body = KubeflowExecutor(image_pull_secrets=["a", {"name": "b"}]).get_job_body("n", ["true"])  # type: ignore
    assert pod_of(body)["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]


def test_bytes_that_are_no_text_need_a_workdir(tmp_path):
    """A manifest is text; a launch script on a volume holds any bytes."""
    with pytest.raises(ConfigError, match=r"bytes that are not UTF-8.*set workdir_volume_mount"):
        KubeflowExecutor().get_job_body("n", ["echo", "\udcff"])
    executor = KubeflowExecutor(volumes=[WORK], workdir_volume_mount={"name": "work", "mountPath": "/nemo_run"})
    executor.assign("exp_1", str(tmp_path), "train", "train")
    executor.materialize_launch_script(["echo", "\udcff"])
    assert b"echo '\xff'" in (tmp_path / "train" / "launch.sh").read_bytes()


def test_more_than_linux_starts_a_process_with_is_refused(tmp_path):
    executor = KubeflowExecutor(volumes=[WORK], workdir_volume_mount={"name": "work", "mountPath": "/nemo_run"})
    executor.assign("exp_1", str(tmp_path), "train", "train")
    with pytest.raises(ConfigError, match="in all, and Linux takes 2097152"):
        executor.materialize_launch_script(["echo", *["x" * 100_000] * 21])
    with pytest.raises(ConfigError, match="env_vars='A': it has 200002 bytes"):
        KubeflowExecutor(env_vars={"A": "x" * 200_000}).get_job_body("n", ["true"])


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_mounts_of_other_containers_are_checked_too(kind):
    mount = {"name": "work", "mountPath": "/data/"}
    sidecar = {"name": "sidecar", "volumeMounts": [mount, {"name": "work", "mountPath": "/data"}]}
    body = KubeflowExecutor(pod_spec_overrides={kind: [sidecar]}).get_job_body("n", ["true"])
    assert pod_of(body)[kind] == [{"name": "sidecar", "volumeMounts": [{"name": "work", "mountPath": "/data"}]}]
    sidecar["volumeMounts"] = [mount, {"name": "other", "mountPath": "/data"}]
    with pytest.raises(ConfigError, match="two different mounts at /data") as caught:
        KubeflowExecutor(pod_spec_overrides={kind: [sidecar]}).get_job_body("n", ["true"])
    assert caught.value.argument == f"pod_spec_overrides[{kind!r}]"


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    (patch,) = body["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
    return pod
