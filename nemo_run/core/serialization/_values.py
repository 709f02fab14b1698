"""
Values that fiddle's JSON does not know, as configs that build them.

A reader needs nothing of ours: an image with NeMo-Run builds them too.
"""

from __future__ import annotations

import pathlib
import pkgutil
import re
from types import BuiltinFunctionType
from typing import Any

import fiddle as fdl

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_PATHS = (pathlib.Path, pathlib.PurePosixPath, pathlib.PureWindowsPath)
_PLAIN = (str, int, float, complex, bytes, type(None), type)


def symbol(value: Any) -> str | None:
    """Give the dotted name of a built-in function, and of a constant whose text is its name: ``torch.bfloat16``."""
    if isinstance(value, _PLAIN):
        return None
    name = f"{value.__module__}.{value.__qualname__}" if isinstance(value, BuiltinFunctionType) else str(value)
    if not _DOTTED.fullmatch(name):
        return None
    try:
        return name if pkgutil.resolve_name(name) is value else None
    except (ImportError, AttributeError):
        return None


def stand_in(value: Any) -> Any:
    """Give a config that builds *value*, a path or a constant of some module; None for other values."""
    if isinstance(value, pathlib.PurePath):
        kind = next((kind for kind in _PATHS if isinstance(value, kind)), type(value))
        return fdl.Config(kind, str(value))
    name = symbol(value)
    return None if name is None else fdl.Config(pkgutil.resolve_name, name)


def restored(config: Any) -> Any:
    """Give what `stand_in` stood in for; None for other values, and where this machine does not have it."""
    # Users' own configs are nemo_run's; these are fiddle's.
    if type(config) is not fdl.Config:
        return None
    make = config.__fn_or_cls__
    if make in _PATHS:
        return make(*config.__arguments__.values())
    if make is pkgutil.resolve_name:
        try:
            return pkgutil.resolve_name(config.name)
        except (ImportError, AttributeError):
            return None
    return None
