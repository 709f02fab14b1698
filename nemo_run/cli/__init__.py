"""
The names of the command line that scripts use.

Decorated modules import and their functions work as ever; this version has no
command line, and what would start it says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from nemo_run.exceptions import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

__all__ = [
    "create_cli",
    "entrypoint",
    "factory",
    "list_entrypoints",
    "list_factories",
    "main",
    "parse_cli_args",
    "parse_config",
    "parse_partial",
    "resolve_factory",
]


def missing(name: str) -> NoReturn:
    """Refuse *name*, which belongs to the command line."""
    raise ConfigError(
        "cli", name, "this version has no command line; call run.run(...) or use run.Experiment in a script"
    )


def factory(
    fn: Any = None,
    target: Any = None,
    *,
    target_arg: str | None = None,
    is_target_default: bool = False,
    name: str | None = None,
    namespace: str | None = None,
) -> Any:
    """Give the function back as it is."""
    if target_arg and not target:
        raise ConfigError("target_arg", target_arg, "names an argument of target, so give target too")
    return _same if fn is None else fn


def entrypoint(
    fn: Any = None,
    *,
    name: str | None = None,
    namespace: str | None = None,
    help: str | None = None,
    skip_confirmation: bool = False,
    enable_executor: bool = True,
    default_factory: Callable[..., Any] | None = None,
    default_executor: Any = None,
    default_plugins: list[Any] | None = None,
    entrypoint_cls: type[Any] | None = None,
    type: str = "task",
    run_ctx_cls: Any = None,
) -> Any:
    """Give the function back as it is."""
    return _same if fn is None else fn


def _same(fn: F) -> F:
    return fn


def main(
    fn: Callable[..., Any],
    default_factory: Callable[..., Any] | None = None,
    default_executor: Any = None,
    default_plugins: Any = None,
    cmd_defaults: dict[str, Any] | None = None,
    **kwargs: Any,
) -> NoReturn:
    """Refuse to start."""
    missing("run.cli.main")


def create_cli(add_verbose_callback: bool = False, nested_entrypoints_creation: bool = True) -> NoReturn:
    """Refuse to start."""
    missing("run.cli.create_cli")


def resolve_factory(target: Any, name: str) -> NoReturn:
    """Refuse to look up a factory: none is registered."""
    missing("run.cli.resolve_factory")


def list_entrypoints(namespace: str | None = None) -> NoReturn:
    """Refuse to list entrypoints: none is registered."""
    missing("run.cli.list_entrypoints")


def list_factories(type_or_namespace: Any) -> NoReturn:
    """Refuse to list factories: none is registered."""
    missing("run.cli.list_factories")


def parse_cli_args(fn: Any, args: list[str], output_type: Any = None) -> NoReturn:
    """Refuse to parse."""
    missing("run.cli.parse_cli_args")


def parse_config(fn: Any, *args: str) -> NoReturn:
    """Refuse to parse."""
    missing("run.cli.parse_config")


def parse_partial(fn: Any, *args: str) -> NoReturn:
    """Refuse to parse."""
    missing("run.cli.parse_partial")
