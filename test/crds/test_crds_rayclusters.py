"""RayCluster manifests as the operators of three years see them: nothing unknown, nothing twice."""

import pytest
from schemas import findings

from nemo_run._kube.manifests.fields import CONTAINER, POD_SPEC
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup

WORK = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}
EVERYTHING = {
    "namespace": "ml",
    "ray_head_start_params": {"num-cpus": 0, "block": True},
    "ray_worker_start_params": {"verbose": None, "metrics-export-port": 8080},
    "worker_groups": [
        KubeRayWorkerGroup(
            "gpu",
            2,
            0,
            4,
            8,
            "4",
            "8Gi",
            "8",
            "16Gi",
            [{"name": "scratch", "mountPath": "/scratch"}],
            [{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
            {"team": "a"},
            {"note": "x"},
            "amd.com/gpu",
            2,
            {"resources": '"{}"'},
            {"hostNetwork": True},
        ),
        KubeRayWorkerGroup("cpu"),
    ],
    "labels": {"kueue.x-k8s.io/queue-name": "q", "n": 1},
    "service_type": "NodePort",
    "head_ports": [{"name": "serve", "containerPort": 8000}],
    "volume_mounts": [{"name": "work", "mountPath": "/data", "subPath": "data"}, MOUNT],
    "volumes": [WORK],
    "spec_kwargs": {
        "schedulerName": "volcano",
        "image_pull_secrets": ["s"],
        "containers": [{"name": "proxy", "image": "p"}],
    },
    "container_kwargs": {"securityContext": {"privileged": True}, "imagePullPolicy": "Always"},
    "lifecycle_kwargs": {"postStart": {"exec": {"command": ["true"]}}},
    "workdir_volume_mount": MOUNT,
    "env_vars": {"A": 1, "B": None, "PYTHONPATH": "/x:$PYTHONPATH"},
    "env_list": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "image_pull_secrets": ["registry"],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "node_selector": {"zone": "a"},
    "annotations": {"a": 1},
    "pod_labels": {"l": "v"},
    "pod_annotations": {"a": True},
    "autoscaler_options": {"idleTimeoutSeconds": 60},
}


@pytest.mark.parametrize("version", ["1.3.2", "1.5.2", "1.7.0"])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="defaults"),
        pytest.param(
            {"volumes": [WORK], "workdir_volume_mount": MOUNT, "worker_groups": [KubeRayWorkerGroup("w")]}, id="workdir"
        ),
        pytest.param(EVERYTHING, id="everything"),
        pytest.param({**EVERYTHING, "reuse_volumes_in_worker_groups": False, "volume_mounts": []}, id="nothing-reused"),
        pytest.param({"autoscaler_options": {}}, id="autoscaler-as-it-is"),
    ],
)
def test_every_manifest_is_known_to_the_operator_to_the_last_field(version, fields):
    body = KubeRayExecutor(**fields).get_cluster_body("my-cluster", pre_ray_start_commands=["export X=1"])
    assert findings(f"kuberay_v{version}_rayclusters.yaml", body) == []


@pytest.mark.parametrize(
    ("place", "known"), [("spec", POD_SPEC), ("container", CONTAINER)], ids=["pod-spec", "container"]
)
def test_the_fields_that_pass_through_are_those_of_the_newest_operator(place, known):
    def body(**fields):
        pod = {"containers": [{"name": "r", **(fields if place == "container" else {})}]}
        pod |= fields if place == "spec" else {}
        head = {"rayStartParams": {}, "template": {"spec": pod}}
        return {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": "x"},
            "spec": {"headGroupSpec": head},
        }

    fields = dict.fromkeys(known - {"containers", "name"}, "x")
    assert [
        found for found in findings("kuberay_v1.7.0_rayclusters.yaml", body(**fields)) if found[0] == "pruned"
    ] == []
    assert [found[0] for found in findings("kuberay_v1.7.0_rayclusters.yaml", body(nope=1))] == ["pruned"]
