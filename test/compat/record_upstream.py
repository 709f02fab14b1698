"""
Record what NVIDIA's NeMo-Run offers and writes; run by a Python that has it installed.

    python test/compat/record_upstream.py surface > test/compat/upstream_surface.json
    python test/compat/record_upstream.py files test/fixtures/upstream
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

MODULES = [
    "nemo_run",
    "nemo_run.api",
    "nemo_run.cli",
    "nemo_run.cli.lazy",
    "nemo_run.config",
    "nemo_run.core.execution",
    "nemo_run.core.execution.base",
    "nemo_run.core.execution.dgxcloud",
    "nemo_run.core.execution.docker",
    "nemo_run.core.execution.kubeflow",
    "nemo_run.core.execution.kuberay",
    "nemo_run.core.execution.launcher",
    "nemo_run.core.execution.lepton",
    "nemo_run.core.execution.local",
    "nemo_run.core.execution.skypilot",
    "nemo_run.core.execution.skypilot_jobs",
    "nemo_run.core.execution.slurm",
    "nemo_run.core.packaging",
    "nemo_run.core.packaging.base",
    "nemo_run.core.packaging.git",
    "nemo_run.core.packaging.hybrid",
    "nemo_run.core.packaging.pattern",
    "nemo_run.core.serialization.yaml",
    "nemo_run.core.serialization.zlib_json",
    "nemo_run.core.tunnel.client",
    "nemo_run.devspace.base",
    "nemo_run.exceptions",
    "nemo_run.help",
    "nemo_run.package_info",
    "nemo_run.run.api",
    "nemo_run.run.experiment",
    "nemo_run.run.job",
    "nemo_run.run.logs",
    "nemo_run.run.plugin",
    "nemo_run.run.ray.cluster",
    "nemo_run.run.ray.job",
    "nemo_run.run.ray.kuberay",
    "nemo_run.run.torchx_backend.schedulers.api",
]
PLAIN = (str, int, float, bool, type(None), tuple, list, dict, set)


def default(value: Any) -> str:
    return repr(value) if isinstance(value, PLAIN) else f"<{type(value).__name__}>"


def signature(function: Any) -> list[list[Any]] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [
        [p.name, p.kind.name, None if p.default is inspect.Parameter.empty else default(p.default)] for p in parameters
    ]


def field_default(field: Any) -> str | None:
    if field.default is not dataclasses.MISSING:
        return default(field.default)
    return None if field.default_factory is dataclasses.MISSING else default(field.default_factory())


def fields(cls: type) -> list[list[Any]]:
    return [[f.name, f.init, f.kw_only, field_default(f)] for f in dataclasses.fields(cls)]


def methods(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, raw in vars(cls).items():
        if name.startswith("_"):
            continue
        if isinstance(raw, property):
            found[name] = "property"
        elif isinstance(raw, classmethod | staticmethod) or inspect.isfunction(raw):
            found[name] = signature(getattr(cls, name))
    return found


def described(value: Any) -> dict[str, Any]:
    if inspect.ismodule(value):
        return {"kind": "module"}
    if inspect.isclass(value):
        result: dict[str, Any] = {"kind": "class", "methods": methods(value)}
        if dataclasses.is_dataclass(value):
            result["fields"] = fields(value)
        elif "__init__" in vars(value):
            result["init"] = signature(value)
        if issubclass(value, BaseException):
            result["bases"] = [base.__name__ for base in value.__mro__ if base.__module__ == "builtins"]
        return result
    if callable(value):
        return {"kind": "function", "signature": signature(value)}
    return {"kind": "constant", "type": type(value).__name__}


def public(module: Any) -> list[str]:
    named = getattr(module, "__all__", None)
    own = [name for name, value in vars(module).items() if is_own(module, name, value)]
    return sorted(set(named or []) | set(own))


def is_own(module: Any, name: str, value: Any) -> bool:
    if name.startswith("_") or inspect.ismodule(value):
        return False
    if name == "TYPE_CHECKING" or isinstance(value, TypeVar | ParamSpec):
        return False
    constant = name.isupper() and not callable(value)
    return constant or getattr(value, "__module__", None) == module.__name__


def surface() -> dict[str, Any]:
    table = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for key in public(module):
            value = getattr(module, key)
            elsewhere = inspect.isclass(value) and value.__module__ != name
            table[f"{name}:{key}"] = {"kind": "class", "methods": {}} if elsewhere else described(value)
    return table


def lines(table: dict[str, Any]) -> str:
    """One line for each name, so that a difference between two versions can be read."""
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(table[key])}" for key in sorted(table)) + "\n}\n"


def executors() -> dict[str, Any]:
    import nemo_run as run
    from nemo_run.core.execution.kubeflow import KubeflowExecutor
    from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup

    # Upstream's executors look for a cluster when they are built.
    KubeflowExecutor._load_kube_clients = lambda self: None
    KubeRayExecutor.__post_init__ = lambda self: None
    volume = {"name": "model-cache", "persistentVolumeClaim": {"claimName": "model-cache"}}
    mount = {"name": "model-cache", "mountPath": "/nemo-workspace", "subPath": "team-a"}
    return {
        "kubeflow": KubeflowExecutor(
            launcher=run.Torchrun(),
            namespace="team",
            image="nvcr.io/nvidia/nemo:25.04",
            num_nodes=2,
            gpus_per_node=8,
            volumes=[volume],
            volume_mounts=[mount],
            workdir_pvc="model-cache",
            workdir_pvc_path="/nemo-workspace",
            env_vars={"A": "1", "EMPTY": ""},
            env_list=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            packager=run.GitArchivePackager(include_submodules=False),
        ),
        "kubeflow_defaults": KubeflowExecutor(),
        "kuberay": KubeRayExecutor(
            namespace="team",
            image="rayproject/ray:2.43.0",
            volumes=[volume],
            volume_mounts=[mount],
            worker_groups=[KubeRayWorkerGroup(group_name="w", replicas=2, gpus_per_worker=8)],
        ),
        "local": run.LocalExecutor(launcher="torchrun", ntasks_per_node=2, env_vars={"A": "1"}),
        "slurm": run.SlurmExecutor(account="a", nodes=2, tunnel=run.SSHTunnel(job_dir="/j", host="h", user="u")),
    }


def configs() -> dict[str, Any]:
    import nemo_run as run

    found = {name: executor.to_config() for name, executor in executors().items()}
    found["packager"] = run.PatternPackager(include_pattern=["a/*"], relative_path=["a"]).to_config()
    found["partial"] = run.Partial(
        json.dumps, obj={"a": [0, "", None]}, indent=0, default=run.Config(run.Script, inline="echo 1", args=["a b"])
    )
    found["script"] = run.Script(path="train.py", entrypoint="python", args=["--x", "a b"], env={"E": "1"}).to_config()
    return found


def write_files(folder: Path) -> None:
    from nemo_run.core.serialization.yaml import YamlSerializer
    from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

    for name, config in configs().items():
        (folder / f"{name}.zlib").write_text(ZlibJSONSerializer().serialize(config) + "\n")
        (folder / f"{name}.yaml").write_text(YamlSerializer().serialize(config))


if __name__ == "__main__":
    if sys.argv[1] == "surface":
        sys.stdout.write(lines(surface()))
    else:
        write_files(Path(sys.argv[2]))
