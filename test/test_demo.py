"""The demo is what the README shows first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from nemo_run._kube.resources import POD, RAYCLUSTER, RAYJOB
from nemo_run.testing import LocalKube

ROOT = Path(__file__).resolve().parents[1]


def run(tmp_path, *command):
    """Run a step of the demo, and give what it prints, which has to be fit for a CI log."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "NEMORUN_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert done.stdout.endswith("demo: success\n")
    return done.stdout


def test_every_example_is_a_step_of_the_demo():
    steps = [
        line.split()[-1] for line in (ROOT / "scripts/demo").read_text().splitlines() if "nemo_run.testing" in line
    ]
    assert sorted(steps) == sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/examples/*/launch.py"))


def test_a_training_job_succeeds(tmp_path):
    printed = run(tmp_path, "-m", "nemo_run.testing", "docs/examples/two_nodes/launch.py")
    assert "iteration 5/5" in printed
    assert 'Experiment.from_id("demo_' in printed


def test_a_ray_job_runs_the_code_that_was_copied_and_leaves_nothing(tmp_path):
    with LocalKube(kuberay="1.7") as kube:
        printed = run(tmp_path, "docs/examples/ray_job/launch.py")
        left = [obj for kind in (RAYJOB, RAYCLUSTER, POD) for obj in kube.do(lambda store, kind=kind: store.list(kind))]
    seen = ["sent ", "Initializing", "squares.py", "5 squared is 25", "SUCCEEDED, Complete", "pods are gone"]
    places = [printed.find(text) for text in seen]
    assert places == sorted(places)
    assert -1 not in places
    assert left == []
