"""
What a sync costs, on a LocalKube of this machine: ours, and kubectl's if it is there.

    python benchmarks/sync.py [--runs 5] [--big MIB] [--rate MBIT]

2,000 source files of 50 MB go to a copy pod on busybox and back; then one file
of noise (1 GiB unless --big says otherwise, 0 for none) shows what memory it takes.
A loopback hides the network: "on the wire" tells what a slow one has to carry, and with
--rate all goes through a proxy that lets so many Mbit/s pass.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path, PurePosixPath

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.exec import PodRef
from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.mover import mover_pod
from nemo_run._kube.mover import data_mover
from nemo_run._kube.pack import pack, planned
from nemo_run._kube.transfer import directory_files, fetch_tree, send_tree

INSIDE = "NEMO_RUN_LOCAL_KUBE"
MOUNT = PurePosixPath("/nemo_run")


def plant(root: Path, files: int = 2000, size: int = 50_000_000) -> None:
    """Write *files* of Python source, *size* bytes together: what the standard library holds, cut evenly."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = (path for path in sorted(library.rglob("*.py")) if "site-packages" not in path.parts)
    text = b"".join(path.read_bytes() for path in modules)
    text *= size // len(text) + 1
    each = size // files
    for index in range(files):
        place = root / f"package_{index % 50}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"module_{index}.py").write_bytes(text[index * each : (index + 1) * each])


def median(action: Callable[[], object], runs: int) -> float:
    """Give the median seconds of *runs* calls, after one that fills the file cache."""
    found = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:])


def show(what: str, seconds: float, size: int) -> None:
    print(f"{what:<44}{seconds:8.2f} s{size / 1e6 / seconds:10.1f} MB/s")


def compare(api: KubeApi, pod: PodRef, scratch: Path, runs: int) -> None:
    """Time the copies of the source tree."""
    source, spool, back = scratch / "source", scratch / "spool", scratch / "back"
    plant(source)
    size = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())

    def send(compress: bool) -> None:
        send_tree(api, pod, source, MOUNT / "ours", compress=compress)

    for compress in (False, True):
        name = "gzip" if compress else "plain"
        show(f"sync, {name}", median(lambda compress=compress: send(compress), runs), size)
        with tempfile.TemporaryFile() as archive:
            pack(planned(directory_files(source)), archive, last="end", compress=compress)
            print(f"{'':<44}{archive.tell() / 1e6:8.1f} MB on the wire")
    show(
        "fetch, plain",
        median(lambda: fetch_tree(api, pod, MOUNT / "ours", back, spool_dir=spool, compress=False), runs),
        size,
    )
    if kubectl := shutil.which("kubectl"):
        there = f"{pod.namespace}/{pod.name}:{MOUNT / 'kubectl'}"
        command = [kubectl, "--kubeconfig", os.environ[INSIDE], "cp", "-c", pod.container, f"{source}/.", there]
        show("kubectl cp", median(lambda: subprocess.run(command, check=True, capture_output=True), runs), size)


def measure_memory(pod: PodRef, scratch: Path, mebibytes: int) -> None:
    """Sync one big file from a process of its own, and show by how much its peak grew."""
    big = scratch / "big"
    big.mkdir()
    with (big / "noise").open("wb") as out:
        for _ in range(mebibytes):
            out.write(os.urandom(1 << 20))
    command = [sys.executable, __file__, "--child", json.dumps([pod.namespace, pod.name, pod.container, str(scratch)])]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, idle, peak = json.loads(done.stdout)
    show(f"sync, one file of {mebibytes} MiB", seconds, mebibytes << 20)
    print(f"{'peak memory above an idle one':<44}{(peak - idle) / 1e6:8.1f} MB")


def peak() -> int:
    """Give the most bytes that this process had in memory; what it was forked from does not count."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def child(namespace: str, name: str, container: str, scratch: str) -> None:
    """Send a small tree, then the big one; print seconds and both peaks."""
    api, pod = connect(), PodRef(namespace, name, container)
    small = Path(scratch) / "small"
    small.mkdir()
    (small / "file").touch()
    send_tree(api, pod, small, MOUNT / "small")
    idle = peak()
    start = time.perf_counter()
    send_tree(api, pod, Path(scratch) / "big", MOUNT / "big")
    seconds = time.perf_counter() - start
    print(json.dumps([seconds, idle, peak()]))


async def throttle(address: str, megabits: float) -> None:
    """Print a port, and carry what comes there to *address*, so fast each way."""
    host, port = address.split(":")

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        free = time.monotonic()
        while data := await reader.read(16384):
            free = max(free, time.monotonic() - 0.1) + len(data) * 8e-6 / megabits
            if (wait := free - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, there = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pipe(reader, there), pipe(behind, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def slow_network(megabits: float, directory: Path) -> Iterator[None]:
    """Let the cluster be reached at *megabits* per second only."""
    kubeconfig = Path(os.environ[INSIDE])
    text = kubeconfig.read_text()
    address = re.search(r"https?://([\d.]+:\d+)", text)
    assert address
    command = [sys.executable, __file__, "--throttle", address[1], "--rate", str(megabits)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout
            slow = directory / "kubeconfig"
            slow.write_text(text.replace(address[1], f"127.0.0.1:{proxy.stdout.readline().strip()}"))
            os.environ[INSIDE] = str(slow)
            yield
        finally:
            os.environ[INSIDE] = str(kubeconfig)
            proxy.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--big", type=int, default=1024, metavar="MIB")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=0, metavar="MBIT")
    parser.add_argument("--throttle", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.throttle:
        asyncio.run(throttle(options.throttle, options.rate))
    if options.child:
        child(*json.loads(options.child))
        return 0
    if INSIDE not in os.environ:
        around = ["-m", "nemo_run.testing", "--claim", "shared", "--image", "alpine*=busybox"]
        return subprocess.run([sys.executable, *around, __file__, *sys.argv[1:]], check=False).returncode
    layout = WorkdirLayout.resolve(
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        volume_mounts=[],
        workdir_volume_mount={"name": "work", "mountPath": str(MOUNT)},
        code_subpath="ours",
        default_subpath="ours",
        values={},
    )
    assert layout is not None
    manifest = mover_pod("benchmark", namespace="default", image="alpine:3.19", layout=layout)
    with (
        tempfile.TemporaryDirectory() as scratch,
        slow_network(options.rate, Path(scratch)) if options.rate else nullcontext(),
        data_mover(api := connect(), manifest, restricted=None, on_state=lambda _: None) as pod,
    ):
        compare(api, pod, Path(scratch), options.runs)
        if options.big:
            measure_memory(pod, Path(scratch), options.big)
    return 0


if __name__ == "__main__":
    sys.exit(main())
