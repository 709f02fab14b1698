"""Executors as values: cloned, assigned, asked for their launcher."""

from __future__ import annotations

import dataclasses
import getpass
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nemo_run as run
from nemo_run.core.execution import base, launcher
from nemo_run.exceptions import ConfigError


@dataclasses.dataclass(kw_only=True)
class Special(run.LocalExecutor):
    cache: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    seen: set[int] = dataclasses.field(default_factory=set)


class Overriding(run.LocalExecutor):
    def get_launcher_prefix(self) -> list[str] | None:
        return ["strace"]


def test_clone_is_equal_and_shares_nothing() -> None:
    original = Special(env_vars={"A": ""}, cache={"a": [1]}, seen={1}, launcher=run.Torchrun(nsys_trace=["cuda"]))
    clone = original.clone()
    assert clone == original
    clone.env_vars["B"] = "1"
    clone.cache["a"].append(2)
    clone.seen.add(2)
    clone.get_launcher().nsys_trace.append("nvtx")
    clone.packager.debug = True
    assert original == Special(
        env_vars={"A": ""}, cache={"a": [1]}, seen={1}, launcher=run.Torchrun(nsys_trace=["cuda"])
    )


def test_clone_keeps_the_class() -> None:
    assert type(Overriding().clone()) is Overriding
    assert Overriding().clone().get_launcher_prefix() == ["strace"]


def test_clone_keeps_attributes_that_are_no_fields() -> None:
    executor: Any = run.LocalExecutor()
    executor.job_details = {"folder": ["a"]}
    clone: Any = executor.clone()
    clone.job_details["folder"].append("b")
    assert executor.job_details == {"folder": ["a"]}


def test_clone_is_not_assigned_to_the_original_s_experiment() -> None:
    executor = run.LocalExecutor()
    executor.assign("e", "/exp", "t", "task")
    clone = executor.clone()
    assert (clone.experiment_id, clone.job_dir, clone.experiment_dir) == ("e", "/exp/task", "")


def test_clone_builds_packagers_given_as_configs() -> None:
    executor = run.LocalExecutor(packager=run.Config(run.Packager, debug=True))  # type: ignore[arg-type]
    assert executor.clone().packager == run.Packager(debug=True)


def test_fields_stay_mutable() -> None:
    executor = run.LocalExecutor(env_vars={"A": "1"})
    executor.env_vars |= {"B": "2"}
    executor.env_vars.setdefault("A", "3")
    assert executor.env_vars == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, launcher.Launcher()),
        ("", launcher.Launcher()),
        ("torchrun", run.Torchrun()),
        ("ft", run.FaultTolerance()),
        (run.Torchrun(rdzv_port=1), run.Torchrun(rdzv_port=1)),
    ],
)
def test_launcher(given: Any, expected: launcher.Launcher) -> None:
    assert run.LocalExecutor(launcher=given).get_launcher() == expected


def test_launcher_may_be_changed_after_it_was_asked_for() -> None:
    executor = run.LocalExecutor()
    executor.get_launcher()
    executor.launcher = "torchrun"
    assert executor.get_launcher() == run.Torchrun()


@pytest.mark.parametrize("given", ["torchrunn", 3])
def test_unknown_launcher_is_refused_with_those_there_are(given: Any) -> None:
    with pytest.raises(ConfigError, match="ft, slurm_ray, slurm_template, torchrun"):
        run.LocalExecutor(launcher=given).get_launcher()


def test_profiling_prefix(tmp_path: Path) -> None:
    plain = run.LocalExecutor(job_dir=str(tmp_path))
    assert plain.get_launcher_prefix() is None
    profiled = run.LocalExecutor(
        job_dir=str(tmp_path), launcher=run.Torchrun(nsys_profile=True, nsys_filename="p", nsys_extra_args=["--x"])
    )
    output = f"{tmp_path}/nsys_profile/p"
    assert profiled.get_launcher_prefix() == ["profile", "-s", "none", "-t", "nvtx,cuda", "-o", output, "--x"]
    assert (tmp_path / "nsys_profile").is_dir()


def test_configs_are_for_this_user_only(tmp_path: Path) -> None:
    """They can hold env values, tokens among them."""
    old = tmp_path / "configs" / "b.yaml"
    old.parent.mkdir()
    old.write_text("older and longer")
    old.chmod(0o644)
    paths = run.LocalExecutor(job_dir=str(tmp_path)).package_configs(("a/c", "é\r\n"), ("b.yaml", ""))
    assert paths == [str(tmp_path / "configs/a/c"), str(old)]
    assert [Path(path).read_bytes() for path in paths] == ["é\r\n".encode(), b""]
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in paths] == [0o600, 0o600]


def test_macros_replace_their_own_names_and_nothing_else() -> None:
    macros = run.ExecutorMacros(
        head_node_ip_var="HEAD",
        nproc_per_node_var="NPROC",
        num_nodes_var="NODES",
        node_rank_var="RANK",
        het_group_host_var="GROUP",
    )
    text = f"{macros.HEAD_NODE_IP_VAR}:{macros.group_host(1)} $$ $HOME ${{HOME}} $node_rank_var $"
    assert macros.substitute(text) == "HEAD:$GROUP_1 $$ $HOME ${HOME} $node_rank_var $"
    role = SimpleNamespace(args=[macros.NODE_RANK_VAR], env={"A": macros.NUM_NODES_VAR})
    changed = macros.apply(role)
    assert (changed.args, changed.env, role.args) == (["RANK"], {"A": "NODES"}, ["${node_rank_var}"])


def test_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert base.current_user() == f"uid-{os.getuid()}"


EXECUTORS = """
import nemo_run as run
small = run.LocalExecutor(ntasks_per_node=1)
def big(n=8): return run.LocalExecutor(ntasks_per_node=n)
EXECUTOR_MAP = {"mapped": run.LocalExecutor(ntasks_per_node=3)}
"""


@pytest.fixture
def executors_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "executors.py"
    file.write_text(EXECUTORS)
    monkeypatch.setattr("nemo_run.config._NEMORUN_HOME", str(tmp_path))
    return file


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [("small", {}, 1), ("big", {}, 8), ("big", {"n": 2}, 2), ("mapped", {}, 3)],
)
def test_executor_from_the_home(executors_file: Path, name: str, arguments: Any, expected: int) -> None:
    executor: Any = run.import_executor(name, **arguments)
    assert executor.ntasks_per_node == expected


def test_function_is_given_when_it_shall_not_be_called(executors_file: Path) -> None:
    made: Any = run.import_executor("big", str(executors_file), call=False)
    assert made(n=4).ntasks_per_node == 4


def test_unknown_executor_is_refused_with_those_there_are(executors_file: Path) -> None:
    with pytest.raises(ConfigError, match="it has big, mapped, run, small"):
        run.import_executor("bug")


def test_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.py"):
        run.import_executor("x", str(tmp_path / "none.py"))


def test_base_executor_leaves_the_rest_to_subclasses(tmp_path: Path) -> None:
    executor = run.Executor(job_dir=str(tmp_path / "a" / "b"))
    for act in (executor.nnodes, executor.nproc_per_node, lambda: executor.assign("e", "/e", "t", "t")):
        with pytest.raises(NotImplementedError):
            act()
    executor.create_job_dir()
    executor.cleanup("handle")
    assert (tmp_path / "a" / "b").is_dir()
    facts = (executor.info(), executor.macro_values(), executor.supports_launcher_transform())
    assert (*facts, executor.get_nsys_entrypoint()) == ("Executor", None, False, ("nsys", ""))


def test_local_executor_tells_torchrun_its_size() -> None:
    executor = run.LocalExecutor(nodes=2, ntasks_per_node=4)
    assert (executor.nnodes(), executor.nproc_per_node()) == (2, 4)
