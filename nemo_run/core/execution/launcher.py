"""What stands between an executor and the user's command: torchrun, a profiler, a template."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_run.config import ConfigurableMixin, Script
from nemo_run.exceptions import ConfigError

_NSYS_TRACE = ("nvtx", "cuda")
_NSYS_EXTRA = (
    "--force-overwrite=true",
    "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop",
    "--cuda-graph-trace=node",
    "--cuda-event-trace=false",
)


@dataclass(kw_only=True)
class Launcher(ConfigurableMixin):
    """Runs the command as it is, under Nsight Systems if asked to."""

    nsys_profile: bool = False
    """Profile with ``nsys``."""
    nsys_folder: str = "nsys_profile"
    """Where profiles go, below the job's directory."""
    nsys_filename: str = "profile_%p"
    """Name of a profile; ``%p`` is the process id."""
    nsys_trace: list[str] = field(default_factory=lambda: list(_NSYS_TRACE))
    """What to trace."""
    nsys_extra_args: list[str] = field(default_factory=lambda: list(_NSYS_EXTRA))
    """More arguments of ``nsys profile``."""
    nsys_gpu_metrics: bool = False
    """Sample GPU metrics too."""

    def get_nsys_prefix(self, profile_dir: str) -> list[str] | None:
        """Give the arguments of ``nsys`` that go before the command; None unless profiling."""
        if not self.nsys_profile:
            return None
        output = f"{os.path.join(profile_dir, self.nsys_folder)}/{self.nsys_filename}"
        return ["profile", "-s", "none", "-t", ",".join(self.nsys_trace), "-o", output, *self.nsys_extra_args]

    def transform(self, cmd: list[str]) -> Script | None:
        """Give a script to run instead of *cmd*; None to run *cmd*."""
        return None


@dataclass(kw_only=True)
class Torchrun(Launcher):
    """Runs the command on every node under ``torchrun``."""

    rdzv_backend: str = "c10d"
    """Rendezvous backend."""
    rdzv_port: int = 29500
    """Port of the rendezvous, where the cluster does not give one."""
    rdzv_id: int | None = None
    """Id of the rendezvous; None: one is made."""


@dataclass(kw_only=True)
class FaultTolerance(Launcher):
    """Runs the command under NVIDIA Resiliency Extension's ``ft_launcher``."""

    cfg_path: str = ""
    """Its configuration file, as the job sees it."""
    finished_flag_file: str = ""
    """A file that tells that the training is done."""
    job_results_file: str = ""
    """A file that results are appended to."""
    rdzv_backend: str = "c10d"
    """Rendezvous backend."""
    rdzv_port: int = 29500
    """Port of the rendezvous, where the cluster does not give one."""
    rdzv_id: int | None = None
    """Id of the rendezvous; None: one is made."""
    workload_check_interval: float | None = None
    """Seconds between two looks at the workload."""
    initial_rank_heartbeat_timeout: float | None = None
    """Seconds a rank may take to its first heartbeat."""
    rank_heartbeat_timeout: float | None = None
    """Seconds between two heartbeats of a rank."""
    rank_termination_signal: str | None = None
    """Signal that ends a hung rank."""
    log_level: str | None = None
    """Log level of ``ft_launcher``."""
    max_restarts: int | None = None
    """How often to start the workers again."""


@dataclass(kw_only=True)
class SlurmTemplate(Launcher):
    """
    Wraps the command in a Jinja template, which sees it as ``command``.

    Raises:
        ConfigError: neither a path nor an inline template.
    """

    template_path: str | None = None
    """File of the template."""
    template_inline: str | None = None
    """The template itself; goes before the path."""
    template_vars: dict[str, Any] = field(default_factory=dict)
    """What the template sees besides ``command``."""

    def __post_init__(self) -> None:
        if not self.template_path and not self.template_inline:
            raise ConfigError("template_path", self.template_path, "give template_path or template_inline")

    def get_template_content(self) -> str:
        """Give the template's text."""
        if self.template_inline:
            return self.template_inline
        return Path(self.template_path or "").read_text(encoding="utf-8")

    def render_template(self, cmd: list[str]) -> str:
        """Give the text that the template makes of *cmd*, its items joined by spaces."""
        import jinja2

        # A shell script, not HTML: `&&` must stay `&&`.
        template = jinja2.Template(self.get_template_content(), autoescape=False)
        return str(template.render(command=" ".join(cmd), **self.template_vars))

    def transform(self, cmd: list[str]) -> Script | None:
        """Give the rendered template as a script."""
        return Script(inline=self.render_template(cmd))


@dataclass(kw_only=True)
class SlurmRay(SlurmTemplate):
    """
    A Ray cluster inside a Slurm job; can be written and saved, not run.

    On Kubernetes use ``nemo_run.run.ray.job.RayJob`` with a ``KubeRayExecutor``.
    """

    gcs_server_port: int = 6379
    dashboard_port: int = 8265
    object_manager_port: int = 8076
    node_manager_port: int = 8077
    dashboard_agent_port: int = 52365
    dashboard_agent_grpc_port: int = 52366
    metrics_port: int = 9002
    display_nvidia_smi_output: bool = False
    head_setup: str | None = None
    head_init_wait_time: int = 10
    worker_init_wait_time: int = 60
    env_vars: dict[str, str] | None = None

    def __post_init__(self) -> None:
        self.template_path = "slurm_ray.sh.j2"

    def render_template(self, cmd: list[str]) -> str:
        """Refuse: this package has no Slurm."""
        raise ConfigError(
            "launcher",
            "SlurmRay",
            "nemo_run runs Ray on Kubernetes: use nemo_run.run.ray.job.RayJob with a KubeRayExecutor",
        )


LAUNCHER_MAP: dict[str, type[Launcher]] = {
    "torchrun": Torchrun,
    "ft": FaultTolerance,
    "slurm_ray": SlurmRay,
    "slurm_template": SlurmTemplate,
}
"""What an executor's ``launcher="torchrun"`` stands for."""
