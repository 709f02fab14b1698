"""Find the logs of an experiment, wait until all is written, and read losses off them."""

from __future__ import annotations

import glob
import re
import time
from collections.abc import Sequence
from pathlib import Path

from nemo_run.config import get_nemorun_home

FLAKY = re.compile(r"NCCL error|Connection reset by peer")
_LOSS = re.compile(r"\[default(\d+)\]:.*iteration\s+(\d+)/\s*(\d+) .*lm loss: ([\d.E+-]+)")
_POD = re.compile(r"^\[pod/[^/]*-(\d+)-\w+/")


def collected(directory: str, name: str) -> list[str]:
    if not glob.glob(f"{directory}/log*.out"):
        raise RuntimeError(f"no logs in {directory}")
    return sorted(glob.glob(f"{get_nemorun_home()}/experiments/{name}/{name}_*/{name}/log*.out"))


def settled(paths: Sequence[str], seconds: float, cap: float = 180) -> str:
    """Give the newest log's text once no file has grown for a while."""
    start = stable = time.monotonic()
    sizes: dict[str, int] = {}
    while time.monotonic() - stable < seconds and time.monotonic() - start < cap:
        now = {path: Path(path).stat().st_size for path in paths}
        if now != sizes:
            sizes, stable = now, time.monotonic()
        time.sleep(seconds / 10)
    return Path(paths[-1]).read_text()


def losses(text: str) -> dict[str, list[float]]:
    """Give the losses by node and local rank."""
    found: dict[str, list[float]] = {}
    for line in text.splitlines():
        pod, match = _POD.match(line), _LOSS.search(line)
        if pod and match:
            found.setdefault(f"{pod[1]}.{match[1]}", []).append(float(match[4]))
    return found
