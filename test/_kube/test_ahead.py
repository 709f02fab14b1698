"""What a thread writes comes out here; it ends when nobody reads any more."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from typing import IO

import pytest

from nemo_run._kube.ahead import PIECE, written


def thread_of_ours() -> threading.Thread | None:
    return next((thread for thread in threading.enumerate() if thread.name == "nemo-run-pack"), None)


def test_gives_all_that_is_written_in_pieces():
    data = os.urandom(3 * PIECE + 5)

    def write(out: IO[bytes]) -> None:
        for start in range(0, len(data), 1000):
            out.write(data[start : start + 1000])
        assert out.tell() == len(data)

    pieces = [piece for piece in written(write) if piece]
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= PIECE
    assert len(pieces) < 8


def test_gives_nothing_for_as_long_as_nothing_is_written():
    go_on = threading.Event()

    def write(out: IO[bytes]) -> None:
        go_on.wait(60)
        out.write(b"late")

    with closing(written(write)) as pieces:
        assert next(pieces) == b""
        go_on.set()
        assert b"".join(pieces) == b"late"


def test_raises_what_the_writer_raises():
    def write(out: IO[bytes]) -> None:
        out.write(b"so far")
        raise LookupError("a file has gone")

    with closing(written(write)) as pieces, pytest.raises(LookupError, match="a file has gone"):
        list(pieces)


def test_a_writer_that_nobody_reads_ends():
    ended: list[OSError] = []

    def write(out: IO[bytes]) -> None:
        try:
            while True:
                out.write(bytes(PIECE))
        except OSError as error:
            ended.append(error)
            raise

    pieces = written(write)
    assert next(pieces) is not None
    thread = thread_of_ours()
    assert thread is not None
    pieces.close()
    thread.join(60)
    assert (str(ended[0]), thread.is_alive()) == ("nobody reads the archive any more", False)
