"""NeMo-Run's functions that build and change the dict of a RayCluster."""

import copy

import pytest

from nemo_run.core.execution import kuberay
from nemo_run.exceptions import ConfigError, InvalidName


def head(cluster, **fields):
    given = {
        "ray_image": "i",
        "service_type": "ClusterIP",
        "cpu_requests": "1",
        "memory_requests": "2Gi",
        "cpu_limits": "2",
        "memory_limits": "4Gi",
        "ray_start_params": {},
        "head_ports": [],
        "env_vars": {},
        "volume_mounts": [],
        "volumes": [],
        "spec_kwargs": {},
        "lifecycle_kwargs": {},
        "container_kwargs": {},
    }
    return kuberay.populate_ray_head(cluster, **{**given, **fields})


def group(cluster, name, **fields):
    given = {
        "ray_image": "i",
        "gpus_per_worker": None,
        "cpu_requests": "1",
        "memory_requests": None,
        "cpu_limits": "1",
        "memory_limits": None,
        "replicas": 1,
        "min_replicas": 0,
        "max_replicas": 2,
        "ray_start_params": {},
        "volume_mounts": [],
        "volumes": [],
        "labels": {},
        "annotations": {},
        "spec_kwargs": {},
        "lifecycle_kwargs": {},
        "container_kwargs": {},
        "env_vars": {},
    }
    return kuberay.populate_worker_group(cluster, name, **{**given, **fields})


@pytest.fixture
def cluster():
    return group(head(kuberay.populate_meta({}, "mine", "ml", {"n": 1}, "2.43.0")), "w")


def test_a_cluster_can_be_put_together(cluster):
    stop = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "ray stop"]}}}
    assert cluster == {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "mine", "namespace": "ml", "labels": {"n": "1"}},
        "spec": {
            "rayVersion": "2.43.0",
            "headGroupSpec": {
                "serviceType": "ClusterIP",
                "rayStartParams": {"dashboard-host": "0.0.0.0"},
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "ray-head",
                                "image": "i",
                                "lifecycle": stop,
                                "resources": {
                                    "requests": {"cpu": "1", "memory": "2Gi"},
                                    "limits": {"cpu": "2", "memory": "4Gi"},
                                },
                            }
                        ]
                    }
                },
            },
            "workerGroupSpecs": [
                {
                    "groupName": "w",
                    "replicas": 1,
                    "minReplicas": 0,
                    "maxReplicas": 2,
                    "rayStartParams": {},
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "ray-worker",
                                    "image": "i",
                                    "lifecycle": stop,
                                    "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}},
                                }
                            ]
                        }
                    },
                }
            ],
        },
    }


def test_what_was_given_stays_as_it_is():
    params = {"num-cpus": 0}
    cluster = kuberay.populate_meta({}, "mine", "ml", {}, "2.43.0")
    head(cluster, ray_start_params=params)
    group(cluster, "a", ray_start_params=params, labels={"team": "x"})
    group(cluster, "b", ray_start_params=params)
    assert params == {"num-cpus": 0}
    first, second = cluster["spec"]["workerGroupSpecs"]
    assert first["rayStartParams"] == second["rayStartParams"] == {"num-cpus": "0"}
    assert first["rayStartParams"] is not second["rayStartParams"]
    assert first["template"]["metadata"] == {"labels": {"team": "x"}}


def test_replicas_are_updated(cluster):
    changed, found = kuberay.update_worker_group_replicas(cluster, "w", max_replicas=5, min_replicas=0, replicas=3)
    assert found
    assert changed is cluster
    (only,) = cluster["spec"]["workerGroupSpecs"]
    assert (only["minReplicas"], only["replicas"], only["maxReplicas"]) == (0, 3, 5)
    before = copy.deepcopy(cluster)
    assert kuberay.update_worker_group_replicas(cluster, "no", 5, 0, 3) == (before, False)
    with pytest.raises(ConfigError):
        kuberay.update_worker_group_replicas(cluster, "w", max_replicas=1, min_replicas=2, replicas=1)


@pytest.mark.parametrize(
    ("container", "changed"),
    [("unspecified", ["ray-worker"]), ("all_containers", ["ray-worker", "proxy"]), ("proxy", ["proxy"]), ("no", [])],
)
def test_resources_are_updated(cluster, container, changed):
    containers = cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"]
    containers[0]["resources"]["limits"]["nvidia.com/gpu"] = "8"
    containers.append({"name": "proxy"})
    _, found = kuberay.update_worker_group_resources(cluster, "w", "2", "1Gi", "3", "2Gi", container)
    assert found == bool(changed)
    wanted = {"cpu": "2", "memory": "1Gi"}
    assert [each["name"] for each in containers if (each.get("resources") or {}).get("requests") == wanted] == changed
    assert containers[0]["resources"]["limits"]["nvidia.com/gpu"] == "8"


def test_a_group_is_duplicated_and_deleted(cluster):
    _, found = kuberay.duplicate_worker_group(cluster, "w", "x")
    assert found
    first, second = cluster["spec"]["workerGroupSpecs"]
    assert {**first, "groupName": "x"} == second
    assert second["template"] is not first["template"]
    assert kuberay.duplicate_worker_group(cluster, "no", "y") == (cluster, False)
    assert kuberay.delete_worker_group(cluster, "w") == (cluster, True)
    assert [each["groupName"] for each in cluster["spec"]["workerGroupSpecs"]] == ["x"]
    assert kuberay.delete_worker_group(cluster, "w") == (cluster, False)


def test_a_second_group_of_one_name_is_refused(cluster):
    with pytest.raises(ConfigError):
        group(cluster, "w")
    with pytest.raises(ConfigError):
        kuberay.duplicate_worker_group(cluster, "w", "w")


def test_impossible_names_are_refused(cluster):
    with pytest.raises(InvalidName):
        kuberay.populate_meta({}, "my.run", "ml", {}, "2.43.0")
    with pytest.raises(InvalidName):
        group(cluster, "Big_One")


@pytest.mark.parametrize(
    ("name", "valid"),
    [("a", True), ("a-1", True), ("x" * 53, True), ("x" * 54, False), ("1a", False), ("a.b", False), ("a-", False)],
)
def test_a_name_is_valid_if_kuberay_takes_it(name, valid):
    assert kuberay.is_valid_name(name) is valid


@pytest.mark.parametrize(
    ("label", "valid"),
    [("a", True), ("A_b.c-1", True), ("x" * 63, True), ("x" * 64, False), ("", False), ("-a", False)],
)
def test_a_label_is_valid_if_kubernetes_takes_it(label, valid):
    assert kuberay.is_valid_label(label) is valid
