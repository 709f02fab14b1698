"""The names for tasks that are resolved on the cluster; they belong to the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from nemo_run.cli import missing


def lazy_imports(fallback_to_lazy: bool = False) -> NoReturn:
    """Refuse to postpone imports."""
    missing("run.lazy_imports")


class LazyEntrypoint:
    """Describes a task by its name; it can be built, not resolved."""

    def __init__(
        self,
        target: Callable[..., Any] | str,
        factory: Callable[..., Any] | str | None = None,
        yaml: str | Path | None = None,
        overwrites: list[str] | None = None,
    ) -> None:
        self.target = target
        self.factory = factory
        self.yaml = yaml
        self.overwrites = list(overwrites or [])

    def resolve(self, ctx: Any = None) -> NoReturn:
        """Refuse to resolve."""
        missing("run.LazyEntrypoint")
