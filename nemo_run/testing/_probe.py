"""Readiness probes that run a command, as the kubelet has them; a container that was ready once stays so."""

from __future__ import annotations

import asyncio
from typing import Any

from nemo_run.testing._container import Container, Runtime
from nemo_run.testing._process import CannotStart

Json = dict[str, Any]

INTERVAL = 0.25
"""Seconds between two looks, whatever the probe says: nobody waits longer for a process of this machine."""


def readiness_command(container: Json) -> list[str] | None:
    """Give what a container's readiness probe runs; None if it has no such probe."""
    command: list[str] | None = ((container.get("readinessProbe") or {}).get("exec") or {}).get("command")
    return command


async def until_ready(runtime: Runtime, container: Container, command: list[str]) -> None:
    """Run *command* in the container again and again until it succeeds."""
    while not await _succeeds(runtime, container, command):
        await asyncio.sleep(INTERVAL)


async def _succeeds(runtime: Runtime, container: Container, command: list[str]) -> bool:
    try:
        process = await runtime.exec(container, command)
    except CannotStart:
        return False
    try:
        await asyncio.gather(process.stdout.read(), process.stderr.read())
        return await process.wait() == 0
    finally:
        process.kill()
