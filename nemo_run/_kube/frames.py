"""
WebSocket frames (RFC 6455, client side) without a socket: bytes in, messages out.

A reader that takes whatever bytes have arrived, and builders of whole frames,
are what a single-threaded exec needs in order to read while it writes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

LONGEST: Final = 16 * 1024 * 1024
"""A message longer than this is no exec stream's: servers send 32 KiB at a time."""


class FrameError(ValueError):
    """The other side broke RFC 6455."""


@dataclass(frozen=True)
class Message:
    """A whole message, or a control frame, as the other side sent it."""

    opcode: int
    data: bytes


def frame(opcode: int, data: bytes, *, mask: bytes) -> bytes:
    """Build one whole frame as a client sends it; *mask* is four random bytes."""
    size = len(data)
    if size < 126:
        head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    elif size < 0x10000:
        head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
    return head + mask + masked(data, mask)


def masked(data: bytes, mask: bytes) -> bytes:
    """Give *data* xor *mask*, as one big number: a loop over bytes would be the slowest part of a copy."""
    size = len(data)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")


class FrameReader:
    """Puts messages together from bytes as they arrive, in time linear in their number."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._opcode: int | None = None
        self._parts = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """
        Take bytes in; give the messages that are now complete.

        Raises:
            FrameError: the bytes are no frames of a server.
        """
        self._buffer += data
        messages: list[Message] = []
        start = 0
        while (found := self._frame(start)) is not None:
            first, body, start = found
            message = self._joined(first, bytes(self._buffer[body:start]))
            if message is not None:
                messages.append(message)
        del self._buffer[:start]
        return messages

    def _frame(self, start: int) -> tuple[int, int, int] | None:
        """Find the frame at *start*: its first byte, where its data begin, where they end."""
        buffer = self._buffer
        if len(buffer) < start + 2:
            return None
        first, second = buffer[start], buffer[start + 1]
        if first & 0x70 or second & 0x80:
            raise FrameError("a frame with reserved bits, or a masked one from a server")
        size, body = second, start + 2
        if size == 126:
            body += 2
            size = int.from_bytes(buffer[start + 2 : body], "big")
        elif size == 127:
            body += 8
            size = int.from_bytes(buffer[start + 2 : body], "big")
        if len(buffer) < body:
            return None
        if size > LONGEST:
            raise FrameError(f"a frame of {size} bytes")
        return (first, body, body + size) if len(buffer) >= body + size else None

    def _joined(self, first: int, data: bytes) -> Message | None:
        """Give the message that this frame ends; a control frame may stand between the parts of another."""
        opcode, final = first & 0x0F, bool(first & 0x80)
        if opcode >= CLOSE:
            return Message(opcode, data)
        if (opcode == CONTINUATION) != (self._opcode is not None):
            raise FrameError("a message that begins inside another, or goes on without a beginning")
        if opcode != CONTINUATION:
            if final:
                return Message(opcode, data)
            self._opcode = opcode
        self._parts += data
        if len(self._parts) > LONGEST:
            raise FrameError("a message without an end")
        if not final:
            return None
        message = Message(self._opcode or BINARY, bytes(self._parts))
        self._opcode = None
        self._parts.clear()
        return message
