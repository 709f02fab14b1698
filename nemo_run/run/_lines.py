"""Lines of a file that may still be growing."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_CHUNK = 1 << 16


class LineReader:
    """
    Reads the lines of a file as they get complete.

    Bytes that are no UTF-8 become replacement characters; a file that is not
    there has no lines.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""
        self._file: BinaryIO | None = None

    def __enter__(self) -> LineReader:
        self._file = open(self._path, "rb") if self._path.exists() else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file:
            self._file.close()

    def lines(self) -> Iterator[str]:
        """Give the lines that have become complete since the last look."""
        while self._file and (chunk := self._file.read(_CHUNK)):
            *complete, self._partial = (self._partial + self._decoder.decode(chunk)).split("\n")
            yield from complete

    def rest(self) -> Iterator[str]:
        """Give the lines up to the end, also a last one without its newline."""
        yield from self.lines()
        self._partial += self._decoder.decode(b"", final=True)
        if self._partial:
            yield self._partial
            self._partial = ""
