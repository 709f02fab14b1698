"""What a launcher changes in the job's own copy of the executor, by where and how the job is to run."""

from __future__ import annotations

from dataclasses import dataclass, field

import nemo_run as run
from nemo_run import Plugin
from nemo_run.core.execution.kubeflow import KubeflowExecutor


@dataclass
class CloudPlugin(Plugin):
    """Takes a cloud's network cards, shared memory, and the rights that they need."""

    provider: str = "efa"

    def setup(self, task: run.Partial | run.Script, executor: run.Executor) -> None:
        if not isinstance(executor, KubeflowExecutor):
            return
        cards = {f"vpc.amazonaws.com/{self.provider}": "4"}
        executor.extra_resource_requests = {**executor.extra_resource_requests, **cards}
        executor.extra_resource_limits = {**executor.extra_resource_limits, **cards}
        executor.container_kwargs = {**executor.container_kwargs, "securityContext": {"privileged": True}}
        executor.pod_annotations = {**executor.pod_annotations, "networking/interfaces": '[{"name": "eth1"}]'}
        executor.env_vars.setdefault("FI_PROVIDER", self.provider)
        executor.env_vars.setdefault("NCCL_DEBUG", "INFO")
        executor.volumes.append({"name": "dshm", "emptyDir": {"medium": "Memory"}})
        executor.volume_mounts.append({"name": "dshm", "mountPath": "/dev/shm"})


@dataclass
class ProfilerPlugin(Plugin):
    """Runs the training under Nsight Systems."""

    ranks: list[int] = field(default_factory=list)

    def setup(self, task: run.Partial | run.Script, executor: run.Executor) -> None:
        launcher = executor.get_launcher()
        launcher.nsys_profile = True
        launcher.nsys_trace = ["nvtx", "cuda"]
        launcher.nsys_extra_args = ["--force-overwrite=true", "--capture-range=cudaProfilerApi"]
        launcher.nsys_filename = "profile_%p"
        if hasattr(launcher, "nsys_gpu_metrics"):
            launcher.nsys_gpu_metrics = True
        if isinstance(task, run.Script) and not task.inline:
            task.args.extend(["--profile_ranks", ",".join(map(str, self.ranks))])


@dataclass
class MoreArguments(Plugin):
    """Appends to the script's arguments."""

    arguments: list[str] = field(default_factory=list)

    def setup(self, task: run.Partial | run.Script, executor: run.Executor) -> None:
        if isinstance(task, run.Script):
            task.args.extend(self.arguments)
