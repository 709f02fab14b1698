"""WebSocket frames, from bytes that arrive in any pieces."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_run._kube import frames
from nemo_run._kube.frames import FrameError, FrameReader, Message

MASK = b"\x37\xfa\x21\x3d"


def served(opcode: int, data: bytes, *, final: bool = True) -> bytes:
    """Build a frame as a server sends it: unmasked."""
    first = (0x80 if final else 0) | opcode
    if len(data) < 126:
        return struct.pack("!BB", first, len(data)) + data
    if len(data) < 65536:
        return struct.pack("!BBH", first, 126, len(data)) + data
    return struct.pack("!BBQ", first, 127, len(data)) + data


def test_a_masked_frame_is_that_of_the_rfc():
    """RFC 6455, 5.7: a single-frame masked text message "Hello"."""
    built = frames.frame(frames.TEXT, b"Hello", mask=MASK)
    assert built == bytes.fromhex("818537fa213d7f9f4d5158")


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_001])
def test_each_length_has_its_own_header(size):
    data = bytes(index % 251 for index in range(size))
    built = frames.frame(frames.BINARY, data, mask=MASK)
    header = len(built) - size - 4
    assert header == (2 if size < 126 else 4 if size < 65536 else 10)
    assert frames.masked(built[header + 4 :], MASK) == data


@pytest.mark.parametrize("size", [0, 125, 126, 65535, 65536])
def test_reads_each_length(size):
    assert FrameReader().feed(served(frames.BINARY, b"x" * size)) == [Message(frames.BINARY, b"x" * size)]


@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_pieces_do_not_matter(messages, data):
    """However the network cuts the stream, the same messages come out."""
    stream = b"".join(served(frames.BINARY, message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = FrameReader()
    found = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:end])
    assert found == [Message(frames.BINARY, message) for message in messages]


def test_a_header_may_come_byte_by_byte():
    reader = FrameReader()
    stream = served(frames.BINARY, b"x" * 65536)
    assert [reader.feed(stream[index : index + 1]) for index in range(11)] == [[]] * 11
    assert reader.feed(stream[11:]) == [Message(frames.BINARY, b"x" * 65536)]


def test_a_ping_may_stand_inside_a_fragmented_message():
    stream = (
        served(frames.BINARY, b"\x01ab", final=False)
        + served(frames.PING, b"?")
        + served(frames.CONTINUATION, b"cd", final=False)
        + served(frames.CONTINUATION, b"")
        + served(frames.BINARY, b"\x01e")
    )
    assert FrameReader().feed(stream) == [
        Message(frames.PING, b"?"),
        Message(frames.BINARY, b"\x01abcd"),
        Message(frames.BINARY, b"\x01e"),
    ]


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(served(frames.CONTINUATION, b"x"), id="goes on without a beginning"),
        pytest.param(
            served(frames.BINARY, b"x", final=False) + served(frames.BINARY, b"y"), id="begins inside another"
        ),
        pytest.param(frames.frame(frames.BINARY, b"x", mask=MASK), id="masked"),
        pytest.param(b"\xc2\x00", id="reserved bit"),
        pytest.param(b"\x82\x7f" + struct.pack("!Q", 1 << 40), id="absurd length"),
        pytest.param(
            served(frames.BINARY, b"", final=False) + served(frames.CONTINUATION, b"x" * (1 << 23), final=False) * 3,
            id="without an end",
        ),
    ],
)
def test_what_breaks_the_rfc_is_an_error(stream):
    with pytest.raises(FrameError):
        FrameReader().feed(stream)
