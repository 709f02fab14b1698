"""
What a second sync costs after one small edit, beside a full one, on a LocalKube of this machine.

    python benchmarks/resync.py [--runs 5]

2,000 source files of 50 MB go to a copy pod on busybox as ``RayJob.start(workdir=…)``
sends them; the copy pod's own start is not counted. A loopback hides the
network, so "sent" tells how many bytes of files went.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sync import INSIDE, plant

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.exec import PodRef
from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.mover import mover_pod
from nemo_run._kube.mover import data_mover
from nemo_run._kube.transfer import workdir_files
from nemo_run.core.execution._raysync import copied


def layout(code: str) -> WorkdirLayout:
    found = WorkdirLayout.resolve(
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        volume_mounts=[],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run"},
        code_subpath=code,
        default_subpath=code,
        values={},
    )
    assert found is not None
    return found


@contextmanager
def copy_pod(api: KubeApi) -> Iterator[PodRef]:
    manifest = mover_pod("benchmark", namespace="default", image="alpine:3.19", layout=layout("any"))
    with data_mover(api, manifest, restricted=None, on_state=lambda _: None) as pod:
        yield pod


def sync(api: KubeApi, pod: PodRef, source: Path, code: str) -> tuple[float, int]:
    """Give the seconds of one sync of *source* to *code*, and the bytes of files that it sent."""
    start = time.perf_counter()
    done = copied(api, pod, workdir_files(source)[0], layout(code), {})
    return time.perf_counter() - start, done.bytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if INSIDE not in os.environ:
        around = ["-m", "nemo_run.testing", "--claim", "shared", "--image", "alpine*=busybox"]
        return subprocess.run([sys.executable, *around, __file__, *sys.argv[1:]], check=False).returncode
    api = connect()
    with tempfile.TemporaryDirectory() as scratch, copy_pod(api) as pod:
        source = Path(scratch, "source")
        plant(source)
        time.sleep(2.5)  # a file written just now is read again the next time
        edited = sorted(source.rglob("*.py"))[1000]
        found: dict[str, list[tuple[float, int]]] = {"full": [], "unchanged": [], "one edit": []}
        for run in range(options.runs + 1):
            found["full"].append(sync(api, pod, source, f"run-{run}"))
            found["unchanged"].append(sync(api, pod, source, f"run-{run}"))
            with edited.open("a") as out:
                out.write(f"# {run}\n")
            found["one edit"].append(sync(api, pod, source, f"run-{run}"))
    full = statistics.median(seconds for seconds, _ in found["full"][1:])
    for what, runs in found.items():
        seconds = statistics.median(seconds for seconds, _ in runs[1:])
        print(f"{what:<12}{seconds:8.3f} s{100 * seconds / full:8.1f} %{runs[-1][1]:>12,} bytes sent")
    return 0


if __name__ == "__main__":
    sys.exit(main())
