"""Why a config cannot be written down: which value in it, where, and what to write instead."""

from __future__ import annotations

import functools
import inspect
import io
import sys
from collections.abc import Callable
from typing import Any

import fiddle as fdl
from fiddle._src import daglish
from fiddle._src.experimental import serialization

from nemo_run.exceptions import ConfigError

_ROOT = "task"

_BY_NAME = (
    "a job finds it by its name, and this one's does not lead to it; define it with def at the top of a module"
    " (functools.wraps keeps the name of a decorated one)"
)

_LAMBDA = "a lambda has no name that a job could import; define a function, with def at the top of a module"


def refusal(cfg: Any, *, refused: Callable[[Any], bool], error: Exception) -> ConfigError:
    """Give the error that names the first value in *cfg* that is *refused* by itself; *error* says the rest."""
    nodes = [(path, value) for value, path in daglish.iterate(cfg, memoized=False)]
    values = [(path, value, _instead) for path, value in nodes if _is_leaf(value)]
    called = [(path, value.__fn_or_cls__, _called) for path, value in nodes if isinstance(value, fdl.Buildable)]
    for path, value, hint in (*values, *called):
        if refused(value):
            return ConfigError(daglish.path_str(path).lstrip(".") or _ROOT, value, hint(value))
    return ConfigError(_ROOT, type(cfg).__qualname__, f"cannot be written to a file: {error}")


def _is_leaf(value: Any) -> bool:
    return serialization.find_node_traverser(type(value)) is None


def _called(function: Any) -> str:
    if inspect.isbuiltin(function) or getattr(function, "__module__", "") in sys.builtin_module_names:
        return "a job cannot be told to call a built-in; call it in a function of your own"
    if isinstance(function, functools.partial):
        return "a job cannot be told to call a functools.partial; give the function, and its arguments to run.Partial"
    if inspect.ismethod(function) or not hasattr(function, "__qualname__"):
        return "a job cannot be told to call this object; call it in a function that takes run.Config(its class, …)"
    return _LAMBDA if _is_lambda(function) else _BY_NAME


def _is_lambda(value: Any) -> bool:
    return getattr(value, "__name__", "") == "<lambda>"


def _instead(value: Any) -> str:
    if isinstance(value, functools.partial):
        return "a functools.partial cannot be written to a file; write run.Partial(function, its arguments)"
    if isinstance(value, type) and value.__module__ in sys.builtin_module_names:
        return "configs may not name this class of Python's own; name it in a function of your own"
    if inspect.isfunction(value) or isinstance(value, type):
        return _LAMBDA if _is_lambda(value) else _BY_NAME
    if inspect.ismethod(value) or inspect.isbuiltin(value):
        return "a method cannot be written to a file; give its object, as run.Config(its class, …), and call it there"
    name = type(value).__qualname__
    if isinstance(value, io.IOBase):
        return "an open file cannot be sent; let the job open it: pass the path"
    if type(value).__module__ in sys.builtin_module_names:
        return f"no file can hold a value of type {name}; have the function that the job runs make it"
    return f"no file can hold a value of type {name}; have the job make it: run.Config({name}, its arguments)"
