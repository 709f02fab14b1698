"""What one thread writes, read by another as it comes: packing and sending at the same time, in constant memory."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Generator
from queue import Empty, Queue
from typing import IO, Any

PIECE = 1 << 20
"""Most bytes of a piece."""
_PIECES = 4
"""How many may wait to be read."""
_PATIENCE = 0.1
_LAST_WORDS = 1.0


def written(write: Callable[[IO[bytes]], None]) -> Generator[bytes, None, None]:
    """
    Give what *write* writes in a thread of its own, in pieces; an empty one where nothing has come for 0.1 s.

    What *write* raises is raised here. Close the iterator: its next write then fails, so that the thread ends.
    """
    pieces: Queue[bytes | BaseException | None] = Queue(_PIECES)
    unread = threading.Event()

    def work() -> None:
        try:
            with io.BufferedWriter(_Pieces(pieces, unread), PIECE) as out:
                write(out)
        except BaseException as error:
            pieces.put(error)
        else:
            pieces.put(None)

    thread = threading.Thread(target=work, name="nemo-run-pack", daemon=True)
    thread.start()
    try:
        while True:
            try:
                piece = pieces.get(timeout=_PATIENCE)
            except Empty:
                yield b""
                continue
            if piece is None:
                return
            if isinstance(piece, BaseException):
                raise piece
            yield piece
    finally:
        unread.set()
        while not pieces.empty():
            pieces.get_nowait()
        thread.join(_LAST_WORDS)  # it may hang in a read of a network file system, which nothing ends


class _Pieces(io.RawIOBase):
    """Puts all that is written into a queue, until nobody reads it any more."""

    def __init__(self, pieces: Queue[bytes | BaseException | None], unread: threading.Event) -> None:
        self._pieces = pieces
        self._unread = unread
        self._size = 0

    def tell(self) -> int:
        return self._size

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self._unread.is_set():
            raise BrokenPipeError("nobody reads the archive any more")
        piece = bytes(data)
        self._pieces.put(piece)
        self._size += len(piece)
        return len(piece)
