"""The demo is what the README shows first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_demo_succeeds_and_its_output_is_fit_for_a_ci_log(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "nemo_run.testing", "docs/examples/two_nodes/launch.py"],
        cwd=ROOT,
        env={**os.environ, "NEMORUN_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("demo: success\n")
    assert "iteration 5/5" in done.stdout
    assert 'Experiment.from_id("demo_' in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
