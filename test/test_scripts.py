"""Scripts, and the argument vectors they give."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import nemo_run as run
from nemo_run.exceptions import ConfigError

AWKWARD = ["a b", "it's", '"q"', "$X", "$$", "$(X)", "`id`", "line1\nline2", "é", "", "*", "--flag=[]", "{}"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (run.Script("a/train.sh"), ["bash", "a/train.sh"]),
        (run.Script("t.py", args=AWKWARD, entrypoint="python"), ["python", "t.py", *AWKWARD]),
        (run.Script("pkg.mod", m=True, entrypoint="python3", args=["x"]), ["python3", "-m", "pkg.mod", "x"]),
        (run.Script(inline='echo "a b"'), ["bash", "-c", 'echo "a b"']),
        (run.Script("a.sh", args=[1, 0.5]), ["bash", "a.sh", "1", "0.5"]),  # type: ignore[list-item]
    ],
    ids=["path", "args", "module", "inline", "numbers"],
)
def test_command(script: run.Script, expected: list[str]) -> None:
    assert script.to_command(with_entrypoint=True) == expected
    assert script.to_command() == expected[1:]


def test_command_gives_a_new_list() -> None:
    script = run.Script("a.sh", args=["1"])
    script.to_command().append("2")
    assert script.args == ["1"]


def test_inline_text_is_written_as_it_is(tmp_path: Path) -> None:
    text = "\nprintf '%s' \"é $1\"\r\n"
    file = tmp_path / "scripts" / "task.sh"
    script = run.Script(inline=text)
    assert script.to_command(True, filename=str(file)) == ["bash", "/nemo_run/scripts/task.sh"]
    assert script.to_command(True, filename=str(file), is_local=True) == ["bash", str(file)]
    assert file.read_bytes() == b"#!/usr/bin/bash\n" + text.encode()
    assert file.stat().st_mode & 0o777 == 0o755


def test_written_script_runs(tmp_path: Path) -> None:
    file = tmp_path / "task.sh"
    command = run.Script(inline='echo "$0"').to_command(True, filename=str(file), is_local=True)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{file}\n"


def test_rundir_is_replaced_in_inline_text(tmp_path: Path) -> None:
    file = tmp_path / "t.sh"
    run.Script(inline="cat /nemo_run/x").to_command(filename=str(file), substitute_rundir_path="/lustre/job")
    assert file.read_text().endswith("cat /lustre/job/x")


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (run.Script("a/train.sh"), "train.sh"),
        (run.Script(inline="  echo 'hello world'"), "echo_hell"),
    ],
)
def test_name(script: run.Script, name: str) -> None:
    assert script.get_name() == name


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [({}, "path"), ({"path": "x", "entrypoint": ""}, "entrypoint"), ({"path": "x", "m": True}, "entrypoint")],
)
def test_incomplete_script_is_refused(arguments: dict[str, Any], argument: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run.Script(**arguments)
    assert caught.value.argument == argument
