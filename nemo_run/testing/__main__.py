"""
Run a Python program against a LocalKube: ``python -m nemo_run.testing [OPTIONS] SCRIPT [ARGS]``.

The program runs in a process of its own, with nemo_run (and kubectl, through KUBECONFIG) pointed at the cluster.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from nemo_run.testing.local import LocalKube

_INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program that *arguments* name, and give its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    program = ["-m", *options.module] if options.module else options.program
    if not program:
        parser.error("SCRIPT, or -m MODULE, is required")
    images = dict(entry.split("=", 1) for entry in options.image)
    with LocalKube(
        trainer=options.trainer,
        kuberay=None if options.kuberay == "none" else options.kuberay,
        claims=options.claim or None,
        images=images,
        home=options.home,
        isolation=options.isolation,
    ) as kube:
        for name in options.namespace:
            kube.namespace(name)
        code = _run([sys.executable, *program], {**os.environ, "KUBECONFIG": str(kube.kubeconfig)})
    if code == _INTERRUPTED:
        print("LocalKube has ended, and with it all jobs that ran there.", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nemo_run.testing",
        description="Run a Python program against a Kubernetes on localhost.",
    )
    parser.add_argument("--trainer", default="2.3", help="release of Kubeflow Trainer to play (%(default)s)")
    parser.add_argument("--kuberay", default="1.7", help="release of KubeRay to play, or none (%(default)s)")
    parser.add_argument(
        "--claim", action="append", default=[], metavar="NAME", help="have this volume claim, and only those so named"
    )
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="have this namespace from the start; others are made when they are first used",
    )
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="PATTERN=ENTRY",
        help="run images of this pattern on ENTRY: busybox, a directory, or a python of another environment",
    )
    parser.add_argument("--isolation", default="auto", help="how containers are kept apart (%(default)s)")
    parser.add_argument("--home", type=Path, help="keep the volumes' files in this directory")
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE [ARGS]", help="run a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGS]", help="the program to run")
    return parser


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run *command* to its end; Ctrl-C reaches it through the terminal, SIGTERM is passed on."""
    child = subprocess.Popen(command, env=environment)
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number)),
    }
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
