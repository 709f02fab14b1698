"""The exec channels, on messages as a Kubernetes 1.36 API server sends them."""

from __future__ import annotations

import json

import pytest

from nemo_run._kube.channels import PROTOCOLS, V4, V5, Channels, Exit, Stderr, Stdout

OPENING = [b"\x01", b"\x02", b"\x03"]
SUCCESS = b'\x03{"metadata":{},"status":"Success"}'
EXIT_3 = (
    b'\x03{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: exit status 3",'
    b'"reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}'
)
NO_SUCH_COMMAND = (
    b'\x03{"metadata":{},"status":"Failure","message":"Internal error occurred: error executing command in container: '
    b'failed to exec in container: exec: \\"tar\\": executable file not found in $PATH: unknown",'
    b'"reason":"InternalError","details":{"causes":[{"message":"error executing command"}]},"code":500}'
)


def played(*messages: bytes, protocol: str = V5) -> list[object]:
    channels = Channels(protocol)
    events: list[object] = []
    for message in messages:
        events += channels.feed(message)
    return events + list(channels.end())


def test_offers_v5_first():
    assert PROTOCOLS == (V5, V4)


def test_output_and_success():
    """Servers open with one empty message a channel, which say nothing."""
    assert played(*OPENING, b"\x01out\x00\xff", b"\x02err", b"\x01more", SUCCESS) == [
        Stdout(b"out\x00\xff"),
        Stderr(b"err"),
        Stdout(b"more"),
        Exit(0),
    ]


def test_an_exit_code_is_kept():
    assert played(EXIT_3) == [
        Exit(3, "command terminated with non-zero exit code: exit status 3", "NonZeroExitCode"),
    ]


def test_a_command_that_could_not_start_has_no_exit_code():
    (end,) = played(NO_SUCH_COMMAND)
    assert (end.code, end.reason, end.status) == (None, "InternalError", 500)
    assert '"tar": executable file not found in $PATH' in end.message


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"status": "Failure", "reason": "NonZeroExitCode"}, Exit(None, "NonZeroExitCode", "NonZeroExitCode")),
        (
            {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [{"reason": "ExitCode"}]}},
            Exit(None, "NonZeroExitCode", "NonZeroExitCode"),
        ),
        ({"status": "Failure", "message": "m"}, Exit(None, "m")),
        ("nonsense", Exit(None, "nonsense")),
    ],
    ids=["no details", "no code", "no reason", "no object"],
)
def test_a_status_without_a_code(status, expected):
    assert played(b"\x03" + json.dumps(status).encode()) == [expected]


@pytest.mark.parametrize("cut", [1, 5, len(EXIT_3) - 2])
def test_a_status_may_come_in_pieces(cut):
    assert played(EXIT_3[:cut], b"\x03" + EXIT_3[cut:])[-1].code == 3


def test_a_broken_status_is_shown_at_the_end_of_the_stream():
    assert played(b"\x03{half a status") == [Exit(None, "{half a status")]


def test_only_the_first_status_counts():
    assert played(SUCCESS, EXIT_3) == [Exit(0)]


def test_a_stream_without_a_status_says_nothing_of_the_command():
    assert played(b"\x01out") == [Stdout(b"out")]


def test_unknown_channels_and_empty_messages_are_passed_over():
    assert played(b"", b"\x04size", b"\xff\x01", b"\x00x") == []


def test_input_and_its_end():
    assert Channels(V4).stdin(b"a\x00") == b"\x00a\x00"
    assert Channels(V5).stdin_end() == b"\xff\x00"
    assert Channels(V4).stdin_end() is None
