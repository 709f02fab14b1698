"""Executors: where and how a job runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_run._lazy import lazy_attributes

if TYPE_CHECKING:
    from nemo_run._kube.layout import WorkdirLayout as WorkdirLayout
    from nemo_run.core.execution.dgxcloud import DGXCloudExecutor as DGXCloudExecutor
    from nemo_run.core.execution.kubeflow import KubeflowExecutor as KubeflowExecutor
    from nemo_run.core.execution.kuberay import KubeRayExecutor as KubeRayExecutor
    from nemo_run.core.execution.lepton import LeptonExecutor as LeptonExecutor
    from nemo_run.core.execution.local import LocalExecutor as LocalExecutor
    from nemo_run.core.execution.skypilot import SkypilotExecutor as SkypilotExecutor
    from nemo_run.core.execution.slurm import SlurmExecutor as SlurmExecutor
else:
    __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            "DGXCloudExecutor": "nemo_run.core.execution.dgxcloud",
            "KubeRayExecutor": "nemo_run.core.execution.kuberay",
            "KubeflowExecutor": "nemo_run.core.execution.kubeflow",
            "LeptonExecutor": "nemo_run.core.execution.lepton",
            "LocalExecutor": "nemo_run.core.execution.local",
            "SkypilotExecutor": "nemo_run.core.execution.skypilot",
            "SlurmExecutor": "nemo_run.core.execution.slurm",
            "WorkdirLayout": "nemo_run._kube.layout",
        },
        ("base", "docker", "launcher", "skypilot_jobs"),
    )

__all__ = [
    "DGXCloudExecutor",
    "KubeRayExecutor",
    "KubeflowExecutor",
    "LeptonExecutor",
    "LocalExecutor",
    "SkypilotExecutor",
    "SlurmExecutor",
    "WorkdirLayout",
]
