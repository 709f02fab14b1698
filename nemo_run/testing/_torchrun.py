"""
Stands in for ``torchrun`` where torch is not installed: the same flags, the same environment.

It starts the processes of one node and watches over them. There is no rendezvous store of its
own: ranks follow from the node's rank, and nodes find each other at MASTER_ADDR:MASTER_PORT.
Runs as a script and needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import IO

TEE_STDOUT, TEE_STDERR = 1, 2


def parser() -> argparse.ArgumentParser:
    """Give the command line; each option's default can come from ``PET_<NAME>``, as in torch."""
    words = argparse.ArgumentParser(prog="torchrun", allow_abbrev=False)
    for name, default in (
        ("nnodes", "1:1"),
        ("nproc-per-node", "1"),
        ("node-rank", "0"),
        ("rdzv-backend", "static"),
        ("rdzv-endpoint", ""),
        ("rdzv-id", "none"),
        ("rdzv-conf", ""),
        ("max-restarts", "0"),
        ("monitor-interval", "0.1"),
        ("start-method", "spawn"),
        ("role", "default"),
        ("log-dir", None),
        ("redirects", "0"),
        ("tee", "0"),
        ("local-ranks-filter", ""),
        ("local-addr", None),
        ("master-addr", "127.0.0.1"),
        ("master-port", "29500"),
    ):
        short = {"redirects": ["-r"], "tee": ["-t"]}.get(name, [])
        spellings = dict.fromkeys([f"--{name}", f"--{name.replace('-', '_')}", *short])
        given = os.environ.get(f"PET_{name.replace('-', '_').upper()}", default)
        words.add_argument(*spellings, default=given)
    for name, short in (("standalone", []), ("module", ["-m"]), ("no-python", []), ("run-path", [])):
        spellings = dict.fromkeys([f"--{name}", f"--{name.replace('-', '_')}", *short])
        words.add_argument(*spellings, action="store_true", default=os.environ.get(_variable(name), "0") == "1")
    words.add_argument("training_script")
    words.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return words


def _variable(name: str) -> str:
    return f"PET_{name.replace('-', '_').upper()}"


def processes(text: str) -> int:
    """Give the number of processes on this node: ``auto`` and ``gpu`` count the GPUs that the pod was given."""
    if text.isdigit():
        return int(text)
    devices = [device for device in os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if device]
    if text in ("auto", "gpu") and devices and devices != ["void"]:
        return len(devices)
    if text in ("auto", "cpu"):
        return os.cpu_count() or 1
    raise SystemExit(f"torchrun: unsupported nproc_per_node value: {text}")


def streams(text: str, local_rank: int) -> int:
    """Read ``--tee``/``--redirects``: a number for all, or ``0:1,2:3`` for single ranks."""
    if ":" not in text:
        return int(text)
    return int(dict(part.split(":") for part in text.split(",")).get(str(local_rank), "0"))


class Worker:
    """One process of this node."""

    def __init__(self, options: argparse.Namespace, rank: int, restart: int, run_id: str, logs: Path | None) -> None:
        self._prefix = f"[{options.role}{rank}]:".encode()
        self._logs = logs / run_id / f"attempt_{restart}" / str(rank) if logs else None
        tee, redirected = streams(options.tee, rank), streams(options.redirects, rank)
        self._threads: list[threading.Thread] = []
        self.process = subprocess.Popen(
            command(options),
            env=environment(options, rank, restart, run_id),
            stdout=subprocess.PIPE if (tee | redirected) & TEE_STDOUT else None,
            stderr=subprocess.PIPE if (tee | redirected) & TEE_STDERR else None,
        )
        for name, source, sink, bit in (
            ("stdout", self.process.stdout, sys.stdout.buffer, TEE_STDOUT),
            ("stderr", self.process.stderr, sys.stderr.buffer, TEE_STDERR),
        ):
            if source is not None:
                thread = threading.Thread(target=self._carry, args=(source, sink if tee & bit else None, name))
                thread.start()
                self._threads.append(thread)

    def _carry(self, source: IO[bytes], sink: IO[bytes] | None, name: str) -> None:
        """Pass lines on with the rank before them, and into the log directory."""
        log = None
        if self._logs is not None:
            self._logs.mkdir(parents=True, exist_ok=True)
            log = (self._logs / f"{name}.log").open("wb")
        for line in source:
            if sink is not None:
                sink.write(self._prefix + line)
                sink.flush()
            if log is not None:
                log.write(line)
                log.flush()
        if log is not None:
            log.close()

    def end(self) -> None:
        """End the process if it runs, and pass on what is left of its output."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()


def command(options: argparse.Namespace) -> list[str]:
    """Give a worker's command line."""
    if options.no_python:
        return [options.training_script, *options.training_script_args]
    python = [os.environ.get("PYTHON_EXEC", sys.executable), "-u"]
    return [*python, *(["-m"] if options.module else []), options.training_script, *options.training_script_args]


def environment(options: argparse.Namespace, local_rank: int, restart: int, run_id: str) -> dict[str, str]:
    """Give a worker's environment."""
    local = processes(options.nproc_per_node)
    nodes = int(options.nnodes.split(":")[-1])
    node = int(options.node_rank)
    address, port = options.master_addr, options.master_port
    if options.rdzv_backend != "static" and options.rdzv_endpoint:
        # torch's agents agree on a port of their own; here the one after the rendezvous' is as good
        host, _, number = options.rdzv_endpoint.partition(":")
        address, port = host, str(int(number or "29500") + 1)
    elif options.rdzv_endpoint:
        address, _, port = options.rdzv_endpoint.partition(":")
    own = {
        "LOCAL_RANK": local_rank,
        "RANK": node * local + local_rank,
        "GROUP_RANK": node,
        "ROLE_RANK": node * local + local_rank,
        "ROLE_NAME": options.role,
        "LOCAL_WORLD_SIZE": local,
        "WORLD_SIZE": nodes * local,
        "GROUP_WORLD_SIZE": nodes,
        "ROLE_WORLD_SIZE": nodes * local,
        "MASTER_ADDR": address,
        "MASTER_PORT": port or "29500",
        "TORCHELASTIC_RESTART_COUNT": restart,
        "TORCHELASTIC_MAX_RESTARTS": options.max_restarts,
        "TORCHELASTIC_RUN_ID": run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    threads = {"OMP_NUM_THREADS": "1"} if local > 1 else {}
    return {**threads, **os.environ, **{name: str(value) for name, value in own.items()}}


def attempt(options: argparse.Namespace, restart: int, run_id: str) -> list[tuple[int, int]]:
    """Run all workers once; give (local rank, exit code) of those that failed by themselves."""
    logs = Path(options.log_dir) if options.log_dir else None
    workers: list[Worker] = []
    try:
        for rank in range(processes(options.nproc_per_node)):
            workers.append(Worker(options, rank, restart, run_id, logs))
        while True:
            codes = [worker.process.poll() for worker in workers]
            failed = [(rank, code) for rank, code in enumerate(codes) if code]
            if failed or None not in codes:
                return failed
            time.sleep(0.02)
    finally:
        for worker in workers:
            worker.end()


def main(arguments: list[str]) -> int:
    """Run this node's workers until they succeed or have failed often enough."""
    options = parser().parse_args(arguments)
    if options.standalone:
        options.rdzv_backend, options.rdzv_endpoint = "static", ""
        options.nnodes, options.node_rank = "1", "0"
    run_id = options.rdzv_id if options.rdzv_id != "none" else uuid.uuid4().hex[:12]
    for restart in range(int(options.max_restarts) + 1):
        failed = attempt(options, restart, run_id)
        if not failed:
            return 0
        for rank, code in failed:
            print(f"torchrun: {options.training_script} failed: local_rank {rank}, exitcode {code}", file=sys.stderr)
    return 1


def _stop(number: int, _: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _stop)
    sys.exit(main(sys.argv[1:]))
