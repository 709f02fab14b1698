"""
Commands in a container, shaped like ``subprocess.run``.

One thread and one selector: it reads while it writes, so that a command that
ends early keeps its exit code and what it said; two threads on one TLS socket
lose both before Python 3.13.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nemo_run._kube import frames
from nemo_run._kube.channels import PROTOCOLS, Channels, Event, Exit, Stderr, Stdout
from nemo_run._kube.sockets import Door
from nemo_run._kube.waiting import SILENCE
from nemo_run.exceptions import Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run._kube.streams import WebSocketTarget

STDERR_KEPT = 64 * 1024
"""Bytes kept of the end of what a command wrote to its standard error."""

_READ = 256 * 1024
_LAST_WORDS = 2.0
"""Seconds to go on reading after the command's end, if the server does not close the stream."""


class Broken(Unreachable):
    """The connection to a command ended, or fell silent, before the command did."""


@dataclass(frozen=True)
class PodRef:
    """A container of a pod."""

    namespace: str
    name: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class ExecResult:
    """How a command ended; *stdout* is empty if a callback took it, *stderr* is the end of it."""

    exit_code: int
    stdout: bytes
    stderr: bytes

    @property
    def said(self) -> str:
        """Give what the command wrote to its standard error, as text."""
        return self.stderr.decode("utf-8", "replace").strip()


def run_exec(
    api: KubeApi,
    pod: PodRef,
    command: Sequence[str],
    *,
    stdin: Iterable[bytes] | None = None,
    stdout: Callable[[bytes], None] | None = None,
    idle_timeout: float | None = None,
    timeout: float | None = None,
) -> ExecResult:
    """
    Run *command* in *pod* and return how it ended, whatever its exit code.

    Each item of *stdin* is one frame (64 KiB is a good size). Where the server speaks only v4,
    the command never sees the end of its input: it must know how much to read.
    *timeout* is the longest time in which no byte moves either way, *idle_timeout* that without a
    sign of life, by default ``SILENCE.command``.

    Raises:
        NotAuthorized, NotFound, Rejected, ServerError: the server refused, or could not start the command.
        Broken: the connection ended, or fell silent, before the command did.
        Unreachable: no connection.
    """
    what = f"exec in {pod}"
    door = _door(api, pod, command, what, with_stdin=stdin is not None)
    with door.opened() as (sock, protocol):
        stream = _Stream(sock, Channels(protocol), stdin, stdout, idle_timeout or SILENCE.command, timeout)
        try:
            end = stream.run()
        except (_Lost, frames.FrameError) as error:
            raise door.unreachable(str(error), Broken) from error
    if end.code is None:
        raise door.refused(end.status or 500, _status(end))
    return ExecResult(end.code, b"".join(stream.stdout), bytes(stream.stderr))


class _Lost(Exception):
    """The stream ended, or fell silent, before the command ended."""


class _Stream:
    """One exec stream over a connected socket."""

    def __init__(
        self,
        sock: socket.socket,
        channels: Channels,
        stdin: Iterable[bytes] | None,
        stdout: Callable[[bytes], None] | None,
        idle_timeout: float,
        timeout: float | None,
    ) -> None:
        self.stdout: list[bytes] = []
        self.stderr = bytearray()
        self._take = stdout or self.stdout.append
        self._sock = sock
        self._channels = channels
        self._reader = frames.FrameReader()
        self._stdin = self._messages(stdin)
        self._control: deque[bytes] = deque()
        self._pending = memoryview(b"")
        self._pending_is_input = False
        self._end: Exit | None = None
        self._closed = False
        self._deaf = False
        self._idle_timeout = idle_timeout
        self._timeout = timeout
        self._heard = self._moved = self._pinged = time.monotonic()

    def run(self) -> Exit:
        """Move bytes both ways until the command's end is known and the server has closed, or time is up."""
        self._sock.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._sock, selectors.EVENT_READ)
            while not self._closed and not self._over():
                self._load()
                interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._pending else 0)
                selector.modify(self._sock, interest)
                ready = selector.select(self._pause())
                self._read()
                if ready and ready[0][1] & selectors.EVENT_WRITE:
                    self._write()
            self._say_goodbye()
        if self._end is None:
            self._handle_all(self._channels.end())
        if self._end is None:
            raise _Lost("the connection closed before the command ended")
        return self._end

    def _say_goodbye(self) -> None:
        """Close as RFC 6455 wants it, unless a frame is half sent; nothing depends on it."""
        if not self._pending:
            with suppress(OSError):
                self._sock.send(_frame(frames.CLOSE, (1000).to_bytes(2, "big")))

    def _over(self) -> bool:
        """Say whether enough was waited for the server's close; ask for a sign of life when none came for a while."""
        now = time.monotonic()
        if self._end is not None:
            return now - self._moved > _LAST_WORDS
        if now - self._heard > self._idle_timeout:
            raise _Lost(f"idle timeout: nothing was heard for {self._idle_timeout:g} s")
        if self._timeout is not None and now - self._moved > self._timeout:
            raise _Lost(f"time-out: the command neither read nor wrote anything for {self._timeout:g} s")
        if now - max(self._heard, self._pinged) > self._idle_timeout / 3:
            self._pinged = now
            self._control.append(_frame(frames.PING, b""))
        return False

    def _pause(self) -> float:
        """Give the seconds until time must be looked at again; none if TLS holds bytes that no selector sees."""
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return 0
        limits = [self._idle_timeout / 3, _LAST_WORDS / 2 if self._end else 10.0]
        if self._timeout is not None:
            limits.append(self._timeout / 3)
        return min(limits)

    def _load(self) -> None:
        """Take the next frame to send, answers to pings first; none once the command has ended."""
        if self._pending or self._deaf:
            return
        if self._control:
            self._pending = memoryview(self._control.popleft())
            self._pending_is_input = False
        elif self._end is None and (message := next(self._stdin, None)) is not None:
            self._pending = memoryview(_frame(frames.BINARY, message))
            self._pending_is_input = True

    def _messages(self, stdin: Iterable[bytes] | None) -> Iterator[bytes]:
        """Give the messages that carry the command's input, and the one that ends it."""
        if stdin is None:
            return
        for data in stdin:
            if data:
                yield self._channels.stdin(data)
        if (end := self._channels.stdin_end()) is not None:
            yield end

    def _write(self) -> None:
        """Send what the socket takes; a server that reads no more may still have something to say."""
        try:
            sent = self._sock.send(self._pending)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            self._deaf = True
            self._pending = memoryview(b"")
            return
        self._pending = self._pending[sent:]
        if self._pending_is_input:  # our own pings prove nothing: the kernel takes them for a dead peer as well
            self._heard = self._moved = time.monotonic()

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            if self._end is None:
                raise _Lost(f"the connection broke before the command ended: {error}") from error
            data = b""
        if not data:
            self._closed = True
            return
        self._heard = time.monotonic()
        for message in self._reader.feed(data):
            self._take_message(message)

    def _take_message(self, message: frames.Message) -> None:
        if message.opcode == frames.PING:
            self._control.append(_frame(frames.PONG, message.data))
        elif message.opcode == frames.CLOSE:
            self._closed = True
        elif message.opcode == frames.BINARY:
            self._moved = self._heard
            self._handle_all(self._channels.feed(message.data))

    def _handle_all(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Stdout):
                self._take(event.data)
            elif isinstance(event, Stderr):
                self.stderr += event.data
                del self.stderr[:-STDERR_KEPT]
            else:
                self._end = event


def _frame(opcode: int, data: bytes) -> bytes:
    return frames.frame(opcode, data, mask=os.urandom(4))


def _door(api: KubeApi, pod: PodRef, command: Sequence[str], what: str, *, with_stdin: bool) -> Door:
    def target() -> WebSocketTarget:
        return api.websocket_target(
            pod.namespace, pod.name, container=pod.container, command=list(command), stdin=with_stdin
        )

    return Door(api, pod.namespace, what, "pods/exec", target, PROTOCOLS)


def _status(end: Exit) -> bytes:
    """Give what a command that never ran left on channel 3, as an HTTP answer would have it."""
    return json.dumps({"kind": "Status", "message": end.message, "reason": end.reason}).encode()
