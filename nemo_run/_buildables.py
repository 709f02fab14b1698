"""
``Config`` and ``Partial``; their public home is ``nemo_run.config``.

They live here because their base classes come from fiddle, whose import takes
half a second that a plain ``run.Script`` job need not pay. ``nemo_run.config``
imports them when they are first touched. They name that module as their own,
which is what saved experiments refer to.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import logging
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import fiddle as fdl
from fiddle._src import daglish
from fiddle._src.casting import register_supported_cast

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)

_T = TypeVar("_T")


class _Verbs:
    """What a Config can do besides being built."""

    def clone(self) -> Self:
        """Give a deep copy."""
        return copy.deepcopy(self)

    def walk(self, **functions: Callable[[Any], Any]) -> Self:
        """
        Set each named argument, here and in the configs below, to what its function gives.

        A function is called with the config that has the argument, once for
        each such config. Changes this config in place and returns it.
        """
        for node in _nodes(self):
            for name, function in functions.items():
                if _has(node, name):
                    setattr(node, name, function(node))
        return self

    def broadcast(self, **values: Any) -> Self:
        """
        Set each named argument, here and in the configs below, where there is one of that name.

        Changes this config in place and returns it.
        """
        for node in _nodes(self):
            for name, value in values.items():
                if _has(node, name):
                    setattr(node, name, value)
        return self

    def visualize(self, **kwargs: Any) -> Any:
        """Draw this config as a ``graphviz.Graph``."""
        from fiddle.graphviz import render

        return render(self, **kwargs)

    def diff(self, old: Self, trim: bool = True, **kwargs: Any) -> Any:
        """Draw what changed since *old* as a ``graphviz.Graph``."""
        from fiddle.graphviz import render_diff

        return render_diff(old=old, new=self, trim=trim, **kwargs)

    def save_config_img(self, path_str: str) -> None:
        """
        Draw this config into a PNG file; a path without suffix is a directory to hold ``config.png``.

        Raises:
            ValueError: the path has another suffix than ``.png``.
        """
        save_image(self.visualize(), path_str)

    def _repr_svg_(self) -> str | None:
        return svg(self.visualize)


class Config(fdl.Config[_T], Generic[_T], _Verbs):  # type: ignore[misc]
    """
    What to call and with which arguments; ``fdl.build`` calls it.

    A ``fiddle.Config`` to whatever takes one. Unless *bind_args* is false,
    arguments that are dataclass instances become configs themselves, and
    parameters annotated with ``OptionalDefaultConfig`` get a config of their
    type unless an argument, be it None, is given.
    """

    def __init__(
        self, fn_or_cls: Callable[..., _T] | dict[Any, Any], *args: Any, bind_args: bool = True, **kwargs: Any
    ) -> None:
        make: Any = fn_or_cls
        if (isinstance(make, dict) and not make) or typing.get_origin(make) is dict:
            make, bind_args = dict, False
        if bind_args and not isinstance(make, fdl.Buildable):
            args, kwargs = bound_arguments(make, args, kwargs)
        super().__init__(make, *args, **kwargs)

    @classmethod
    def __unflatten__(cls, values: Iterable[Any], metadata: Any) -> Any:
        # fiddle checks argument names against the callable's signature, and dict has none.
        if metadata.fn_or_cls is dict:
            return cls({}, bind_args=False, **metadata.arguments(values))
        return super().__unflatten__(values, metadata)


class Partial(fdl.Partial[_T], Generic[_T], _Verbs):  # type: ignore[misc]
    """
    What to call later and with which arguments; ``fdl.build`` gives a callable.

    A ``fiddle.Partial`` to whatever takes one. Arguments are bound as in `Config`.
    """

    def __init__(self, fn_or_cls: Callable[..., _T], *args: Any, bind_args: bool = True, **kwargs: Any) -> None:
        if bind_args and not isinstance(fn_or_cls, fdl.Buildable):
            args, kwargs = bound_arguments(fn_or_cls, args, kwargs)
        super().__init__(fn_or_cls, *args, **kwargs)


for _class in (Config, Partial):
    _class.__module__ = "nemo_run.config"
for _old in (fdl.Config, fdl.Partial, Config, Partial):
    for _new in (Config, Partial):
        register_supported_cast(_old, _new)

OptionalDefaultConfig = Annotated[_T | None, Config[_T]]
OptionalDefaultPartial = Annotated[_T | None, Partial[_T]]


def bound_arguments(
    fn_or_cls: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Give the arguments with dataclass instances as configs, and with the configs that annotations ask for."""
    bound = {name: as_config(value) if _is_instance(value) else value for name, value in kwargs.items()}
    for position, (name, parameter) in enumerate(_parameters(fn_or_cls).items()):
        if name not in bound and position >= len(args) and (default := _default_config(parameter.annotation)):
            bound[name] = default
    return tuple(as_config(value) if _is_instance(value) else value for value in args), bound


def as_config(value: Any) -> Any:
    """
    Give *value* with every dataclass instance in it, itself included, as a `Config` that builds its equal.

    Lists, tuples, dicts and sets are copied: the result shares none with
    *value*. What stands twice in *value* stands twice in the result too.
    """

    def convert(value: Any, state: Any) -> Any:
        if _is_instance(value):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
            value = Config(type(value), bind_args=False, **fields)
        elif isinstance(value, set | bytearray):
            return copy.copy(value)
        return state.map_children(value) if state.is_traversable(value) else value

    return convert(value, daglish.MemoizedTraversal(convert, value).initial_state())


def save_image(graph: Any, path_str: str) -> None:
    """Write *graph* as PNG; a path without suffix is a directory to hold ``config.png``."""
    path = Path(path_str)
    if not path.suffix:
        path = path / "config.png"
    if path.suffix != ".png":
        raise ValueError(f"{path_str}: the image is a PNG; write a path that ends in .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(graph.pipe("png"))


def svg(draw: Callable[[], Any]) -> str | None:
    """Give what *draw* draws as SVG; None, on which Jupyter shows the repr, where graphviz cannot."""
    import graphviz

    try:
        return str(draw().pipe(format="svg").decode("utf-8"))
    except (graphviz.ExecutableNotFound, graphviz.CalledProcessError) as error:
        logger.debug("cannot draw a config: %s", error)
        return None


def _is_instance(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _parameters(fn_or_cls: Any) -> Mapping[str, inspect.Parameter]:
    """Give the parameters of *fn_or_cls*; none where Python cannot tell, as for some built-ins."""
    try:
        parameters = inspect.signature(fn_or_cls).parameters
        if any(isinstance(p.annotation, str) and "OptionalDefault" in p.annotation for p in parameters.values()):
            return inspect.signature(fn_or_cls, eval_str=True).parameters
    except (TypeError, ValueError, NameError):
        return {}
    return parameters


def _default_config(annotation: Any) -> Any:
    """Give the config that ``Annotated[X | None, Config[X]]`` asks for, else None."""
    if typing.get_origin(annotation) is not Annotated:
        return None
    optional, wanted, *_ = typing.get_args(annotation)
    buildable = typing.get_origin(wanted)
    if not (isinstance(buildable, type) and issubclass(buildable, fdl.Buildable)):
        return None
    target = next((arg for arg in typing.get_args(optional) if arg is not type(None)), None)
    return None if target is None else buildable(target)


def _nodes(root: Any) -> Iterator[Any]:
    """Give *root* and the configs that are its arguments, and theirs, each once; not those inside lists or dicts."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += [value for value in node.__arguments__.values() if isinstance(value, fdl.Config | fdl.Partial)]


def _has(node: Any, name: str) -> bool:
    try:
        return hasattr(node, name)
    except ValueError:  # fiddle's answer for a dataclass field with a default factory
        return True
