"""
Many jobs on one namespace, on a LocalKube of this machine: what they cost, and that none disturbs another.

    python benchmarks/many_jobs.py [--jobs 50] [--processes 4] [--each 5] [--running 200]

One process launches an experiment of --jobs tasks; --processes more launch one of --each tasks, all at
once, with code on one claim and one NEMORUN_HOME. Afterwards each task's record, log and code directory
are looked at. Then the status of an experiment of --running tasks is asked for; those have no pods.
Requests are those that LocalKube answered, by what they are for; memory is that of the clients alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nemo_run._kube.resources import POD
from nemo_run.testing import LocalKube, Request

UNIT = 1 if sys.platform == "darwin" else 1024

LAUNCH = """
import json, sys
import nemo_run as run

title, count, suspended = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
volumes = [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}]
where = {} if suspended else {"volumes": volumes, "workdir_volume_mount": {"name": "work", "mountPath": "/nemo_run"}}
executor = run.KubeflowExecutor(image="python:3.12", spec_kwargs={"suspend": True} if suspended else {}, **where)
with run.Experiment(title, executor=executor, skip_status_at_exit=True) as exp:
    for number in range(count):
        exp.add(run.Script(inline=f"echo I am {title}{number}"), name=f"{title}{number}")
    exp.run(detach=suspended)
print()
print(json.dumps({job.id: str(job.state) for job in exp.jobs}))
"""


@dataclass(frozen=True)
class Found:
    """What became of the tasks of some clients."""

    seconds: float
    requests: Counter[str]
    megabytes: float
    states: dict[str, str]
    wrong: list[str]
    """What is not as it should be."""


def launch(kube: LocalKube, home: Path, counts: dict[str, int]) -> Found:
    """Launch experiments of so many tasks by title, each in a process of its own, all at once."""
    before, began = len(kube.requests), time.monotonic()
    env = {**os.environ, "NEMORUN_HOME": str(home), "NEMO_RUN_LOCAL_KUBE": str(kube.kubeconfig)}
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", LAUNCH, title, str(count)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for title, count in counts.items()
    ]
    wrong, states = [], {}
    for client in clients:
        out, err = client.communicate()
        if client.returncode or err:
            wrong.append(f"exit code {client.returncode}: {err.decode()[-500:]}")
        else:
            states.update(json.loads(out.splitlines()[-1]))
    seconds = time.monotonic() - began
    asked = Counter(kind(request) for request in kube.requests[before:])
    megabytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * UNIT / 1e6
    return Found(seconds, asked, megabytes, states, wrong + disturbed(kube, home, counts, states))


def kind(request: Request) -> str:
    """Say what a request is for, without the names in it."""
    plurals = ("pods", "trainjobs", "events", "jobsets")
    parts = request.path.split("/")
    where = next((index for index, part in enumerate(parts) if part in plurals), None)
    if where is None:
        return f"{request.method} {parts[-1]}"
    one = len(parts) > where + 1
    return " ".join([request.method, parts[where] + ("/*" if one else ""), *parts[where + 2 :]])


def disturbed(kube: LocalKube, home: Path, counts: dict[str, int], states: dict[str, str]) -> Iterable[str]:
    """Say which tasks are not as each would be alone."""
    names = {f"{title}{number}": title for title, count in counts.items() for number in range(count)}
    records = json.loads((home / ".kubeflow_jobs.json").read_text())
    wrong = [f"{name}: {states.get(name)}" for name in names if states.get(name) != "SUCCEEDED"]
    if sorted(record["task"] for record in records.values()) != sorted(names):
        wrong.append(f"{len(records)} records for {len(names)} tasks")
    for name, title in names.items():
        (log,) = home.glob(f"experiments/{title}/*/{name}/log-allranks_0.out")
        lines = [line.partition("] ")[2] for line in log.read_text().splitlines()]
        if lines != [f"I am {name}"]:
            wrong.append(f"{name} has written {lines}")
        scripts = list(kube.claim("shared").glob(f"*/*/{name}/code/launch.sh"))
        if len(scripts) != 1 or name not in scripts[0].read_text():
            wrong.append(f"{name} has {len(scripts)} code directories")
    left = [pod["metadata"]["name"] for pod in kube.do(lambda store: store.list(POD, "default"))]
    wrong += [f"pod {name} is left" for name in left if "data-mover" in name]
    wrong += [f"{path} is left" for path in home.rglob("*.tmp")]
    return wrong


def round_of_status(kube: LocalKube, home: Path, count: int) -> tuple[float, Counter[str]]:
    """Give the seconds and the requests that the status of one experiment of *count* unfinished tasks takes."""
    env = {**os.environ, "NEMORUN_HOME": str(home), "NEMO_RUN_LOCAL_KUBE": str(kube.kubeconfig)}
    subprocess.run(
        [sys.executable, "-c", LAUNCH, "long", str(count), "suspended"], env=env, check=True, capture_output=True
    )
    before = len(kube.requests)
    ask = (
        "import time, nemo_run as run\n"
        "exp = run.Experiment.from_title('long'); exp.status(return_dict=True); began = time.monotonic()\n"
        "facts = exp.status(return_dict=True)\n"
        f"assert len(facts) == {count}; print(time.monotonic() - began)"
    )
    done = subprocess.run([sys.executable, "-c", ask], env=env, check=True, capture_output=True, text=True)
    asked = Counter(kind(request) for request in kube.requests[before:])
    return float(done.stdout), asked


def table(asked: Counter[str]) -> str:
    return "\n".join(f"{number:>8}  {what}" for what, number in asked.most_common())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--running", type=int, default=200)
    options = parser.parse_args()
    counts = {"many": options.jobs, **{f"p{number}": options.each for number in range(options.processes)}}
    with tempfile.TemporaryDirectory() as folder, LocalKube(images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        found = launch(kube, Path(folder, "home"), counts)
        print(f"{sum(counts.values())} tasks, {len(counts)} processes: {found.seconds:.1f} s,", end=" ")
        print(f"largest client {found.megabytes:.0f} MB, {found.requests.total()} requests")
        print(table(found.requests))
        print("\n".join(found.wrong) or "all succeeded; none lost, mixed or left over")
        if options.running:
            seconds, asked = round_of_status(kube, Path(folder, "other"), options.running)
            print(f"status of {options.running} unfinished tasks: {seconds:.2f} s a round; two rounds ask for")
            print(table(asked))
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
