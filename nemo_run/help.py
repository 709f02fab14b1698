"""``run.help``: what a task or a factory takes, once there is a command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nemo_run.cli import missing


def help(entity: Callable[..., Any], with_docs: bool = True, console: Any = None, namespace: str | None = None) -> None:
    """Say that there is no command line yet."""
    missing("run.help")
