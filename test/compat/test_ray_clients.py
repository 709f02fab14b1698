"""Programs with the call shapes of known launchers of Ray jobs, run end to end as their users run them."""

from __future__ import annotations

import getpass
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import PATIENCE

from nemo_run._kube.resources import RAYJOB
from nemo_run.testing import LocalKube

PROGRAM = [sys.executable, str(Path(__file__).parent / "clients" / "evaluation" / "launch.py")]


@pytest.fixture
def kube() -> Iterator[LocalKube]:
    with LocalKube(kuberay="1.7", claims=["workspace"]) as kube:
        yield kube


def rayjobs(kube: LocalKube) -> list[str]:
    return [job["metadata"]["name"] for job in kube.do(lambda store: store.list(RAYJOB, "default"))]


def test_an_evaluation_runs_and_its_results_are_on_the_volume(kube, tmp_path):
    done = subprocess.run(
        [*PROGRAM, "--nodes", "2"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1].removeprefix("REPORT "))
    user = getpass.getuser()
    assert report["name"] == f"{user}-evaluate-llama-3-rayjob"
    assert (report["jobStatus"], report["jobDeploymentStatus"]) == ("SUCCEEDED", "Complete")
    assert "evaluating mmlu for eval user" in done.stdout
    results = (kube.claim("workspace") / "results" / "results.yml").read_text()
    assert results == "task: mmlu\nscore: 0.5\ntoken: False\n"
    assert rayjobs(kube) == []


def test_an_evaluation_that_fails_is_seen_to_fail(kube, tmp_path):
    done = subprocess.run(
        [*PROGRAM, "--exit-code", "3"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    said = done.stdout + done.stderr
    assert "exit code 3" in said
    assert done.returncode != 0 or '"jobDeploymentStatus": "Failed"' in done.stdout


def test_sigterm_stops_the_evaluation(kube, start_child, tmp_path):
    running = start_child(*PROGRAM, "--seconds", "600", cwd=tmp_path, stdout=subprocess.PIPE)
    assert running.stdout is not None
    for line in running.stdout:
        if line.startswith("RUNNING"):
            break
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE) == 0
    assert rayjobs(kube) == []
