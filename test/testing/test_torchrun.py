"""The stand-in for torchrun: flags, PET_* variables, environment of the processes, prefixes, ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from children import PATIENCE

from nemo_run.testing import _torchrun

SHOW = "import json, os; os.write(1, (json.dumps({k: os.environ.get(k) for k in %r}) + chr(10)).encode())"
NAMES = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"),
)


def torchrun(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    return subprocess.run(
        [sys.executable, _torchrun.__file__, *arguments],
        env={**clean, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def shown(*arguments: str, **env: str) -> list[dict[str, str]]:
    """Give the environment that each process reports."""
    done = torchrun(*arguments, "--no-python", sys.executable, "-c", SHOW % (NAMES,), **env)
    assert done.returncode == 0, done.stderr
    return sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda each: int(each["RANK"]))


FLAGS = ("--nnodes", "2", "--nproc-per-node", "2", "--node-rank", "1", "--master-addr", "m", "--master-port", "7")
PET = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "2",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "m",
    "PET_MASTER_PORT": "7",
}


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (FLAGS, {}),
        (tuple(flag.replace("-", "_").replace("__", "--", 1) if flag.startswith("--") else flag for flag in FLAGS), {}),
        ((), PET),
        (FLAGS, {**PET, "PET_NNODES": "9", "PET_NODE_RANK": "5"}),
    ],
    ids=["dashes", "underscores", "PET", "flags over PET"],
)
def test_ranks_follow_from_flags_and_variables(arguments, env):
    assert shown("--rdzv-id", "run", *arguments, **env) == [
        {
            "RANK": str(2 + local),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": "4",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": "1",
            "MASTER_ADDR": "m",
            "MASTER_PORT": "7",
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_RUN_ID": "run",
        }
        for local in (0, 1)
    ]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("--rdzv-backend", "c10d", "--rdzv-endpoint", "host:29500"), ("host", "29501")),
        (("--rdzv-backend=static", "--rdzv-endpoint", "host:29500"), ("host", "29500")),
        (("--standalone",), ("127.0.0.1", "29500")),
    ],
    ids=["c10d", "static", "standalone"],
)
def test_the_place_to_meet(arguments, place):
    (one,) = shown(*arguments)
    assert (one["MASTER_ADDR"], one["MASTER_PORT"]) == place


@pytest.mark.parametrize(
    ("text", "devices", "number"),
    [
        ("3", None, 3),
        ("gpu", "0,1", 2),
        ("auto", "0,1,2", 3),
        ("auto", None, os.cpu_count()),
        ("cpu", "0", os.cpu_count()),
    ],
)
def test_the_number_of_processes_can_be_left_open(monkeypatch, text, devices, number):
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    if devices is not None:
        monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", devices)
    assert _torchrun.processes(text) == number


def test_gpus_that_are_not_there_are_refused():
    done = torchrun("--nproc-per-node", "gpu", "x.py", NVIDIA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stderr) == (1, "torchrun: unsupported nproc_per_node value: gpu\n")


SPEAK = "import os, sys; r = os.environ['RANK']; print('out', r); print('err', r, file=sys.stderr)"


def test_lines_carry_their_rank(tmp_path):
    script = tmp_path / "speak.py"
    script.write_text(SPEAK)
    done = torchrun("--nproc-per-node=2", "--tee", "3", "--role", "trainer", str(script))
    assert sorted(done.stdout.splitlines()) == ["[trainer0]:out 0", "[trainer1]:out 1"]
    assert sorted(done.stderr.splitlines()) == ["[trainer0]:err 0", "[trainer1]:err 1"]


def test_without_tee_lines_are_as_they_were(tmp_path):
    script = tmp_path / "speak.py"
    script.write_text(SPEAK)
    assert torchrun(str(script)).stdout == "out 0\n"


def test_logs_go_to_the_log_directory(tmp_path):
    script = tmp_path / "speak.py"
    script.write_text(SPEAK)
    done = torchrun("-t", "3", "-r", "3", "--log-dir", str(tmp_path / "logs"), "--rdzv-id", "run", str(script))
    assert done.returncode == 0
    logs = tmp_path / "logs" / "run" / "attempt_0" / "0"
    assert [(path.name, path.read_text()) for path in sorted(logs.iterdir())] == [
        ("stderr.log", "err 0\n"),
        ("stdout.log", "out 0\n"),
    ]


def test_modules_run_as_modules_with_their_arguments():
    done = torchrun("-m", "json.tool", "--help")
    assert (done.returncode, done.stdout.startswith("usage: python")) == (0, True)


def test_one_that_fails_ends_the_others(tmp_path):
    script = tmp_path / "fail.py"
    script.write_text("import os, sys, time\nsys.exit(7) if os.environ['RANK'] == '1' else time.sleep(600)")
    done = torchrun("--nproc-per-node", "2", str(script))
    assert done.returncode == 1
    assert f"{script} failed: local_rank 1, exitcode 7" in done.stderr


def test_restarts_count(tmp_path):
    script = tmp_path / "again.py"
    script.write_text("import os, sys\nsys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT']) < 2)")
    assert torchrun("--max-restarts", "2", str(script)).returncode == 0
    assert torchrun("--max-restarts", "1", str(script)).returncode == 1


def test_term_ends_the_processes(start_child, tmp_path: Path):
    script = tmp_path / "wait.py"
    script.write_text("import time; print('up', flush=True); time.sleep(600)")
    running = start_child(sys.executable, _torchrun.__file__, str(script), stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == "up\n"
    running.send_signal(signal.SIGTERM)
    assert running.stdout.read() == ""
    assert running.wait(PATIENCE) == 143
