"""
The exec channels of Kubernetes (``v4.channel.k8s.io``, ``v5.channel.k8s.io``), without a socket.

The first byte of each message names the channel. Channel 3 carries one
``Status`` when the command has ended, and is the only word that counts: a
stream that ends without it says nothing about the command.
v5 (Kubernetes 1.30) adds a message that closes a channel, so that a command
can see the end of its input; v4 cannot say it.
Source: k8s.io/apimachinery ``pkg/util/remotecommand/constants.go``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

V5: Final = "v5.channel.k8s.io"
V4: Final = "v4.channel.k8s.io"
PROTOCOLS: Final = (V5, V4)
"""What we offer, best first."""

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_ERROR: Final = 3
_CLOSE: Final = 255


@dataclass(frozen=True)
class Stdout:
    """Bytes that the command wrote to its standard output."""

    data: bytes


@dataclass(frozen=True)
class Stderr:
    """Bytes that the command wrote to its standard error."""

    data: bytes


@dataclass(frozen=True)
class Exit:
    """
    The command has ended, or never began.

    *code* is None where there was no command to end: the container runtime
    could not start it, or lost it. *message* and *status* then say why.
    """

    code: int | None
    message: str = ""
    reason: str = ""
    status: int | None = None


Event = Stdout | Stderr | Exit


class Channels:
    """One exec stream: messages in, events out; and the messages to send."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self._status = bytearray()
        self._ended = False

    def feed(self, message: bytes) -> list[Event]:
        """Take one message in; give what it says, which may be nothing (servers open with empty ones)."""
        channel, data = message[:1], message[1:]
        if not channel or not data:
            return []
        if channel[0] == _STDOUT:
            return [Stdout(data)]
        if channel[0] == _STDERR:
            return [Stderr(data)]
        if channel[0] == _ERROR and not self._ended:
            self._status += data
            return self._exit()
        return []

    def _exit(self) -> list[Event]:
        """Give the end once the Status is whole: no rule says that it comes in one message."""
        try:
            status = json.loads(self._status)
        except ValueError:
            return []
        self._ended = True
        return [_exit_of(status)]

    def end(self) -> list[Event]:
        """Take the end of the stream: a Status that never became one is still shown."""
        if self._ended or not self._status:
            return []
        self._ended = True
        return [Exit(None, self._status.decode("utf-8", "replace").strip())]

    def stdin(self, data: bytes) -> bytes:
        """Build the message that gives *data* to the command."""
        return bytes((_STDIN,)) + data

    def stdin_end(self) -> bytes | None:
        """Build the message that ends the command's input; None in v4, which has none."""
        return bytes((_CLOSE, _STDIN)) if self.protocol == V5 else None


def _exit_of(status: Any) -> Exit:
    """Read the end of a command off channel 3's Status (k8s.io/client-go ``tools/remotecommand/v4.go``)."""
    if not isinstance(status, Mapping):
        return Exit(None, str(status))
    if status.get("status") == "Success":
        return Exit(0)
    message, reason = str(status.get("message") or ""), str(status.get("reason") or "")
    if reason == "NonZeroExitCode":
        for cause in (status.get("details") or {}).get("causes") or ():
            text = str(cause.get("message") or "")
            if cause.get("reason") == "ExitCode" and text.isdecimal():
                return Exit(int(text), message, reason)
    code = status.get("code")
    return Exit(None, message or reason, reason, code if isinstance(code, int) else None)
