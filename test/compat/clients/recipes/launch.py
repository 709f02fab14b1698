"""
Run a recipe of a library that knows nemo_run as one of its launchers.

The executor comes from the user's ``executors.py``; what the recipe's YAML says
about it is laid over; the recipe itself goes to the pod as ``/nemo_run/code/…``.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

import nemo_run as run
from nemo_run.config import get_nemorun_home

CONFIG = "recipe_config.yaml"


def load_executor(name: str) -> run.Executor:
    path = Path(get_nemorun_home(), "executors.py")
    spec = importlib.util.spec_from_file_location("executors", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.EXECUTOR_MAP[name]
    return found if hasattr(found, "launch") or not callable(found) else found()


def lay_over(executor: run.Executor, overrides: dict[str, Any]) -> None:
    """Merge dicts, append to lists, and set what is neither."""
    for name, value in overrides.items():
        if not hasattr(executor, name):
            raise SystemExit(f"{type(executor).__name__} has no {name}")
        current = getattr(executor, name)
        if isinstance(current, dict) and isinstance(value, dict):
            value = {**current, **value}
        elif isinstance(current, list) and isinstance(value, list):
            value = current + value
        setattr(executor, name, value)


def main() -> None:
    recipe = yaml.safe_load(Path(sys.argv[1]).read_text())
    settings = recipe.pop("nemo_run")
    executor = load_executor(settings.pop("executor"))
    lay_over(executor, settings.pop("overrides", {}))
    processes = executor.nproc_per_node()
    executor.launcher = "torchrun"
    if hasattr(executor, "torchrun_nproc_per_node"):
        executor.torchrun_nproc_per_node = processes
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, CONFIG)
        config.write_text(yaml.safe_dump({**recipe, "processes": processes}))
        executor.packager = run.PatternPackager(include_pattern=str(config), relative_path=directory)
        script = run.Script(path="recipe_app", m=True, entrypoint="python", args=["-c", f"/nemo_run/code/{CONFIG}"])
        with run.Experiment(settings["job_name"]) as exp:
            exp.add(script, executor=executor, name=settings["job_name"])
            exp.run(detach=settings.get("detach", False), tail_logs=True)


if __name__ == "__main__":
    main()
