"""
Stands in for ``ray job`` where Ray is not installed: submit, status, logs, stop and list over Ray's job API.

It joins an entrypoint's words into one text as the Ray of the pod does, whose version is in
``LOCAL_KUBE_RAY_VERSION``. Runs as a script and needs nothing but the standard library.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]

FIRST_SHLEX = (2, 60)
"""The first Ray whose ``ray job submit`` joins by shlex; those before it use Windows' rules, with double quotes."""
_OVER = ("SUCCEEDED", "FAILED", "STOPPED")


class Failed(Exception):
    """The head refused, or could not be reached."""


class Head:
    """The job API of a head."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address if "//" in address else f"http://{address}")
        self.address = f"http://{parts.hostname}:{parts.port or 8265}"
        self._place = (parts.hostname or "127.0.0.1", parts.port or 8265)

    def ask(self, path: str, body: Json | None = None) -> Any:
        """Send a request and give the answer."""
        with self._send(path, body) as response:
            return json.loads(response.read())

    def tail(self, job: str) -> Iterator[bytes]:
        """Give a job's output until it ends."""
        with self._send(f"/api/jobs/{job}/logs/tail", None) as response:
            while data := response.read1(1 << 16):
                yield data

    def _send(self, path: str, body: Json | None) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(*self._place)
        try:
            connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
            response = connection.getresponse()
        except OSError as error:
            raise Failed(f"Failed to connect to Ray at address: {self.address}. ({error})") from error
        if response.status != 200:
            text = response.read().decode()
            raise Failed(f"Request failed with status code {response.status}: {text}")
        return response


def joined(words: list[str], version: str) -> str:
    """Make one text of an entrypoint's words, as Ray of this *version* does."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return shlex.join(words) if not numbers or numbers >= FIRST_SHLEX else subprocess.list2cmdline(words)


def submit(head: Head, options: argparse.Namespace) -> int:
    """Submit a job, and without ``--no-wait`` follow it."""
    words = options.entrypoint[1:] if options.entrypoint[:1] == ["--"] else options.entrypoint
    if not words:
        raise Failed("Missing argument 'ENTRYPOINT...'")
    runtime_env = json.loads(options.runtime_env_json or "{}")
    if options.working_dir:
        runtime_env["working_dir"] = options.working_dir
    directory = runtime_env.get("working_dir")
    if directory is not None and "://" not in directory and not os.path.isdir(directory):
        raise Failed(f"directory {directory} must be an existing directory or a zip package")
    request = {
        "entrypoint": joined(words, os.environ.get("LOCAL_KUBE_RAY_VERSION", "")),
        "submission_id": options.submission_id,
        "runtime_env": runtime_env,
        "metadata": json.loads(options.metadata_json or "{}"),
    }
    job = head.ask("/api/jobs/", request)["submission_id"]
    _show(f"Job '{job}' submitted successfully")
    if options.no_wait:
        return 0
    return 1 if follow(head, job) == "FAILED" else 0


def follow(head: Head, job: str) -> str:
    """Show a job's output until it ends, then how; give its status."""
    for data in head.tail(job):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return show_status(head, job)


def show_status(head: Head, job: str) -> str:
    """Show a job's status and give it."""
    info = head.ask(f"/api/jobs/{job}")
    status = str(info["status"])
    if status in ("SUCCEEDED", "FAILED"):
        _show(f"Job '{job}' {status.lower()}")
    else:
        print(f"Job '{job}' was stopped" if status == "STOPPED" else f"Status for job '{job}': {status}")
    if status != "SUCCEEDED" and info["message"]:
        print(f"Status message: {info['message']}")
    return status


def logs(head: Head, options: argparse.Namespace) -> int:
    """Show what a job has written so far, or follow it."""
    if options.follow:
        follow(head, options.job)
    else:
        sys.stdout.write(head.ask(f"/api/jobs/{options.job}/logs")["logs"])
    return 0


def stop(head: Head, options: argparse.Namespace) -> int:
    """Stop a job and wait for its end."""
    print(f"Attempting to stop job '{options.job}'")
    head.ask(f"/api/jobs/{options.job}/stop", {})
    while not options.no_wait and head.ask(f"/api/jobs/{options.job}")["status"] not in _OVER:
        time.sleep(0.2)
    return 0


def _show(text: str) -> None:
    line = "-" * len(text)
    print(f"\n{line}\n{text}\n{line}\n", flush=True)


def parser() -> argparse.ArgumentParser:
    """Give the command line."""
    words = argparse.ArgumentParser(prog="ray job", allow_abbrev=False)
    commands = words.add_subparsers(dest="command", required=True)
    for name in ("submit", "status", "logs", "stop", "list"):
        command = commands.add_parser(name, allow_abbrev=False)
        default = os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or "http://127.0.0.1:8265"
        command.add_argument("--address", default=default)
        if name == "submit":
            for option in (
                *("submission-id", "runtime-env-json", "metadata-json", "working-dir"),
                *("entrypoint-num-cpus", "entrypoint-num-gpus", "entrypoint-memory", "entrypoint-resources"),
            ):
                command.add_argument(f"--{option}")
            command.add_argument("entrypoint", nargs=argparse.REMAINDER)
        elif name != "list":
            command.add_argument("job")
        if name in ("submit", "stop"):
            command.add_argument("--no-wait", action="store_true")
        if name == "logs":
            command.add_argument("-f", "--follow", action="store_true")
    return words


def main(arguments: list[str]) -> int:
    """Do what ``ray job`` would."""
    options = parser().parse_args(arguments)
    head = Head(options.address)
    try:
        if options.command == "status":
            show_status(head, options.job)
            return 0
        if options.command == "list":
            print(json.dumps(head.ask("/api/jobs/"), indent=1))
            return 0
        return {"submit": submit, "logs": logs, "stop": stop}[options.command](head, options)
    except (Failed, OSError, http.client.HTTPException, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
