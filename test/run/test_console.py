"""What people see: words for machines in a pipe, colour on a terminal."""

from __future__ import annotations

import io
import logging
import re
from contextlib import redirect_stdout

import pytest

from nemo_run.run._console import Console, shown_logging

_FACTS = [("Task 0", "train"), ("Status", "RUNNING"), ("Local Directory", "/home/a/" + "very-long/" * 30)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Ascii(io.TextIOWrapper):
    def __init__(self):
        super().__init__(io.BytesIO(), encoding="ascii")


@pytest.fixture
def colours(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def everything(console):
    console.rule("Entering Experiment a")
    console.log("state [bold]changed[/bold]", style="bold red")
    console.print("text", style="bold")
    console.status("a_1", [_FACTS])
    console.goodbye("a_1", ["train", "eval"])
    console.output("train/0", "step 1")


def test_a_pipe_gets_no_control_codes_and_no_broken_lines(capsys):
    everything(Console())
    text = capsys.readouterr().out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert f"- Local Directory: {_FACTS[2][1]}\n" in text
    assert "[bold]changed[/bold]" in text


def test_programs_find_the_id_in_the_status_and_in_the_goodbye(capsys):
    everything(Console())
    text = capsys.readouterr().out
    assert re.findall(r'Experiment\.from_id\("(.*)"\)', text) == ["a_1"]
    assert re.findall(r"Experiment Status for (\S+)", text) == ["a_1"]


def test_the_status_is_a_block_for_each_task(capsys):
    Console().status("a_1", [_FACTS[:2], [("Task 1", "eval"), ("Status", "PENDING (no node)")]])
    assert capsys.readouterr().out == (
        "\nExperiment Status for a_1\n\n"
        "Task 0: train\n- Status: RUNNING\n\n"
        "Task 1: eval\n- Status: PENDING (no node)\n\n"
    )


def test_a_terminal_gets_colour_around_the_same_words(colours):
    with redirect_stdout(Terminal()) as terminal:
        everything(Console())
    text = terminal.getvalue()
    assert "\x1b[" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert f"- Local Directory: {_FACTS[2][1]}" in plain
    assert 'Experiment.from_id("a_1")' in plain
    assert "[bold]changed[/bold]" in plain


def test_output_that_is_nobody_else_s_is_written_as_it_is(colours):
    with redirect_stdout(Terminal()) as terminal:
        Console().output("", "step 1")
    assert terminal.getvalue() == "step 1\n"


def test_a_terminal_without_colour_gets_none(colours, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    with redirect_stdout(Terminal()) as terminal:
        everything(Console())
    codes = {code for codes in re.findall(r"\x1b\[([0-9;]*)m", terminal.getvalue()) for code in codes.split(";")}
    assert codes <= {"0", "1", "2", "3"}  # bold, dim and italic are no colours


def test_a_jobs_own_output_passes_unchanged(capsys):
    Console().output("", "\x1b[31mred\x1b[0m [bold]x[/bold] 50%\r100%")
    assert capsys.readouterr().out == "\x1b[31mred\x1b[0m [bold]x[/bold] 50%\r100%\n"


def test_a_quiet_console_shows_jobs_only(capsys):
    everything(Console(quiet=True))
    assert capsys.readouterr().out == "train/0 step 1\n"


def test_an_ascii_stream_does_not_end_a_jobs_log():
    with redirect_stdout(Ascii()) as stream:
        Console().output("train/0", "caf\xe9")
    assert stream.buffer.getvalue() == b"train/0 caf\\xe9\n"


def test_messages_of_nemo_run_are_shown_from_the_level_up_and_only_meanwhile(capsys, request):
    logger = logging.getLogger("nemo_run")
    handlers, propagate = logger.handlers[:], logger.propagate
    logger.handlers, logger.propagate = [], False
    request.addfinalizer(lambda: (setattr(logger, "handlers", handlers), setattr(logger, "propagate", propagate)))
    before = logger.level
    with shown_logging(Console(), "info"):
        logger.info("shown %s", "once")
        logger.debug("not shown")
    logger.error("not shown any more")
    assert re.fullmatch(r"\[\d\d:\d\d:\d\d\] INFO     shown once\n", capsys.readouterr().out)
    assert (logger.level, logger.handlers) == (before, [])


def test_a_program_that_set_up_logging_keeps_its_own_handlers(capsys):
    logger = logging.getLogger("nemo_run")
    logger.addHandler(own := logging.NullHandler())
    try:
        with shown_logging(Console(), "INFO"):
            assert logger.handlers == [own]
    finally:
        logger.removeHandler(own)


def test_a_signal_handler_may_write_while_the_program_does(monkeypatch, tmp_path):
    """Python refuses to enter a buffered stream again that it is just writing to."""

    class Busy(io.StringIO):
        encoding = "utf-8"

        def write(self, text):
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stdout>'>")

        def fileno(self):
            return file.fileno()

    with (tmp_path / "out").open("wb") as file:
        monkeypatch.setattr("sys.stdout", Busy())
        Console().print("deleted é")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "deleted é\n"
