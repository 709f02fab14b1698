"""The stand-ins for ``ray``: what they make of command lines, and how a node runs jobs."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rays import PREFACE

from nemo_run.testing import _ray_bridge, _ray_job, _ray_node


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("2.43.0", 'python "a b.py" --x=$Y "" \\"'),
        ("2.60.0", "python 'a b.py' '--x=$Y' '' '\"'"),
        ("2.100.1", "python 'a b.py' '--x=$Y' '' '\"'"),
        ("", "python 'a b.py' '--x=$Y' '' '\"'"),
        ("nightly", "python 'a b.py' '--x=$Y' '' '\"'"),
    ],
)
def test_words_become_one_text(version, text):
    assert _ray_job.joined(["python", "a b.py", "--x=$Y", "", '"'], version) == text


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Head:
    """A head on ports of its own."""

    def __init__(self, directory: Path) -> None:
        self.ports = free_ports(5)
        names = (
            "port",
            "dashboard-port",
            "ray-client-server-port",
            "dashboard-agent-listen-port",
            "metrics-export-port",
        )
        flags = [f"--{name}={port}" for name, port in zip(names, self.ports, strict=True)]
        command = [
            sys.executable,
            "-I",
            _ray_node.__file__,
            "start",
            "--head",
            "--block",
            "--num-cpus=1",
            f"--temp-dir={directory}",
            *flags,
        ]
        env = {**os.environ, "LOCAL_KUBE_RAY_VERSION": "2.60.0"}
        self.process = subprocess.Popen(command, cwd=directory, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()

    def job(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", _ray_job.__file__, words[0], "--address", f"http://127.0.0.1:{self.ports[1]}"]
        return subprocess.run(
            [*command, *words[1:]],
            env={**os.environ, "LOCAL_KUBE_RAY_VERSION": "2.60.0"},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def output(self, job: str) -> str:
        """Give what the job itself has written."""
        match = re.fullmatch(f"{PREFACE}(.*)", self.job("logs", job).stdout, re.DOTALL)
        assert match is not None
        return match[1]

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    head = Head(tmp_path)
    try:
        yield head
    finally:
        head.end()


def test_a_node_says_that_it_is_healthy(head):
    assert head.said == f"ray stand-in: head, dashboard on port {head.ports[1]}\n"
    for port in (head.ports[1], head.ports[3]):
        with closing(socket.create_connection(("127.0.0.1", port))) as connection:
            connection.sendall(b"GET /api/local_raylet_healthz HTTP/1.0\r\n\r\n")
            assert connection.makefile("rb").read().endswith(b"success")
    assert _ray_node.main(["health-check", "--address", f"127.0.0.1:{head.ports[0]}"]) == 0


def test_a_job_is_submitted_and_followed(head, tmp_path):
    done = head.job("submit", "--submission-id", "one", "--", "bash", "-c", "pwd; exit 3")
    assert done.returncode == 1
    assert f"\n{tmp_path}\n" in done.stdout
    assert "Job 'one' failed" in done.stdout
    assert head.output("one") == f"{tmp_path}\n"
    assert "\nRunning entrypoint for job one: bash -c 'pwd; exit 3'\n" in head.job("logs", "one").stdout
    (job,) = json.loads(head.job("list").stdout)
    assert (job["entrypoint"], job["status"], job["driver_exit_code"]) == ("bash -c 'pwd; exit 3'", "FAILED", 3)


def test_an_id_is_used_once(head):
    assert head.job("submit", "--submission-id", "one", "--no-wait", "--", "true").returncode == 0
    again = head.job("submit", "--submission-id", "one", "--no-wait", "--", "true")
    assert (again.returncode, "already exists" in again.stderr) == (1, True)


def test_a_job_that_does_not_listen_is_killed(head):
    head.job("submit", "--submission-id", "one", "--no-wait", "--", "bash", "-c", "trap '' TERM; sleep 60")
    started = time.monotonic()
    assert head.job("stop", "one").returncode == 0
    assert time.monotonic() - started < 30
    assert "was stopped" in head.job("status", "one").stdout


def test_a_runtime_environment_is_the_jobs_own(head, tmp_path):
    (tmp_path / "below").mkdir()
    runtime = {"env_vars": {"A": "${HOME}/x", "B": 1}, "working_dir": str(tmp_path / "below")}
    words = ("--submission-id", "one", "--runtime-env-json", json.dumps(runtime))
    head.job("submit", *words, "--", "bash", "-c", "echo $A $B; pwd")
    assert head.output("one") == f"{os.environ['HOME']}/x 1\n{tmp_path / 'below'}\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("status", "none"), "Job none does not exist"),
        (("submit", "--"), "Missing argument"),
        (("submit", "--working-dir", "/nowhere", "--", "true"), "must be an existing directory"),
    ],
    ids=["unknown", "no entrypoint", "no directory"],
)
def test_what_cannot_be_done_is_told(head, words, text):
    done = head.job(*words)
    assert (done.returncode, text in done.stderr) == (1, True)


def test_a_worker_ends_without_its_head(head):
    address = f"127.0.0.1:{head.ports[0]}"
    head.end()
    _ray_node.watch(address, patience=0.1)


def test_the_bridge_tells_of_jobs_and_carries_out_requests(head):
    command = [sys.executable, "-I", _ray_bridge.__file__, str(head.ports[1])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bridge:
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        assert json.loads(bridge.stdout.readline()) == []
        request = {"path": "/api/jobs/", "body": {"submission_id": "one", "entrypoint": "echo hello"}}
        bridge.stdin.write(json.dumps(request) + "\n")
        bridge.stdin.flush()
        seen = ""
        while seen != "SUCCEEDED":
            (job,) = json.loads(bridge.stdout.readline())
            seen = job["status"]
        head.end()
        assert json.loads(bridge.stdout.readline()) is None
        bridge.stdin.close()
        assert bridge.wait(60) == 0
