"""What a fresh cluster with Trainer holds before anyone has created anything."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

NAMESPACES = ("default", "kube-system", "kubeflow-system")

_IMAGES = {
    "2.0": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime",
    "2.1": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime",
    "2.2": "pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime",
    "2.3": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
}
_RELEASES = {"2.0": "v2.0.1", "2.1": "v2.1.0", "2.2": "v2.2.1", "2.3": "v2.3.0"}


def namespace(name: str) -> Json:
    """Give a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def claim(name: str) -> Json:
    """Give a claim that everyone can mount at once."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }


def torch_runtime(trainer: str) -> Json:
    """Give Trainer's stock ClusterTrainingRuntime ``torch-distributed``."""
    container = {"name": "node", "image": _IMAGES[trainer]}
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [container]}}},
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch-distributed", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def trainer_version(trainer: str) -> Json:
    """Give the ConfigMap in which Trainer (2.2 and later) says its version."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubeflow-trainer-public"},
        "data": {"kubeflow_trainer_version": _RELEASES[trainer]},
    }
