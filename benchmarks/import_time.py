"""
What starting costs: ``import nemo_run``, and the first KubeflowExecutor with its manifest.

    python benchmarks/import_time.py [--upstream PYTHON] [--runs 7]

Each figure is the median of fresh processes; PYTHON is one that has NVIDIA's
NeMo-Run installed, with the kubernetes package.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

NOTHING = 0.001
"""Seconds that say nothing but that the clock works."""

EMPTY = ""
IMPORT = "import nemo_run"
MANIFEST = """
import nemo_run as run
from nemo_run.core.execution.kubeflow import KubeflowExecutor
volume = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}
mount = {"name": "work", "mountPath": "/work"}
executor = KubeflowExecutor(image="i", num_nodes=2, gpus_per_node=8, volumes=[volume], volume_mounts=[mount])
executor.assign("e_1", "/tmp", "task", "task")
body = executor.get_job_body("train", ["/bin/bash", "x.sh"])
"""
MEASURE = """
import json, resource, sys, time
start = time.perf_counter()
{code}
seconds = time.perf_counter() - start
unit = 1 if sys.platform == "darwin" else 1024
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
print(json.dumps([seconds, peak / 1e6]))
"""


def measure(python: str, code: str, runs: int, env: dict[str, str]) -> tuple[float, float] | str:
    """Give the median seconds and megabytes of *runs* processes, or why there are none."""
    found = []
    for _ in range(runs + 1):
        command = [python, "-c", MEASURE.format(code=code)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tempfile.gettempdir(), check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["failed"])[-1]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    seconds, megabytes = zip(*found[1:], strict=True)  # the first one fills the file cache
    return statistics.median(seconds), statistics.median(megabytes)


def kubeconfig(folder: Path) -> Path:
    """Write a kubeconfig for a cluster that is not there: upstream cannot build an executor without one."""
    file = folder / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "none"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return file


def row(label: str, ours: tuple[float, float] | str, theirs: tuple[float, float] | str | None) -> str:
    if isinstance(ours, str):
        return f"{label:<34}  {ours}"
    text = f"{label:<34}  {ours[0]:7.3f} s {ours[1]:6.1f} MB"
    if isinstance(theirs, tuple):
        text += f"  {theirs[0]:7.3f} s {theirs[1]:6.1f} MB"
        if ours[0] > NOTHING:
            text += f"  {theirs[0] / ours[0]:5.1f} x {theirs[1] / ours[1]:5.1f} x"
    return text if not isinstance(theirs, str) else f"{text}  {theirs}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", metavar="PYTHON", help="a Python that has NVIDIA's NeMo-Run")
    parser.add_argument("--runs", type=int, default=7, help="processes for each figure (default 7)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = {**os.environ, "HOME": folder, "KUBECONFIG": str(kubeconfig(Path(folder))), "NEMORUN_HOME": folder}
        ours = {**home, "PYTHONPATH": str(ROOT)}
        print(f"{'median of ' + str(options.runs):<34}  {'this package':>19}", end="")
        print(f"  {'upstream':>19}  {'ratios':>15}" if options.upstream else "")
        for label, code in (
            ("python alone", EMPTY),
            ("import nemo_run", IMPORT),
            ("first KubeflowExecutor + manifest", MANIFEST),
        ):
            theirs = measure(options.upstream, code, options.runs, home) if options.upstream else None
            print(row(label, measure(sys.executable, code, options.runs, ours), theirs), flush=True)


if __name__ == "__main__":
    main()
