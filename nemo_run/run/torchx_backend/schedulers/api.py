"""Which executor goes by which name in handles; programs may add theirs."""

from __future__ import annotations

from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.dgxcloud import DGXCloudExecutor
from nemo_run.core.execution.docker import DockerExecutor
from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.core.execution.lepton import LeptonExecutor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.core.execution.skypilot import SkypilotExecutor
from nemo_run.core.execution.skypilot_jobs import SkypilotJobsExecutor
from nemo_run.core.execution.slurm import SlurmExecutor
from nemo_run.exceptions import ConfigError

EXECUTOR_MAPPING: dict[type[Executor], str] = {
    SlurmExecutor: "slurm_tunnel",
    SkypilotExecutor: "skypilot",
    SkypilotJobsExecutor: "skypilot_jobs",
    LocalExecutor: "local_persistent",
    DockerExecutor: "docker_persistent",
    DGXCloudExecutor: "dgx_cloud",
    LeptonExecutor: "lepton",
    KubeflowExecutor: "kubeflow",
}

REVERSE_EXECUTOR_MAPPING: dict[str, type[Executor]] = {name: kind for kind, name in EXECUTOR_MAPPING.items()}


def get_executor_str(executor: Executor) -> str:
    """
    Give the name by which handles of *executor* begin; a subclass goes by its nearest ancestor's.

    Raises:
        ConfigError: no ancestor has a name.
    """
    for kind in type(executor).__mro__:
        if name := EXECUTOR_MAPPING.get(kind):
            return name
    raise ConfigError("executor", type(executor).__name__, "has no name in EXECUTOR_MAPPING")
