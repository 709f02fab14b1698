"""
Configs as YAML, for people and for saved experiments.

A config is a mapping with ``_target_``, the dotted name of what it calls, and
its arguments; ``_partial_: true`` makes it a Partial, and ``_call_: false``
names the class, function or constant itself.
"""

from __future__ import annotations

import enum
import inspect
import pathlib
import pkgutil
import types
from collections.abc import Mapping
from typing import IO, Any

import fiddle as fdl
import yaml

from nemo_run.config import Config, Partial
from nemo_run.core.serialization._values import symbol
from nemo_run.exceptions import ConfigError

_TARGET, _PARTIAL, _CALL, _ARGS = "_target_", "_partial_", "_call_", "_args_"
_MARKS = (_TARGET, _PARTIAL, _CALL, _ARGS)
_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml's, where PyYAML was built with it: an experiment writes two texts for each task."""
_SCALARS = (bool, int, float, str, bytes)


class YamlSerializer:
    """Turns configs into YAML and back; reads what NeMo-Run wrote."""

    def serialize(self, cfg: Any, stream: IO[str] | None = None) -> str:
        """
        Give *cfg* as YAML; write it to *stream* instead if there is one.

        Raises:
            ConfigError: a value in it cannot be written; the error's argument says where it stands.
        """
        return yaml.dump(_plain(cfg, "", {}), stream=stream, Dumper=_DUMPER) or ""

    def deserialize(self, serialized: str) -> Any:
        """
        Give the Config or Partial that *serialized* holds.

        Raises:
            ConfigError: it holds none, or names something that is not there.
        """
        data = yaml.safe_load(serialized)
        if not isinstance(data, dict) or _TARGET not in data:
            raise ConfigError(_TARGET, None, "a config names what it calls under this key, at the top of the YAML")
        return _value(data)


def _plain(value: Any, path: str, seen: dict[int, Any]) -> Any:
    """Give *value* as YAML's own types; what stands twice in it does so in the result."""
    if value is None or type(value) in _SCALARS:
        return value
    if id(value) not in seen:
        seen[id(value)] = _converted(value, path, seen)
    return seen[id(value)]


def _converted(value: Any, path: str, seen: dict[int, Any]) -> Any:
    if isinstance(value, fdl.Buildable):
        return _mapping(value, path, seen)
    if isinstance(value, Mapping):
        return {_plain(k, path, seen): _plain(v, f"{path}[{k!r}]", seen) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]", seen) for index, item in enumerate(value)]
    if isinstance(value, set | frozenset):
        return {_plain(item, path, seen) for item in value}
    if isinstance(value, pathlib.PurePath):
        return {_TARGET: _name(type(value)), _ARGS: [str(value)]}
    if isinstance(value, enum.Enum):
        return {_TARGET: f"{_name(type(value))}.{value.name}", _CALL: False}
    if isinstance(value, type | types.FunctionType | types.MethodType):
        return {_TARGET: _name(value, path), _CALL: False}
    if (name := symbol(value)) is not None:
        return {_TARGET: name, _CALL: False}
    if (scalar := next((kind for kind in _SCALARS if isinstance(value, kind)), None)) is not None:
        return scalar(value)
    hint = f"a {type(value).__qualname__} cannot be written as YAML; if the job is to make it, write run.Config(...)"
    raise ConfigError(path.lstrip(".") or "config", value, hint)


def _mapping(config: Any, path: str, seen: dict[int, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    positional = []
    for key, value in config.__arguments__.items():
        plain = _plain(value, f"{path}.{key}", seen)
        if isinstance(key, int):
            positional.append(plain)
        else:
            result[key] = plain
    if taken := [key for key in result if key in _MARKS]:
        raise ConfigError(f"{path}.{taken[0]}".lstrip("."), result[taken[0]], "YAML configs need this name themselves")
    result[_TARGET] = _name(config.__fn_or_cls__, path)
    if isinstance(config, fdl.Partial):
        result[_PARTIAL] = True
    if positional:
        result[_ARGS] = positional
    return result


def _name(target: Any, path: str = "") -> str:
    if "<" in target.__qualname__:
        hint = "cannot be found again by its name; define it at the top of a module"
        raise ConfigError(path.lstrip(".") or "config", target, hint)
    module = inspect.getmodule(target)
    return f"{module.__name__ if module else target.__module__}.{target.__qualname__}"


def _value(data: Any) -> Any:
    if isinstance(data, list):
        return [_value(item) for item in data]
    if not isinstance(data, dict):
        return data
    if _TARGET not in data:
        return {key: _value(value) for key, value in data.items()}
    target = _target(data[_TARGET])
    if data.get(_CALL) is False:
        return target
    positional = [_value(item) for item in data.get(_ARGS, ())]
    if isinstance(target, type) and issubclass(target, pathlib.PurePath):
        return target(*positional)
    make = Partial if data.get(_PARTIAL) else Config
    arguments = {key: _value(value) for key, value in data.items() if key not in _MARKS}
    try:
        return make(target, *positional, bind_args=False, **arguments)
    except TypeError as error:
        raise ConfigError(_TARGET, data[_TARGET], f"does not take these arguments: {error}") from error


def _target(name: str) -> Any:
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(_TARGET, name, f"cannot be imported: {error}") from error
