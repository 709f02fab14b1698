"""The executor of an evaluation launcher, and what it hangs on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.core.execution.slurm import SlurmJobDetails


@dataclass
class LogDetails(SlurmJobDetails):
    """Names of log files, which on Kubernetes nothing reads."""

    @property
    def srun_stdout(self) -> str:
        return f"{self.folder}/log.out"


def kuberay_executor(nodes: int, gpus: int, claim: str) -> KubeRayExecutor:
    container: dict[str, Any] = {"securityContext": {"privileged": False}}
    executor = KubeRayExecutor(
        namespace="default",
        ray_version="2.43.0",
        image="nvcr.io/eval:latest",
        head_cpu="4",
        head_memory="8Gi",
        ray_head_start_params={"num-gpus": "0", "num-cpus": "0"},
        ray_worker_start_params={"num-gpus": str(gpus), "num-cpus": "2"},
        worker_groups=[
            KubeRayWorkerGroup(
                group_name="worker",
                replicas=nodes,
                min_replicas=nodes,
                max_replicas=nodes,
                gpus_per_worker=gpus,
                cpu_requests="2",
                cpu_limits="2",
                memory_requests="4Gi",
                memory_limits="4Gi",
            )
        ],
        spec_kwargs={"schedulerName": "default-scheduler", "image_pull_secrets": ["registry"]},
        volume_mounts=[],
        volumes=[],
        env_vars={"HF_TOKEN": os.environ.get("EVAL_HF_TOKEN"), "TASK": "mmlu", "RAY_DEDUP_LOGS": "0"},
        container_kwargs=container,
    )
    executor.volumes.append({"name": "workspace", "persistentVolumeClaim": {"claimName": claim}})
    executor.volume_mounts.append({"name": "workspace", "mountPath": "/workspace"})
    executor.job_details = LogDetails()  # type: ignore[attr-defined]
    return executor
