"""
Configure, launch and follow jobs on Kubernetes from Python.

Every name is imported when it is first touched, so ``import nemo_run`` is
cheap and needs none of the packages that the names need.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nemo_run._lazy import lazy_attributes
from nemo_run.package_info import __package_name__, __version__

if TYPE_CHECKING:
    from nemo_run import cli as cli
    from nemo_run.api import autoconvert as autoconvert
    from nemo_run.api import dryrun_fn as dryrun_fn
    from nemo_run.cli.lazy import LazyEntrypoint as LazyEntrypoint
    from nemo_run.cli.lazy import lazy_imports as lazy_imports
    from nemo_run.config import Config as Config
    from nemo_run.config import ConfigurableMixin as ConfigurableMixin
    from nemo_run.config import Partial as Partial
    from nemo_run.config import Script as Script
    from nemo_run.core.execution.base import Executor as Executor
    from nemo_run.core.execution.base import ExecutorMacros as ExecutorMacros
    from nemo_run.core.execution.base import import_executor as import_executor
    from nemo_run.core.execution.dgxcloud import DGXCloudExecutor as DGXCloudExecutor
    from nemo_run.core.execution.docker import DockerExecutor as DockerExecutor
    from nemo_run.core.execution.kubeflow import KubeflowExecutor as KubeflowExecutor
    from nemo_run.core.execution.kuberay import KubeRayExecutor as KubeRayExecutor
    from nemo_run.core.execution.launcher import FaultTolerance as FaultTolerance
    from nemo_run.core.execution.launcher import SlurmRay as SlurmRay
    from nemo_run.core.execution.launcher import SlurmTemplate as SlurmTemplate
    from nemo_run.core.execution.launcher import Torchrun as Torchrun
    from nemo_run.core.execution.lepton import LeptonExecutor as LeptonExecutor
    from nemo_run.core.execution.local import LocalExecutor as LocalExecutor
    from nemo_run.core.execution.skypilot import SkypilotExecutor as SkypilotExecutor
    from nemo_run.core.execution.skypilot_jobs import SkypilotJobsExecutor as SkypilotJobsExecutor
    from nemo_run.core.execution.slurm import SlurmExecutor as SlurmExecutor
    from nemo_run.core.packaging.base import Packager as Packager
    from nemo_run.core.packaging.git import GitArchivePackager as GitArchivePackager
    from nemo_run.core.packaging.hybrid import HybridPackager as HybridPackager
    from nemo_run.core.packaging.pattern import PatternPackager as PatternPackager
    from nemo_run.core.tunnel.client import LocalTunnel as LocalTunnel
    from nemo_run.core.tunnel.client import SSHTunnel as SSHTunnel
    from nemo_run.devspace.base import DevSpace as DevSpace
    from nemo_run.help import help as help
    from nemo_run.run.api import run as run
    from nemo_run.run.experiment import Experiment as Experiment
    from nemo_run.run.plugin import ExperimentPlugin as Plugin

_EXPORTS = {
    "Config": "nemo_run.config",
    "ConfigurableMixin": "nemo_run.config",
    "DGXCloudExecutor": "nemo_run.core.execution.dgxcloud",
    "DevSpace": "nemo_run.devspace.base",
    "DockerExecutor": "nemo_run.core.execution.docker",
    "Executor": "nemo_run.core.execution.base",
    "ExecutorMacros": "nemo_run.core.execution.base",
    "Experiment": "nemo_run.run.experiment",
    "FaultTolerance": "nemo_run.core.execution.launcher",
    "GitArchivePackager": "nemo_run.core.packaging.git",
    "HybridPackager": "nemo_run.core.packaging.hybrid",
    "KubeRayExecutor": "nemo_run.core.execution.kuberay",
    "KubeflowExecutor": "nemo_run.core.execution.kubeflow",
    "LazyEntrypoint": "nemo_run.cli.lazy",
    "LeptonExecutor": "nemo_run.core.execution.lepton",
    "LocalExecutor": "nemo_run.core.execution.local",
    "LocalTunnel": "nemo_run.core.tunnel.client",
    "Packager": "nemo_run.core.packaging.base",
    "Partial": "nemo_run.config",
    "PatternPackager": "nemo_run.core.packaging.pattern",
    "Plugin": "nemo_run.run.plugin:ExperimentPlugin",
    "SSHTunnel": "nemo_run.core.tunnel.client",
    "Script": "nemo_run.config",
    "SkypilotExecutor": "nemo_run.core.execution.skypilot",
    "SkypilotJobsExecutor": "nemo_run.core.execution.skypilot_jobs",
    "SlurmExecutor": "nemo_run.core.execution.slurm",
    "SlurmRay": "nemo_run.core.execution.launcher",
    "SlurmTemplate": "nemo_run.core.execution.launcher",
    "Torchrun": "nemo_run.core.execution.launcher",
    "autoconvert": "nemo_run.api",
    "dryrun_fn": "nemo_run.api",
    "help": "nemo_run.help",
    "import_executor": "nemo_run.core.execution.base",
    "lazy_imports": "nemo_run.cli.lazy",
    "run": "nemo_run.run.api",
}

__all__ = [
    "Config",
    "ConfigurableMixin",
    "DGXCloudExecutor",
    "DevSpace",
    "DockerExecutor",
    "Executor",
    "ExecutorMacros",
    "Experiment",
    "FaultTolerance",
    "GitArchivePackager",
    "HybridPackager",
    "KubeRayExecutor",
    "KubeflowExecutor",
    "LazyEntrypoint",
    "LeptonExecutor",
    "LocalExecutor",
    "LocalTunnel",
    "Packager",
    "Partial",
    "PatternPackager",
    "Plugin",
    "SSHTunnel",
    "Script",
    "SkypilotExecutor",
    "SkypilotJobsExecutor",
    "SlurmExecutor",
    "SlurmRay",
    "SlurmTemplate",
    "Torchrun",
    "__package_name__",
    "__version__",
    "autoconvert",
    "cli",
    "dryrun_fn",
    "help",
    "import_executor",
    "lazy_imports",
    "run",
]


class _Package(ModuleType):
    """
    This package, where ``run`` and ``help`` are the functions, whoever imports the modules of those names first.

    Python binds a submodule to its parent's attribute when it is first imported.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _EXPORTS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_attributes(
        __name__,
        _EXPORTS,
        ("api", "cli", "config", "core", "devspace", "exceptions", "package_info"),
    )
