"""Processes started through ``_init``, and what they say before they become the command."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INIT = Path(__file__).with_name("_init.py")
_BUFFER = 1 << 20


class CannotStart(Exception):
    """The command, or what it needs, is not there: the words are the container runtime's."""


@dataclass
class Process:
    """A started command; its streams are asyncio's."""

    pid: int
    """The command's own process on this machine: in a container of its own, PID 1 there."""
    _started: asyncio.subprocess.Process

    @property
    def stdin(self) -> asyncio.StreamWriter | None:
        """Give where to write its input; only an exec with stdin has one."""
        return self._started.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Give its output; a container's stderr is in it as well."""
        stream: asyncio.StreamReader = _present(self._started.stdout)
        return stream

    @property
    def stderr(self) -> asyncio.StreamReader:
        """Give an exec's error output."""
        stream: asyncio.StreamReader = _present(self._started.stderr)
        return stream

    async def wait(self) -> int:
        """Wait for the end; a signal N counts as 128 + N."""
        code = await self._started.wait()
        return 128 - code if code < 0 else code

    def signal(self, number: int) -> None:
        """Send a signal to the command, if it still runs."""
        if self._started.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End the command; a container's with all its processes."""
        self.signal(signal.SIGKILL)


async def start(spec: dict[str, Any], *, stdin: bool, stderr: int, stdout: int = asyncio.subprocess.PIPE) -> Process:
    """Start ``_init`` with *spec* and wait until the command runs."""
    status, told = os.pipe()
    alive, held = os.pipe()
    given = os.memfd_create("spec")
    os.write(given, marshal.dumps(spec))
    os.lseek(given, 0, os.SEEK_SET)
    passed = (told, given, alive)
    started: asyncio.subprocess.Process | None = None
    try:
        try:
            started = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", str(_INIT), *map(str, passed)),
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                limit=_BUFFER,
                pass_fds=passed,
            )
        finally:
            for descriptor in passed:
                os.close(descriptor)
        text = (await _read_all(status)).decode("utf-8", "replace")
    except BaseException:
        if started is not None:
            started.kill()  # the command's first process goes with it
        raise
    finally:
        os.close(held)
    first, _, error = text.partition("error ")
    if error or not first:
        if started.stdout:
            await started.stdout.read()
        await started.wait()
        raise CannotStart(error or "the container's first process ended before it ran anything")
    return Process(int(first.split()[1]), started)


async def _read_all(descriptor: int) -> bytes:
    """Read a pipe to its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    try:
        return await reader.read()
    finally:
        transport.close()


def _present(stream: Any) -> Any:
    if stream is None:
        raise ValueError("the process was started without this stream")
    return stream
