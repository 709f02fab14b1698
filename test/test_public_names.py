"""What ``import nemo_run`` gives, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import nemo_run

UPSTREAM = """
Config ConfigurableMixin DGXCloudExecutor DevSpace DockerExecutor Executor ExecutorMacros Experiment FaultTolerance
GitArchivePackager HybridPackager KubeflowExecutor LazyEntrypoint LeptonExecutor LocalExecutor LocalTunnel Packager
Partial PatternPackager Plugin SSHTunnel Script SkypilotExecutor SkypilotJobsExecutor SlurmExecutor SlurmRay
SlurmTemplate Torchrun __package_name__ __version__ autoconvert cli dryrun_fn help import_executor lazy_imports run
"""
HEAVY = "absl aiohttp fiddle graphviz jinja2 kubernetes libcst pathspec rich typer typing_extensions websocket yaml"


def fresh(code: str) -> str:
    """Give what *code* prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_name_of_upstream_is_there() -> None:
    assert sorted(nemo_run.__all__) == sorted([*UPSTREAM.split(), "KubeRayExecutor"])


def test_names_are_sorted_and_once() -> None:
    assert nemo_run.__all__ == sorted(set(nemo_run.__all__))


@pytest.mark.parametrize("name", nemo_run.__all__)
def test_name_is_reachable_and_listed(name: str) -> None:
    assert getattr(nemo_run, name) is not None
    assert name in dir(nemo_run)


def test_type_checkers_see_every_name() -> None:
    """What is imported for them is what is exported; PEP 562 alone would hide it."""
    tree = ast.parse(Path(nemo_run.__file__).read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)]
    seen = {alias.asname for node in blocks[0].body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(nemo_run.__all__) - {"__package_name__", "__version__"}


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'nemo_run' has no attribute 'nope'"):
        _ = nemo_run.nope


def test_import_loads_nothing_heavy() -> None:
    code = f"import sys, nemo_run; print([m for m in {HEAVY.split()} if m in sys.modules])"
    assert fresh(code) == "[]"


@pytest.mark.parametrize(
    "use",
    ["run.Script('train.py').to_command()", "run.LocalExecutor(launcher='torchrun').get_launcher()", "dir(run)"],
    ids=["script", "executor", "dir"],
)
def test_values_need_no_fiddle(use: str) -> None:
    """A script job's executor and command are there before fiddle, which takes half a second to import."""
    assert fresh(f"import sys, nemo_run as run; {use}; print('fiddle' in sys.modules)") == "False"


@pytest.mark.parametrize(
    "first",
    ["import nemo_run.run.experiment", "import nemo_run.run.ray", "import nemo_run.help", "nemo_run.Experiment"],
)
def test_run_and_help_stay_functions(first: str) -> None:
    """Python binds a submodule to its package's attribute when it is first imported, over a function of that name."""
    code = f"import nemo_run; {first}; print(type(nemo_run.run).__name__, type(nemo_run.help).__name__)"
    assert fresh(code) == "function function"


def test_submodules_are_reachable_without_importing_them() -> None:
    assert fresh("import nemo_run as run; print(run.config.RUNDIR_NAME, run.core.execution.base.__name__)") == (
        "nemo_run nemo_run.core.execution.base"
    )


def test_cli_is_a_module_and_run_a_function() -> None:
    assert isinstance(nemo_run.cli, ModuleType)
    assert isinstance(nemo_run.run, FunctionType)


def test_version_is_the_distribution_s() -> None:
    text = (Path(nemo_run.__file__).parent.parent / "pyproject.toml").read_text()
    assert f'version = "{nemo_run.__version__}"' in text
