"""Environments with NeMo-Run itself, made by pip once per machine: what people's images hold."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSIONS = ("0.10.0", "0.11.1")

# The newest leptonai, which NeMo-Run asks for, has no longer what it imports.
_NEEDS = "leptonai==0.26.7"


def environment(version: str) -> Path:
    """Give the directory of an environment with NeMo-Run *version*, made if it is not there yet; takes a minute."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nemo_run-tests"
    cache.mkdir(parents=True, exist_ok=True)
    directory = cache / f"nemo-run-{version}-{sys.implementation.cache_tag}"
    done = directory / "complete"
    with open(cache / f"{directory.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists() or not (directory / "bin" / "python").exists():
            shutil.rmtree(directory, ignore_errors=True)
            # Of the interpreter itself: one made from another environment (Python 3.10) ends with that.
            _call(os.path.realpath(sys.executable), "-m", "venv", str(directory))
            pip = (
                str(directory / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "-q",
                "--no-compile",
                "--disable-pip-version-check",
            )
            _call(*pip, f"nemo-run=={version}", _NEEDS)
            done.touch()
    return directory


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
