"""
What an experiment of many tasks costs: added, run and reported, each task being ``true`` on this machine.

    python benchmarks/experiment.py [--upstream PYTHON] [--tasks 20 100 200]

PYTHON is one that has NVIDIA's NeMo-Run installed. Each figure is one fresh
process with a home of its own; "report" is ``Experiment.from_title(…).status()``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PHASES = ("import", "add", "run", "report")
LIMIT = 600
"""Seconds after which a process is given up."""

MEASURE = """
import json, resource, sys, time
marks = [time.perf_counter()]
import nemo_run as run
run.Experiment, run.LocalExecutor, run.Script

def main(count):
    marks.append(time.perf_counter())
    with run.Experiment("many", executor=run.LocalExecutor(), clean_mode=True, skip_status_at_exit=True) as exp:
        for number in range(count):
            exp.add(run.Script(inline="true"), name=f"task{number}")
        marks.append(time.perf_counter())
        exp.run()
    marks.append(time.perf_counter())
    states = [str(facts["status"]) for facts in run.Experiment.from_title("many").status(return_dict=True).values()]
    marks.append(time.perf_counter())
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "seconds": [after - before for before, after in zip(marks, marks[1:])],
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6,
        "succeeded": states.count("SUCCEEDED"),
    }

if __name__ == "__main__":
    found = main(int(sys.argv[1]))
    print("\\n" + json.dumps(found))
"""


def measure(python: str, count: int, env: dict[str, str]) -> dict[str, object] | str:
    """Give seconds, megabytes and successes of one process, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "many.py")
        script.write_text(MEASURE)
        env = {**env, "NEMORUN_HOME": str(Path(folder, "home"))}
        command = [python, str(script), str(count)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=env, cwd=folder, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return f"not done after {LIMIT} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def row(label: str, count: int, found: dict[str, object] | str) -> str:
    """Give one line of the table."""
    head = f"{label:<10} {count:>6}"
    if isinstance(found, str):
        return f"{head}  {found}"
    seconds = [float(each) for each in found["seconds"]]  # type: ignore[attr-defined]
    parts = "".join(f"{each:>9.2f} s" for each in (*seconds, sum(seconds)))
    return f"{head}{parts}{found['megabytes']:>9.1f} MB   {found['succeeded']} of {count} succeeded"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", metavar="PYTHON")
    parser.add_argument("--tasks", type=int, nargs="+", default=[20, 100, 200])
    options = parser.parse_args()
    pythons = {"ours": sys.executable, **({"upstream": options.upstream} if options.upstream else {})}
    print(f"{'':<10} {'tasks':>6}" + "".join(f"{phase:>11}" for phase in (*PHASES, "in all")) + f"{'peak':>12}")
    for count in options.tasks:
        for label, python in pythons.items():
            env = {**os.environ, "PYTHONPATH": str(ROOT) if label == "ours" else ""}
            print(row(label, count, measure(python, count, env)), flush=True)


if __name__ == "__main__":
    main()
