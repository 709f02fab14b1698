"""Which files a command names that nobody packed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemo_run.core.execution._unsent import unsent

SENT = {"launch.sh", "scripts", "scripts/s.sh", "code", "code/src", "code/src/train.py", "code/eval.py", "tool.sh"}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "conf.yaml").touch()
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "tool.sh").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("command", "path", "near"),
    [
        (["python", "train.py"], "train.py", "src/train.py"),
        (["python", "src/trian.py"], "src/trian.py", "src/train.py"),
        (["torchrun", "--nnodes=2", "evla.py"], "evla.py", "eval.py"),
        (["./run.sh"], "./run.sh", None),
        (["bash", "../tool2.sh"], "../tool2.sh", None),
        (["python", "eval.py", "--config", "conf.yaml"], "conf.yaml", None),
        (["python", "eval.py", "--config=conf.yaml"], "conf.yaml", None),
        (["python", "wholly_different.py", "wholly_different.py"], "wholly_different.py", None),
    ],
)
def test_one_that_is_missing_is_told_with_what_may_have_been_meant(here, command, path, near):
    hint = f"; did you mean {near!r}?" if near else ""
    (said,) = unsent(command, SENT, here=here, local="local")
    assert said == f"{path!r} is not among the files that the packager packed{hint}"


@pytest.mark.parametrize(
    "command",
    [
        ["python", "eval.py", "./src/train.py", "src/../eval.py"],
        ["bash", "../scripts/s.sh", "../tool.sh"],
        ["bash", "local/tool.sh"],
        ["python", "/opt/other.py", "$HOME/x.py", "--output=new.py", "-m", "pkg.mod"],
        ["bash", "-c", "python other.py"],
        ["python", "-c", "import other.py"],
        ["", ".", "..", "a" * 300 + ".py"],
    ],
)
def test_others_are_not(here, command):
    assert list(unsent(command, SENT, here=here, local="local/")) == []


def test_where_nothing_was_packed_the_image_may_have_it(here):
    assert list(unsent(["python", "train.py"], {"launch.sh", "code"}, here=here)) == []
