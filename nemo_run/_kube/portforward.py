"""
One TCP connection to a port inside a pod, carried by a websocket.

Protocol ``v4.channel.k8s.io`` of ``pods/portforward`` (k8s.io/kubelet
``pkg/cri/streaming/portforward/websocket.go``): channel 0 carries the bytes,
channel 1 what went wrong; each opens with the port's number. It cannot say that
one direction has ended, so a websocket is for one connection, and ends with it.
"""

from __future__ import annotations

import itertools
import logging
import os
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from nemo_run._kube import frames
from nemo_run._kube.sockets import Door
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.exceptions import ServerError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

PROTOCOL: Final = "v4.channel.k8s.io"
PING_EVERY = 30.0
"""Seconds of silence after which the server is asked for a sign of life: proxies cut quiet connections."""
DEAD_AFTER = 120.0
"""Seconds without any sign of life after which the connection counts as broken."""
LONGEST_PAUSE = 16.0
"""Seconds to wait for another try to connect; a connection that would have to wait longer is given up."""
LAST_WORDS = 5.0
"""Seconds in which a program that has ended its own side may still be answered."""

_DATA: Final = 0
_ERROR: Final = 1
_READ = 64 * 1024
_REFUSAL = 1.0
"""Seconds in which a server that has opened the channels says that nothing listens on the port."""
_STEP = 0.5


class Ports:
    """What comes over the websocket, sorted: bytes of the connection, and what the far side says is wrong."""

    def __init__(self) -> None:
        self._opened: set[int] = set()
        self.trouble = ""

    def feed(self, message: bytes) -> bytes:
        """Take one message in; give the bytes for the program on this side."""
        if not message:
            return b""
        channel, data = message[0], message[1:]
        if channel not in self._opened:
            self._opened.add(channel)
            data = data[2:]
        if channel == _ERROR:
            self.trouble += data.decode("utf-8", "replace")
        return data if channel == _DATA else b""

    @property
    def ready(self) -> bool:
        """Tell whether the far side has opened both channels."""
        return self._opened >= {_DATA, _ERROR}


def door(api: KubeApi, namespace: str, pod: str, port: int) -> Door:
    """Give the way to a port of a pod."""
    what = f"port-forward to port {port} of pod {pod}"
    return Door(
        api,
        namespace,
        what,
        "pods/portforward",
        lambda: api.forwarding_target(namespace, pod, port),
        (PROTOCOL,),
    )


def carry(way: Door, local: socket.socket, *, over: threading.Event) -> str:
    """
    Carry bytes between *local* and the far end of *way* until either has ended or *over* is set.

    Gives what the far side said was wrong, or nothing.

    Raises:
        KubeError: the connection to the server did not come about, or broke.
    """
    with _opened(way, over.wait) as remote:
        try:
            return _Link(remote, local).run(over)
        except (OSError, frames.FrameError) as error:
            raise way.unreachable(str(error)) from error


class _Link:
    """Two sockets, and what is on its way from each to the other."""

    def __init__(self, remote: socket.socket, local: socket.socket) -> None:
        self._remote = remote
        self._local = local
        self._ports = Ports()
        self._reader = frames.FrameReader()
        self._out: deque[bytes] = deque()
        self._in = bytearray()
        self._ended_here: float | None = None
        self._ended_there = False
        self._heard = self._pinged = time.monotonic()

    def run(self, over: threading.Event) -> str:
        self._remote.setblocking(False)
        self._local.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._remote, selectors.EVENT_READ)
            registered = False
            while not over.is_set() and not self._is_over():
                selector.modify(self._remote, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0))
                registered = self._listen(selector, registered)
                ready = selector.select(self._pause())
                self._move(any(key.fileobj is self._local and events & selectors.EVENT_READ for key, events in ready))
        return self._ports.trouble.strip()

    def _listen(self, selector: selectors.BaseSelector, registered: bool) -> bool:
        """Ask for what the local side may do now: no more is read than the other side takes."""
        interest = selectors.EVENT_WRITE if self._in else 0
        if self._ended_here is None and not self._out:
            interest |= selectors.EVENT_READ
        if registered and interest:
            selector.modify(self._local, interest)
        elif registered:
            selector.unregister(self._local)
        elif interest:
            selector.register(self._local, interest)
        return bool(interest)

    def _move(self, has_input: bool) -> None:
        if has_input:
            self._read_local()
        if len(self._in) < _READ:
            self._read_remote()
        self._write_local()
        self._write_remote()

    def _is_over(self) -> bool:
        now = time.monotonic()
        if self._ended_there:
            return not self._in
        if self._ended_here is not None and now - max(self._ended_here, self._heard) > LAST_WORDS:
            return True
        if now - self._heard > DEAD_AFTER:
            raise TimeoutError(f"nothing was heard for {DEAD_AFTER:g} s")
        if now - max(self._heard, self._pinged) > PING_EVERY:
            self._pinged = now
            self._send(frames.PING, b"")
        return False

    def _pause(self) -> float:
        buffered = isinstance(self._remote, ssl.SSLSocket) and self._remote.pending() and len(self._in) < _READ
        return 0 if buffered else _STEP

    def _read_local(self) -> None:
        try:
            data = self._local.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._send(frames.BINARY, bytes((_DATA,)) + data)
        else:
            self._ended_here = time.monotonic()

    def _read_remote(self) -> None:
        try:
            data = self._remote.recv(_READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        if not data:
            self._ended_there = True
            return
        self._heard = time.monotonic()
        for message in self._reader.feed(data):
            if message.opcode == frames.PING:
                self._send(frames.PONG, message.data)
            elif message.opcode == frames.CLOSE:
                self._ended_there = True
            elif message.opcode == frames.BINARY:
                self._in += self._ports.feed(message.data)

    def _write_local(self) -> None:
        if not self._in:
            return
        try:
            sent = self._local.send(self._in)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # The program on this side is gone; nobody is left to read.
            sent, self._ended_there = len(self._in), True
        del self._in[:sent]

    def _write_remote(self) -> None:
        while self._out:
            try:
                sent = self._remote.send(self._out[0])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            rest = self._out.popleft()[sent:]
            if rest:
                self._out.appendleft(rest)
                return

    def _send(self, opcode: int, data: bytes) -> None:
        self._out.append(frames.frame(opcode, data, mask=os.urandom(4)))


@contextmanager
def _opened(way: Door, pause: Callable[[float], bool | None]) -> Iterator[socket.socket]:
    """
    Open *way*, again for a while where the server is overloaded or cannot be reached.

    *pause* sleeps before another try, and tells whether there is to be none.
    """
    with ExitStack() as stack:
        for again in itertools.count():
            try:
                remote, _ = stack.enter_context(way.opened())
                break
            except (ServerError, Unreachable) as error:
                wait = max(float(2**again), error.retry_after or 0.0)
                if error.status in (410, 501) or isinstance(error.__cause__, ssl.SSLError) or wait > LONGEST_PAUSE:
                    raise
                logger.info("%s; trying again in %.0f s", error, wait)
                if pause(wait):
                    raise
        yield remote


def check(way: Door, *, patience: float = 10.0, clock: Clock = SYSTEM_CLOCK) -> None:
    """
    Open *way* and close it again: what is wrong then shows before a program connects.

    Raises:
        KubeError: the server refuses, or nothing listens on the port.
    """
    with _opened(way, clock.sleep) as remote:
        ports = Ports()
        reader = frames.FrameReader()
        deadline = time.monotonic() + patience
        remote.settimeout(_REFUSAL)
        while not ports.trouble and time.monotonic() < deadline:
            try:
                data = remote.recv(_READ)
            except TimeoutError:
                if ports.ready:
                    break
                continue
            except OSError as error:
                raise way.unreachable(str(error)) from error
            if not data:
                break
            for message in reader.feed(data):
                if message.opcode == frames.BINARY:
                    ports.feed(message.data)
        with suppress(OSError):
            remote.sendall(frames.frame(frames.CLOSE, (1000).to_bytes(2, "big"), mask=os.urandom(4)))
    if ports.trouble:
        raise way.unreachable(ports.trouble.strip())
