"""
Stands in for ``ray start`` where Ray is not installed: a node that is healthy, and a head that runs jobs.

The head serves Ray's job API (``/api/jobs/``) and runs each entrypoint with ``sh`` beside itself, in its
own working directory. A worker does nothing but watch its head. There are no tasks, actors or objects.
Runs as a script and needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]

DIRECTORY = "/tmp/ray"  # noqa: S108 - where Ray has its files
PATIENCE = 10.0
"""Seconds without its head after which a worker gives up."""
STOP_SECONDS = 3.0
"""Seconds between TERM and KILL for a job that is stopped (Ray's RAY_JOB_STOP_WAIT_TIME_S)."""
TAIL = 20_000
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")


class Refused(Exception):
    """A request that the head does not carry out."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Job:
    """One submitted entrypoint."""

    def __init__(self, request: Json, logs: Path) -> None:
        self.id = str(request.get("submission_id") or f"raysubmit_{os.urandom(8).hex()}")
        self.entrypoint = str(request["entrypoint"])
        self.runtime_env: Json = request.get("runtime_env") or {}
        self.metadata: Json = request.get("metadata") or {}
        self.status = "PENDING"
        self.message = "Job has not started yet. It may be waiting for the runtime environment to be set up."
        self.start, self.end = _milliseconds(), 0
        self.exit_code: int | None = None
        self.log = logs / f"job-driver-{self.id}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_text(_preface(self.id, self.entrypoint))
        self._stopped = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def over(self) -> bool:
        """Tell if it has ended."""
        return self.status in _OVER

    def info(self) -> Json:
        """Give what the API says of it."""
        return {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": self.id,
            "driver_info": None,
            "status": self.status,
            "entrypoint": self.entrypoint,
            "message": self.message,
            "error_type": None,
            "start_time": self.start,
            "end_time": self.end or None,
            "metadata": self.metadata,
            "runtime_env": self.runtime_env,
            "driver_exit_code": self.exit_code,
        }

    def run(self) -> None:
        """Run the entrypoint to its end."""
        try:
            with self.log.open("ab") as output:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", self.entrypoint],
                    cwd=self.runtime_env.get("working_dir"),
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            self._finish("FAILED", f"Job supervisor failed to start the entrypoint: {error}")
            return
        self.status, self.message = "RUNNING", "Job is currently running."
        if self._stopped:
            self.stop()
        self.exit_code = self._process.wait()
        if self._stopped:
            self._finish("STOPPED", "Job was intentionally stopped.")
        elif self.exit_code == 0:
            self._finish("SUCCEEDED", "Job finished successfully.")
        else:
            why = f"Job entrypoint command failed with exit code {self.exit_code}"
            last = self.log.read_text("utf-8", "replace")[-TAIL:]
            self._finish("FAILED", f"{why}, last available logs (truncated to 20,000 chars):\n{last}")

    def stop(self) -> None:
        """Have it end: TERM, and after a while KILL, to all of its processes."""
        self._stopped = True
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGTERM)
            timer = threading.Timer(STOP_SECONDS, self._signal, (signal.SIGKILL,))
            timer.daemon = True
            timer.start()

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _finish(self, status: str, message: str) -> None:
        self.end, self.message = _milliseconds(), message
        self.status = status

    def _environment(self) -> dict[str, str]:
        own = {"PYTHONUNBUFFERED": "1", "RAY_ADDRESS": "127.0.0.1:6379", "RAY_JOB_SUBMISSION_ID": self.id}
        asked = (self.runtime_env.get("env_vars") or {}).items()
        return {**os.environ, **own, **{name: _expanded(str(value)) for name, value in asked}}


class Jobs:
    """The jobs of a head."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._jobs: dict[str, Job] = {}

    def all(self) -> list[Job]:
        """Give all of them, oldest first."""
        return list(self._jobs.values())

    def find(self, name: str) -> Job:
        """
        Give one.

        Raises:
            Refused: there is none of this id.
        """
        if name not in self._jobs:
            raise Refused(404, f"Job {name} does not exist")
        return self._jobs[name]

    def submit(self, request: Json) -> Job:
        """
        Start a job.

        Raises:
            Refused: its id is taken.
        """
        if request.get("submission_id") in self._jobs:
            why = f"Job with submission_id {request['submission_id']} already exists."
            raise Refused(500, f"{why} Please use a different submission_id.")
        job = Job(request, self._logs)
        self._jobs[job.id] = job
        threading.Thread(target=job.run, daemon=True).start()
        return job


class Handler(BaseHTTPRequestHandler):
    """Answers for a node: its health, and on the head its jobs."""

    protocol_version = "HTTP/1.1"
    jobs: Jobs | None = None

    def do_GET(self) -> None:
        """Answer a question."""
        path = self.path.strip("/")
        if path in ("api/gcs_healthz", "api/local_raylet_healthz", "api/healthz"):
            self._answer(200, b"success")
        elif path == "api/version":
            version = os.environ.get("LOCAL_KUBE_RAY_VERSION", "")
            self._answer_json({"version": "4", "ray_version": version, "ray_commit": "local-kube"})
        else:
            self._on_jobs(path.split("/"))

    def do_POST(self) -> None:
        """Carry out a request."""
        self._on_jobs(self.path.strip("/").split("/"), self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the container's log is the node's."""

    def _on_jobs(self, path: list[str], body: bytes | None = None) -> None:
        try:
            if self.jobs is None or path[:2] != ["api", "jobs"]:
                raise Refused(404, "404: Not Found")
            self._route(self.jobs, path[2:], body)
        except Refused as refusal:
            self._answer(refusal.code, str(refusal).encode())

    def _route(self, jobs: Jobs, path: list[str], body: bytes | None) -> None:
        if not path and body is None:
            self._answer_json([job.info() for job in jobs.all()])
        elif not path:
            job = jobs.submit(json.loads(body or b"{}"))
            self._answer_json({"job_id": job.id, "submission_id": job.id})
        elif path[1:] == ["stop"] and body is not None:
            job = jobs.find(path[0])
            self._answer_json({"stopped": not job.over})
            job.stop()
        elif path[1:] == ["logs"]:
            self._answer_json({"logs": jobs.find(path[0]).log.read_text("utf-8", "replace")})
        elif path[1:] == ["logs", "tail"]:
            self._tail(jobs.find(path[0]))
        else:
            self._answer_json(jobs.find(path[0]).info())

    def _tail(self, job: Job) -> None:
        """Send a job's output as it comes; the connection ends with it."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        with job.log.open("rb") as log:
            while True:
                over = job.over  # before the read: what is written until then is in it
                if data := log.read(1 << 16):
                    self.wfile.write(data)
                elif over:
                    return
                else:
                    time.sleep(0.05)

    def _answer_json(self, value: Any) -> None:
        self._answer(200, json.dumps(value).encode(), "application/json")

    def _answer(self, code: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    """A server whose connections do not keep the node from ending."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Let a client go that has gone."""


def serve(ports: list[int], jobs: Jobs | None) -> None:
    """Answer on *ports* from now on."""
    handler = type("NodeHandler", (Handler,), {"jobs": jobs})
    for port in dict.fromkeys(ports):
        try:
            server = Server(("0.0.0.0", port), handler)  # noqa: S104 - in a network of its own
        except OSError as error:
            raise SystemExit(f"ray: cannot listen on port {port}: {error.strerror}") from error
        threading.Thread(target=server.serve_forever, daemon=True).start()


def watch(address: str, patience: float = PATIENCE) -> None:
    """Return once the head at *address* has been out of reach for *patience* seconds."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, int(port)), 5) as connection:
                connection.settimeout(None)
                connection.recv(1)
            deadline = time.monotonic() + patience
        except OSError:
            pass
        time.sleep(0.2)


def start(options: argparse.Namespace) -> int:
    """Be a node until the end, or in the background without ``--block``."""
    agent = [options.dashboard_agent_listen_port, options.metrics_export_port]
    jobs = Jobs(Path(options.temp_dir, "session_latest", "logs")) if options.head else None
    if not options.block and os.fork():
        return 0
    if jobs is not None:
        serve([options.port, options.dashboard_port, options.ray_client_server_port, *agent], jobs)
        print(f"ray stand-in: head, dashboard on port {options.dashboard_port}", flush=True)
        signal.pause()
        return 0
    serve(agent, None)
    print(f"ray stand-in: worker of {options.address}", flush=True)
    watch(options.address)
    print(f"ray stand-in: the head at {options.address} cannot be reached", file=sys.stderr)
    return 1


def stop_nodes() -> None:
    """End the nodes of this container."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith(b"/ray_node.py") for word in words) and b"start" in words:
            os.kill(int(place.name), signal.SIGTERM)


def healthy(address: str) -> bool:
    """Tell if a head answers there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return False
    return True


def parser() -> argparse.ArgumentParser:
    """Give the part of ``ray``'s command line that is known here."""
    words = argparse.ArgumentParser(prog="ray", allow_abbrev=False)
    commands = words.add_subparsers(dest="command", required=True)
    node = commands.add_parser("start")
    node.add_argument("--head", action="store_true")
    node.add_argument("--block", action="store_true")
    node.add_argument("--address", default="")
    node.add_argument("--temp-dir", default=DIRECTORY)
    for name, port in (
        ("--port", 6379),
        ("--dashboard-port", 8265),
        ("--ray-client-server-port", 10001),
        ("--dashboard-agent-listen-port", 52365),
        ("--metrics-export-port", 8080),
    ):
        node.add_argument(name, type=int, default=port)
    commands.add_parser("health-check").add_argument("--address", default="127.0.0.1:6379")
    for name in ("stop", "status", "kuberay-autoscaler"):
        commands.add_parser(name)
    return words


def main(arguments: list[str]) -> int:
    """Do what ``ray`` would; options that matter to no one here are passed over."""
    options, _ = parser().parse_known_args(arguments)
    if options.command == "start":
        if not options.head and not options.address:
            raise SystemExit("ray start: give --head or --address")
        return start(options)
    if options.command == "health-check":
        return 0 if healthy(options.address) else 1
    if options.command == "stop":
        stop_nodes()
    elif options.command == "kuberay-autoscaler":
        signal.pause()
    return 0


def _milliseconds() -> int:
    return int(time.time() * 1000)


def _preface(job: str, entrypoint: str) -> str:
    """Give what Ray writes into a job's log before the job does; the second line is 2.52's and later."""
    lines = f"{time.strftime('%Y-%m-%d %H:%M:%S')},000\tINFO job_manager.py:581 -- Runtime env is setting up.\n"
    numbers = re.findall(r"\d+", os.environ.get("LOCAL_KUBE_RAY_VERSION", ""))
    if tuple(map(int, numbers[:2])) >= (2, 52):
        lines += f"Running entrypoint for job {job}: {entrypoint}\n"
    return lines


def _expanded(value: str) -> str:
    """Put in the variables that a runtime environment refers to, as Ray 2.60 does."""
    return re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))


def _end(number: int, _: object) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _end)
    sys.exit(main(sys.argv[1:]))
