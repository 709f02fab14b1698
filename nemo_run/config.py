"""
What to run: ``Script``, ``Config`` and ``Partial``, and what is configurable.

Importing this module is cheap. ``Config`` and ``Partial`` bring fiddle with
them and are imported when they are first touched.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from nemo_run import _home
from nemo_run._lazy import lazy_attributes
from nemo_run.exceptions import ConfigError, SetValueError

if TYPE_CHECKING:
    from typing_extensions import Self

    from nemo_run._buildables import Config as Config
    from nemo_run._buildables import OptionalDefaultConfig as OptionalDefaultConfig
    from nemo_run._buildables import OptionalDefaultPartial as OptionalDefaultPartial
    from nemo_run._buildables import Partial as Partial
else:
    __getattr__, __dir__ = lazy_attributes(
        __name__,
        dict.fromkeys(("Config", "OptionalDefaultConfig", "OptionalDefaultPartial", "Partial"), "nemo_run._buildables"),
    )

_T = TypeVar("_T")

RUNDIR_NAME = "nemo_run"
"""Name of the directory that a job's code, configs and scripts are found under, from its root."""
RUNDIR_SPECIAL_NAME = "/$nemo_run"
"""Stands in mounts for the job's own directory."""
SCRIPTS_DIR = "scripts"
"""Where below it inline scripts are."""
USE_WITH_RAY_CLUSTER_KEY = "use_with_ray_cluster"
"""Key in a script's metadata: it wants a Ray cluster around it."""

_NEMORUN_HOME: str | None = None
"""What `set_nemorun_home` was given; None: the environment decides."""


def get_nemorun_home() -> str:
    """Give the directory that nemo_run keeps its state in."""
    return _home.default_home() if _NEMORUN_HOME is None else _NEMORUN_HOME


def set_nemorun_home(path: str) -> None:
    """Keep the state of this process's runs in *path*, whatever ``NEMORUN_HOME`` says."""
    global _NEMORUN_HOME
    _NEMORUN_HOME = os.path.expanduser(path)


class ConfigurableMixin:
    """
    Makes a class convertible to a `Config` of itself, and drawable.

    Works as it is for dataclasses; other classes override `to_config`.
    """

    def to_config(self) -> Config[Self]:
        """
        Give a Config that builds this object's equal; the two share no list, dict or set.

        Raises:
            NotImplementedError: the class is no dataclass and does not override this.
        """
        from nemo_run._buildables import as_config

        kind: Any = type(self)
        if not dataclasses.is_dataclass(kind):
            raise NotImplementedError(
                f"Cannot convert type {kind} to Config."
                f" Override the `to_config` method of {kind}, or make it a dataclass."
            )
        return typing.cast("Config[Self]", as_config(self))

    def visualize(self, **kwargs: Any) -> Any:
        """Draw this object's config as a ``graphviz.Graph``."""
        return self.to_config().visualize(**kwargs)

    def diff(self, old: Self, trim: bool = True, **kwargs: Any) -> Any:
        """Draw what changed since *old* as a ``graphviz.Graph``."""
        return self.to_config().diff(old.to_config(), trim=trim, **kwargs)

    def save_config_img(self, path_str: str) -> None:
        """
        Draw this object's config into a PNG file; a path without suffix is a directory to hold ``config.png``.

        Raises:
            ValueError: the path has another suffix than ``.png``.
        """
        self.to_config().save_config_img(path_str)

    def _repr_svg_(self) -> str | None:
        return self.to_config()._repr_svg_()


@dataclasses.dataclass
class Script(ConfigurableMixin):
    """
    A script to run: a file, or its text.

    ```python
    run.Script("scripts/train.sh", args=["--steps", "10"])
    run.Script("train.py", entrypoint="python", env={"SEED": "1"})
    run.Script(inline="nvidia-smi && python train.py")
    ```

    Raises:
        ConfigError: neither path nor text, no entrypoint, ``m`` without python, or ``args`` that are no list.
    """

    path: str = ""
    """The file, as the job sees it."""
    inline: str = ""
    """The text to run instead of a file."""
    args: list[str] = dataclasses.field(default_factory=list)
    """Arguments of the file; each one reaches it as it is, spaces, quotes and all. Not for inline text."""
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables that are set for it."""
    entrypoint: str = "bash"
    """The program that runs it."""
    m: bool = False
    """The path is a module's name: run ``python -m``."""
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Anything that plugins and executors want to know about it."""

    def __post_init__(self) -> None:
        if not (self.path or self.inline):
            raise ConfigError("path", self.path, "a script needs a path, or its text in inline=")
        args: Any = self.args
        if isinstance(args, str):
            raise ConfigError("args", args, f"write a list: args={args.split()!r}")
        if any("\ud800" <= char <= "\udfff" for char in self.inline or ()):
            raise ConfigError("inline", f"{self.inline[:40]!a}…", "holds what is no text: half a surrogate pair")
        if not self.entrypoint:
            raise ConfigError("entrypoint", self.entrypoint, "name the program that runs the script, such as bash")
        if self.m and "python" not in self.entrypoint:
            raise ConfigError("entrypoint", self.entrypoint, 'm=True runs a module, so write entrypoint="python"')

    def get_name(self) -> str:
        """Give a short name: the file's, or one made of the text's first characters."""
        if self.inline:
            return re.sub("[^0-9a-zA-Z]+", "_", self.inline.strip()[:10])
        return os.path.basename(self.path)

    def to_command(
        self,
        with_entrypoint: bool = False,
        filename: str | None = None,
        is_local: bool = False,
        substitute_rundir_path: str | None = None,
    ) -> list[str]:
        """
        Give the argument vector that runs this script; a shell must quote its items to keep them.

        Args:
            with_entrypoint: start with the program.
            filename: write inline text to this file, executable, and run that.
            is_local: run *filename* where it was written, not where a job finds it (``/nemo_run/scripts``).
            substitute_rundir_path: what to write for ``/nemo_run`` in inline text, where there is no container.
        """
        program = [self.entrypoint] if with_entrypoint else []
        if not self.inline:
            return [*program, *(["-m"] if self.m else []), self.path, *map(str, self.args)]
        if not filename:
            return [*program, "-c", self.inline]
        self._write(Path(filename), substitute_rundir_path)
        return [*program, filename if is_local else f"/{RUNDIR_NAME}/{SCRIPTS_DIR}/{Path(filename).name}"]

    def _write(self, path: Path, rundir: str | None) -> None:
        text = self.inline if rundir is None else self.inline.replace(f"/{RUNDIR_NAME}", rundir)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"#!/usr/bin/bash\n{text}".encode())
        path.chmod(path.stat().st_mode | 0o755)


def misspelt(*values: Any) -> list[str]:
    """
    Name attributes of dataclass instances that are no fields of theirs and look like one, with that field.

    Others are nobody's mistake: programs keep what is theirs on a task or an executor.
    """
    return list(dict.fromkeys(text for value in values for text in _misspelt(value)))


def _misspelt(value: Any) -> Iterator[str]:
    if not dataclasses.is_dataclass(value):
        return
    kind = type(value)
    fields = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
    for name in vars(value):
        if name in fields or name.startswith("_") or hasattr(kind, name):
            continue
        if near := difflib.get_close_matches(name, fields, n=1, cutoff=_ALIKE):
            yield f"{kind.__name__} has no field {name!r}; did you mean {near[0]!r}?"


_ALIKE = 0.85
"""
How alike two names are that differ by a slip: of ``arg`` and ``args`` difflib says 0.857.

Names that programs do assign are below it: ``job_details`` and ``job_dir`` 0.67, ``container_image`` and
``container_name`` 0.83.
"""


def from_dict(raw_data: Any, cls: Any) -> Any:
    """
    Make a *cls* of plain data as JSON and YAML give it; dicts become dataclasses, lists are converted item by item.

    Fields that the data does not name keep their default; without one they are None.

    Raises:
        ConfigError: *cls* is a union of several types that the data may mean.
    """
    if raw_data is None:
        return None
    kinds = [kind for kind in get_underlying_types(cls) if kind is not type(None)]
    if isinstance(raw_data, dict):
        if len(kinds) != 1:
            raise ConfigError("cls", cls, "cannot tell which type of this union a dict means")
        cls = kinds[0]
        return _dataclass_of(raw_data, cls) if dataclasses.is_dataclass(cls) else raw_data
    if isinstance(raw_data, list) and len(kinds) == 1 and (item := typing.get_args(kinds[0])):
        return [from_dict(value, item[0]) for value in raw_data]
    return raw_data


def _dataclass_of(data: dict[str, Any], cls: Any) -> Any:
    hints = typing.get_type_hints(cls, include_extras=True)
    missing = dataclasses.MISSING
    values = {}
    for field in dataclasses.fields(cls):
        if field.init and field.name in data:
            values[field.name] = from_dict(data[field.name], hints[field.name])
        elif field.init and field.default is missing and field.default_factory is missing:
            values[field.name] = None
    return cls(**values)


def set_value(cfg: Any, key: str, value: Any) -> None:
    """
    Set what *key* leads to in a config: ``model.layers[0].size``, ``[0].name``, ``options['lr']``.

    Raises:
        SetValueError: the key leads nowhere, or does not take this value.
    """
    from fiddle._src import daglish, daglish_extensions

    try:
        *parents, last = daglish_extensions.parse_path(key if key.startswith((".", "[")) else f".{key}")
        node = cfg
        for step in parents:
            node = step.follow(node)
        if isinstance(last, daglish.Attr):
            setattr(node, last.name, value)
        else:
            node[last.key if isinstance(last, daglish.Key) else last.index] = value
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise SetValueError(key, value, f"cannot be set: {error}") from error


def get_type_namespace(typ: Any) -> str:
    """Give the dotted name that *typ*, a class or function or a config of one, is imported by."""
    typ = getattr(typ, "__fn_or_cls__", typ)
    module = typ.__module__
    if module == "__main__":
        module = Path(getattr(sys.modules["__main__"], "__file__", None) or module).stem
    name = getattr(typ, "__qualname__", str(typ))
    return f"{module}.{name.split('.')[-1] if name.startswith('ForwardRef') else name}"


def get_underlying_types(type_hint: Any) -> set[Any]:
    """Give the types that a hint allows: the members of unions, without ``Annotated``."""
    origin = typing.get_origin(type_hint)
    if origin is Annotated:
        return get_underlying_types(typing.get_args(type_hint)[0])
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(get_underlying_types, typing.get_args(type_hint)))
    return {type_hint}
