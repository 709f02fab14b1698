"""Launchers that make another command."""

from __future__ import annotations

from pathlib import Path

import pytest

import nemo_run as run
from nemo_run.core.execution.launcher import Launcher
from nemo_run.exceptions import ConfigError


def test_launchers_leave_the_command_alone() -> None:
    assert [kind().transform(["a"]) for kind in (Launcher, run.Torchrun, run.FaultTolerance)] == [None, None, None]


def test_template_keeps_shell_text(tmp_path: Path) -> None:
    text = 'set -e && export A="{{ a }}"\n{{ command }} <in >out'
    file = tmp_path / "t.j2"
    file.write_text(text)
    expected = run.Script(inline='set -e && export A="<b>"\npython x.py --y <in >out')
    command = ["python", "x.py", "--y"]
    assert run.SlurmTemplate(template_inline=text, template_vars={"a": "<b>"}).transform(command) == expected
    assert run.SlurmTemplate(template_path=str(file), template_vars={"a": "<b>"}).transform(command) == expected


def test_template_is_needed() -> None:
    with pytest.raises(ConfigError, match="template_inline"):
        run.SlurmTemplate()


def test_ray_on_slurm_is_refused_when_it_is_to_run() -> None:
    with pytest.raises(ConfigError, match="KubeRayExecutor"):
        run.SlurmRay().transform(["a"])
