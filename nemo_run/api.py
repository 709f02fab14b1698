"""Functions that build objects, turned into functions that give the objects' configs; and dry runs of configs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from nemo_run.config import Config, Partial
    from nemo_run.core.execution.base import Executor

P = ParamSpec("P")
T = TypeVar("T")


def default_autoconfig_buildable(fn: Callable[..., Any], cls: Any, *args: Any, **kwargs: Any) -> Any:
    """
    Give what *fn* builds as a *cls*, a list of them if it builds a list.

    Calls inside *fn* become configs, except those of functions that give configs already.
    """
    import fiddle as fdl
    from fiddle.experimental import auto_config

    configured = auto_config.auto_config(
        fn,
        experimental_allow_control_flow=False,
        experimental_allow_dataclass_attribute_access=True,
        experimental_exemption_policy=_gives_configs,
    ).as_buildable(*args, **kwargs)
    if isinstance(configured, list):
        return [fdl.cast(cls, item) for item in configured]
    return fdl.cast(cls, configured)


def _gives_configs(called: Any) -> bool:
    from nemo_run.config import Config, Partial

    return called is Config or called is Partial or bool(getattr(called, "__auto_config__", False))


@overload
def autoconvert(fn: Callable[P, Config[T]], *, partial: bool = False) -> Callable[P, Config[T]]: ...
@overload
def autoconvert(fn: Callable[P, Partial[T]], *, partial: bool = False) -> Callable[P, Partial[T]]: ...
@overload
def autoconvert(fn: Callable[P, T], *, partial: bool = False) -> Callable[P, Config[T]]: ...
@overload
def autoconvert(*, partial: Literal[True]) -> Callable[[Callable[P, Any]], Callable[P, Partial[Any]]]: ...
@overload
def autoconvert(*, partial: Literal[False] = False) -> Callable[[Callable[P, Any]], Callable[P, Config[Any]]]: ...
def autoconvert(
    fn: Callable[..., Any] | None = None,
    *,
    partial: bool = False,
    to_buildable_fn: Callable[..., Any] = default_autoconfig_buildable,
) -> Any:
    """
    Make a function that builds objects give their configs instead.

    ```python
    @run.autoconvert
    def small() -> Model:
        return Model(layers=2)


    small()  # <Config[Model(layers=2)]>
    ```

    Args:
        fn: the function; without it this is a decorator.
        partial: give a Partial, not a Config.
        to_buildable_fn: does the work; called with the function, the class and the arguments.
    """

    def convert(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def converted(*args: Any, **kwargs: Any) -> Any:
            from nemo_run.config import Config, Partial

            return to_buildable_fn(fn, Partial if partial else Config, *args, **kwargs)

        # fiddle and the command line know such functions by these.
        vars(converted).update(wrapped=fn, __auto_config__=True)
        return converted

    return convert if fn is None else convert(fn)


def dryrun_fn(configured_fn: Any, executor: Executor | None = None, build: bool = False) -> None:
    """
    Show what *configured_fn* would be called with; *build* also builds it.

    Raises:
        TypeError: it is no config.
    """
    from nemo_run.run.task import dryrun_fn as show

    show(configured_fn, executor, build)
