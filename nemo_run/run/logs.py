"""Print what a job has written."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from nemo_run.run.job import Runner

logger = logging.getLogger("nemo_run")

_NOT_STARTED = 3
"""``AppState.RUNNING``: before it there is no output."""


def get_logs(
    file: TextIO,
    identifier: str,
    regex: str | None,
    should_tail: bool = False,
    runner: Runner | None = None,
    streams: Any = None,
    wait_timeout: int = 10,
) -> None:
    """
    Write the lines of the job with the handle *identifier* to *file*.

    Waits up to *wait_timeout* seconds for a job that has not begun to run.
    """
    from nemo_run.run._runner import get_runner

    runner = runner or get_runner()
    for _ in range(wait_timeout):
        now = runner.status(identifier)
        if now is None or now.state >= _NOT_STARTED:
            break
        logger.info("%s has not begun to run: %s", identifier, now)
        time.sleep(1)
    if should_tail:
        runner.wait(identifier, log=True)
        return
    for line in runner.log_lines(identifier, regex=regex):
        file.write(f"{line}\n")
    file.flush()
