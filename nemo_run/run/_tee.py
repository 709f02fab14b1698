"""Output of this process, shown and kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO


class Tee:
    """A text stream that passes on what is written to it, and writes it to a file too."""

    def __init__(self, stream: TextIO, file: TextIO) -> None:
        self._stream = stream
        self._file = file

    def write(self, text: str) -> int:
        """Write *text* to both."""
        self._file.write(text)
        return self._stream.write(text)

    def flush(self) -> None:
        """Flush both."""
        self._file.flush()
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def kept_output(path: Path) -> Iterator[None]:
    """Add to *path* what this process prints meanwhile."""
    with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
        out: Any = Tee(sys.stdout, file)
        err: Any = Tee(sys.stderr, file)
        with redirect_stdout(out), redirect_stderr(err):
            yield
