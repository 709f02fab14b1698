"""TrainJob manifests as three releases of Kubeflow Trainer see them: nothing unknown, nothing twice."""

from __future__ import annotations

import pytest
from schemas import findings

from nemo_run.core.execution.kubeflow import KubeflowExecutor

RELEASES = {
    "trainer_v2.1.0_trainjobs.yaml": "2.1",
    "trainer_v2.2.1_trainjobs.yaml": "2.2",
    "trainer_v2.3.0_trainjobs.yaml": "2.2",
}
WORK = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}
PLAIN = {}
WORKDIR = {
    "volumes": [WORK],
    "workdir_volume_mount": {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
}
THREE_PATHS = WORKDIR | {
    "volume_mounts": [
        {"name": "work", "mountPath": "/data", "subPath": "data", "readOnly": True},
        {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
        {"name": "work", "mountPath": "/cache"},
    ]
}
EVERYTHING = THREE_PATHS | {
    "image": "nvcr.io/nvidia/nemo:25.09",
    "num_nodes": 2,
    "nprocs_per_node": 4,
    "gpus_per_node": 8,
    "gpu_resource": "amd.com/gpu",
    "cpu_requests": "8",
    "memory_requests": "32Gi",
    "cpu_limits": "16",
    "memory_limits": "64Gi",
    "extra_resource_requests": {"vpc.amazonaws.com/efa": 32},
    "extra_resource_limits": {"vpc.amazonaws.com/efa": "32"},
    "labels": {"kueue.x-k8s.io/queue-name": "q"},
    "annotations": {"note": "é, anything"},
    "pod_labels": {"team": "a"},
    "pod_annotations": {"networking.gke.io/interfaces": "[]"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    "env_vars": {"A": "1", "B": 2, "C": None, "PYTHONPATH": "/x:$PYTHONPATH"},
    "env_list": [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
        {"name": "A", "value": "3"},
    ],
    "image_pull_secrets": ["registry"],
    "pod_spec_overrides": {
        "nodeSelector": {"pool": "gpu"},
        "serviceAccountName": "trainer",
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
        "initContainers": [{"name": "wait", "volumeMounts": [{"name": "work", "mountPath": "/w"}]}],
        "containers": [
            {"name": "node", "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]},
            {"name": "sidecar", "env": [{"name": "X", "value": "1"}]},
        ],
    },
    "container_kwargs": {"resources": {"limits": {"hugepages-2Mi": "1Gi"}}, "env": [{"name": "Z", "value": "1"}]},
    "spec_kwargs": {"suspend": True, "node_selector": {"zone": "b"}},
}


@pytest.mark.parametrize("fields", [PLAIN, WORKDIR, THREE_PATHS, EVERYTHING], ids=["plain", "workdir", "paths", "all"])
@pytest.mark.parametrize(("crd", "dialect"), RELEASES.items(), ids=RELEASES)
def test_the_api_server_would_keep_every_field(crd, dialect, fields):
    executor = KubeflowExecutor(trainer_api=dialect, **fields)
    executor.assign("exp_1", "/tmp/exp_1", "train", "train")
    assert findings(crd, executor.get_job_body("train-1a2b3c", ["python", "x.py", "$PET_NODE_RANK"])) == []


@pytest.mark.parametrize("crd", [crd for crd, dialect in RELEASES.items() if dialect == "2.2"])
def test_the_security_context_reaches_the_container(crd):
    context = {"privileged": True, "capabilities": {"add": ["IPC_LOCK"]}}
    executor = KubeflowExecutor(
        container_kwargs={"securityContext": context}, pod_spec_overrides={"securityContext": {"fsGroup": 1000}}
    )
    assert findings(crd, executor.get_job_body("train-1a2b3c", ["true"])) == []


def test_the_grace_period_reaches_the_pod():
    executor = KubeflowExecutor(pod_spec_overrides={"terminationGracePeriodSeconds": 60})
    assert findings("trainer_v2.3.0_trainjobs.yaml", executor.get_job_body("train-1a2b3c", ["true"])) == []


@pytest.mark.parametrize(
    ("crd", "dialect"), [("trainer_v2.1.0_trainjobs.yaml", "2.2"), ("trainer_v2.3.0_trainjobs.yaml", "2.1")]
)
def test_the_other_dialect_would_lose_the_pods_settings(crd, dialect):
    """What the check is for: servers drop unknown fields in silence."""
    executor = KubeflowExecutor(trainer_api=dialect, **WORKDIR)
    assert [kind for kind, _, _ in findings(crd, executor.get_job_body("train-1a2b3c", ["true"]))] == ["pruned"]
