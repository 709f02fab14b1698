"""
What following a job's output costs, on a LocalKube of this machine: ours, and kubectl's if it is there.

    python benchmarks/logs.py [--pods 2] [--lines 100000] [--runs 3] [--kubectl PATH]

Each pod writes --lines lines of some 100 bytes as fast as it can. They are read
twice: "live", by one who comes before the first line, and "afterwards", by one
who comes when all have been written. Ours writes them to a job's log file, as a
run does, in a process of its own; kubectl is one process for each pod (``logs -f
--timestamps``, what ours asks the server for too), its output to a file. Lost
and doubled lines are counted in the files. One line's latency is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.demux import LogLine, RankFilter
from nemo_run._kube.logs import LogFollower
from nemo_run._kube.resources import POD
from nemo_run._kube.tail import has_started
from nemo_run.core.execution._ranklog import ALL_RANKS, RankLog

INSIDE = "NEMO_RUN_LOCAL_KUBE"
CONTAINER = "node"
TEXT = "iteration %.0f | loss 1.234567E+00 | grad norm 0.123 | elapsed time per iteration (ms): 1234.5 | skipped 0"
UNIT = 1 if sys.platform == "darwin" else 1024


def start(api: KubeApi, job: str, pods: int, lines: int) -> list[str]:
    """Start *pods* that write *lines* each, and give their names."""
    names = [f"{job}-{index}" for index in range(pods)]
    for index, name in enumerate(names):
        metadata = {
            "name": name,
            "labels": {"job": job},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        }
        command = ["seq", "-f", TEXT, str(lines)]
        spec = {"restartPolicy": "Never", "containers": [{"name": CONTAINER, "image": "busybox", "command": command}]}
        api.create(POD, "default", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return names


def have_ended(api: KubeApi, job: str, pods: int) -> bool:
    """Tell whether all pods of *job* have ended."""
    found = api.list(POD, "default", labels=f"job={job}")
    return len(found) == pods and all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in found)


def wait_for(api: KubeApi, job: str, pods: int) -> None:
    while not have_ended(api, job, pods):
        time.sleep(0.2)


def follow(api: KubeApi, job: str, pods: int, job_dir: Path) -> None:
    """Write what the pods of *job* write to a log file, and choose what a user would be shown."""
    ranks = RankFilter(pods)
    with RankLog(job_dir, CONTAINER) as log:

        def write(line: LogLine) -> None:
            log.write(line)
            ranks.shows(line)

        LogFollower(
            api,
            "default",
            selector=f"job={job}",
            container=CONTAINER,
            write=write,
            on_state=lambda _: None,
            finished=lambda: have_ended(api, job, pods),
        ).run()


def child(job: str, pods: int, lines: int, scratch: str) -> None:
    """Follow a pod that says little, then *job*, started here unless it is there; print seconds and both peaks."""
    api = connect()
    start(api, f"{job}-idle", 1, 10)
    follow(api, f"{job}-idle", 1, Path(scratch, "idle"))
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT
    begun = time.perf_counter()
    if lines:
        start(api, job, pods, lines)
    follow(api, job, pods, Path(scratch))
    seconds = time.perf_counter() - begun
    print(json.dumps([seconds, idle, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT]))


def ours(api: KubeApi, job: str, pods: int, lines: int, scratch: Path, *, live: bool) -> tuple[float, float]:
    """Give the seconds that our reader takes, and by how many bytes its peak grew."""
    if not live:
        start(api, job, pods, lines)
        wait_for(api, job, pods)
    command = [sys.executable, __file__, "--child", json.dumps([job, pods, lines if live else 0, str(scratch)])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, idle, peak = json.loads(done.stdout)
    return seconds, peak - idle


def kubectls(
    kubectl: str, api: KubeApi, job: str, pods: int, lines: int, scratch: Path, *, live: bool
) -> tuple[float, float]:
    """Give the seconds that one kubectl a pod takes, and how many bytes they take together."""
    begun = time.perf_counter()
    names = start(api, job, pods, lines)
    if not live:
        wait_for(api, job, pods)
        begun = time.perf_counter()
    readers = []
    for name in names:
        while not has_started(api.get(POD, "default", name), CONTAINER):
            time.sleep(0.02)
        command = [kubectl, "--kubeconfig", os.environ[INSIDE], "logs", "-f", "--timestamps", name]
        with (scratch / name).open("wb") as out:
            readers.append(subprocess.Popen(command, stdout=out))
    memory = 0
    for reader in readers:
        _, status, usage = os.wait4(reader.pid, 0)
        if status:
            sys.exit(f"kubectl logs: exit code {os.waitstatus_to_exitcode(status)}")
        memory += usage.ru_maxrss * UNIT
    return time.perf_counter() - begun, memory


def lost_and_doubled(files: list[Path], pods: int, lines: int) -> tuple[int, int]:
    """Count what *files* lack of the lines, and what they have more than once or out of its place."""
    last: Counter[bytes] = Counter()
    found = doubled = 0
    for file in files:
        with file.open("rb") as log:
            for line in log:
                head, _, text = line.partition(b"iteration ")
                source = head if head.startswith(b"[pod/") else file.name.encode()
                number = int(text.split(b" ", 1)[0])
                if number > last[source]:
                    last[source] = number
                    found += 1
                else:
                    doubled += 1
    return pods * lines - found, doubled


def compare(api: KubeApi, options: argparse.Namespace, *, live: bool) -> None:
    """Print a row for each reader: medians of its runs, the worst of its faults."""
    pods, lines, when = options.pods, options.lines, "live" if live else "afterwards"
    for reader in ("ours", "kubectl") if options.kubectl else ("ours",):
        seconds, memory, faults = [], [], []
        for run in range(options.runs):
            job = f"{reader}-{when}-{run}"
            with tempfile.TemporaryDirectory() as folder:
                scratch = Path(folder)
                if reader == "ours":
                    took, bytes_ = ours(api, job, pods, lines, scratch, live=live)
                    files = [scratch / ALL_RANKS]
                else:
                    took, bytes_ = kubectls(options.kubectl, api, job, pods, lines, scratch, live=live)
                    files = list(scratch.iterdir())
                faults.append(lost_and_doubled(files, pods, lines))
            for pod in api.list(POD, "default", labels=f"job={job}"):
                api.delete(POD, "default", pod["metadata"]["name"], grace_seconds=0)
            seconds.append(took)
            memory.append(bytes_)
        middle = statistics.median(seconds)
        lost, doubled = (max(column) for column in zip(*faults, strict=True))
        of_what = "above idle" if reader == "ours" else "in all"
        print(
            f"{reader:<9}{when:<12}{middle:8.2f} s{pods * lines / middle:10.0f} lines/s"
            f"{max(memory) / 1e6:8.1f} MB {of_what:<11}{lost:6d} lost{doubled:6d} doubled",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=2)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--kubectl", metavar="PATH", default=shutil.which("kubectl"))
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*json.loads(options.child))
        return 0
    if INSIDE not in os.environ:
        around = ["-m", "nemo_run.testing", __file__, *sys.argv[1:]]
        return subprocess.run([sys.executable, *around], check=False).returncode
    api = connect()
    for live in (True, False):
        compare(api, options, live=live)
    return 0


if __name__ == "__main__":
    sys.exit(main())
