"""Package attributes that are imported when they are first touched (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any


def lazy_attributes(
    package: str, exports: Mapping[str, str], submodules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """
    Give a ``__getattr__`` and a ``__dir__`` for *package*.

    *exports* names the module that each attribute is defined in, with
    ``module:name`` where the two names differ; *submodules* are reachable as
    attributes although nobody imported them yet.
    """

    def find(name: str) -> Any:
        if name in exports:
            module, _, original = exports[name].partition(":")
            value = getattr(importlib.import_module(module), original or name)
            vars(sys.modules[package])[name] = value
            return value
        if name in submodules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *exports, *submodules})

    return find, names
