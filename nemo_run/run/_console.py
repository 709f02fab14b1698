"""
What people see: the only module that draws.

On a terminal it draws with rich; anywhere else it writes plain lines without
control codes, of any length, so that logs of CI systems and programs that parse
them get the same words. A job's own output passes through unchanged.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_lock = threading.RLock()
"""Lines of several jobs, and ours between them, never run into each other."""

GOODBYE = """
# The experiment ran these tasks: {tasks}
# Look at it again later, from any process:
experiment = run.Experiment.from_id("{experiment_id}")
experiment.status() # how each task stands
experiment.logs("{first}") # what a task has written
experiment.cancel("{first}") # end a task that still runs
"""


class Console:
    """Writes to whatever ``sys.stdout`` is at that moment; *quiet* leaves only jobs' own output."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    def rule(self, title: str) -> None:
        """Draw a line with *title* in it."""
        if self.quiet:
            return
        with _lock:
            if _on_terminal():
                _rich().rule(f"[bold magenta]{_escaped(title)}")
            else:
                _write(f"--- {title} ---")

    def log(self, message: str, *, style: str = "") -> None:
        """Write one message of ours, with the time before it."""
        if self.quiet:
            return
        stamp = time.strftime("[%H:%M:%S]")
        with _lock:
            if _on_terminal():
                _rich().print(
                    f"[dim]{_escaped(stamp)}[/dim] {_styled(message, style)}", soft_wrap=True, highlight=False
                )
            else:
                _write(f"{stamp} {message}")

    def print(self, text: str = "", *, style: str = "") -> None:
        """Write *text* as it stands."""
        if self.quiet:
            return
        with _lock:
            if _on_terminal():
                _rich().print(_styled(text, style), soft_wrap=True, highlight=False)
            else:
                _write(text)

    def code(self, text: str, language: str) -> None:
        """Write a piece of code; on a terminal in colour."""
        if self.quiet:
            return
        with _lock:
            if not _on_terminal():
                _write(text)
                return
            from rich.syntax import Syntax

            theme = os.environ.get("NEMO_RUN_CODE_THEME", "monokai")
            _rich().print(Syntax(text, language, theme=theme, background_color="default"), soft_wrap=True)

    def output(self, prefix: str, text: str) -> None:
        """Write a line of a job's own output, unchanged but for the *prefix* that says whose it is."""
        with _lock:
            if prefix and _on_terminal() and not os.environ.get("NO_COLOR"):
                prefix = f"\x1b[32m{prefix}\x1b[0m"
            _write(f"{prefix} {text}" if prefix else text)

    def status(self, experiment_id: str, tasks: Iterable[Sequence[tuple[str, str]]]) -> None:
        """Write how each task stands: a heading line, then labelled facts."""
        self.print()
        if not self.quiet:
            with _lock:
                if _on_terminal():
                    _rich().print(
                        f"[bold green]Experiment Status for[/] [bold orange1]{_escaped(experiment_id)}",
                        soft_wrap=True,
                        highlight=False,
                    )
                else:
                    _write(f"Experiment Status for {experiment_id}")
        for (heading, name), *facts in tasks:
            self.print()
            self._fact("", heading, name, "bold orange1")
            for label, value in facts:
                self._fact("- ", label, value, "")
        self.print()

    @contextmanager
    def board(self, title: str, rows: Callable[[], Sequence[tuple[str, str, bool]]]) -> Iterator[None]:
        """
        Show, on a terminal, how jobs stand for as long as this lasts.

        *rows* gives name and state of each, and whether it has ended.
        """
        if self.quiet or not _on_terminal():
            yield
            return
        from rich.live import Live

        board = _Board(title, rows)
        with Live(board, console=_rich(), refresh_per_second=4):
            yield

    def goodbye(self, experiment_id: str, tasks: Sequence[str]) -> None:
        """Write how to find the experiment again."""
        facts = {"experiment_id": experiment_id, "tasks": list(tasks), "first": tasks[0] if tasks else ""}
        self.code(GOODBYE.format(**facts), "python")

    def _fact(self, bullet: str, label: str, value: str, style: str) -> None:
        if self.quiet:
            return
        with _lock:
            if _on_terminal():
                text = f"{bullet}[bold green]{_escaped(label)}[/]: {_styled(value, style)}"
                _rich().print(text, soft_wrap=True, highlight=False)
            else:
                _write(f"{bullet}{label}: {value}")


class _Board:
    """Draws the rows as they are at that moment."""

    def __init__(self, title: str, rows: Callable[[], Sequence[tuple[str, str, bool]]]) -> None:
        from rich.spinner import Spinner

        self._title = title
        self._rows = rows
        self._began = time.monotonic()
        self._spinner = Spinner("dots")
        self._ended: dict[str, float] = {}

    def __rich__(self) -> Any:
        from rich.panel import Panel
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        now = time.monotonic() - self._began
        for name, state, ended in self._rows():
            seconds = self._ended.setdefault(name, now) if ended else now
            style = "bold red" if state in ("FAILED", "CANCELLED") else "bold green"
            took = f"{int(seconds) // 60:d}:{int(seconds) % 60:02d}"
            table.add_row("" if ended else self._spinner, _styled(name, style), state, took)
        return Panel(table, title=_styled(self._title, "bold"), padding=(1, 3))


class _Handler(logging.Handler):
    """Shows log records of ``nemo_run`` between the other lines."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        style = "bold red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else ""
        self.console.log(f"{record.levelname:<8} {record.getMessage()}", style=style)


@contextmanager
def shown_logging(console: Console, level: str) -> Iterator[None]:
    """
    Show what the logger ``nemo_run`` says from *level* up, for as long as this lasts.

    Where the program set up logging itself, its handlers are left to do that; the
    root logger is never touched.
    """
    logger = logging.getLogger("nemo_run")
    before = logger.level
    handler = None if logger.hasHandlers() else _Handler(console)
    if before == logging.NOTSET or handler:
        logger.setLevel(level.upper())
    if handler:
        logger.addHandler(handler)
    try:
        yield
    finally:
        if handler:
            logger.removeHandler(handler)
        logger.setLevel(before)


def _on_terminal() -> bool:
    isatty = getattr(sys.stdout, "isatty", None)
    return bool(isatty and isatty()) and os.environ.get("TERM") != "dumb"


def _write(text: str) -> None:
    stream = sys.stdout
    try:
        stream.write(text + "\n")
    except UnicodeEncodeError:  # an ASCII terminal must not end a job's log
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    except RuntimeError:  # in a signal handler, while the program itself is writing: around its buffer, then
        os.write(stream.fileno(), f"{text}\n".encode(stream.encoding or "ascii", "backslashreplace"))
        return
    stream.flush()


def _rich() -> Any:
    from rich.console import Console as RichConsole

    return RichConsole(file=sys.stdout)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _styled(text: str, style: str) -> str:
    return f"[{style}]{_escaped(text)}[/]" if style else _escaped(text)
