"""What tests of jobs on this machine share."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from children import PATIENCE


def states(exp):
    return {task: str(facts["status"]) for task, facts in exp.status(return_dict=True).items()}


def in_another_process(code, *args):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def lives(pid):
    """Tell whether a process is there; a zombie that nobody reaps is not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def until(path, seconds=PATIENCE):
    """Give a piece of shell that waits for a file, and fails if it does not come."""
    return f"for i in $(seq {seconds * 20}); do test -e {path} && break; sleep 0.05; done; test -e {path} || exit 9"
