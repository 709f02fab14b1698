"""
Records that name classes which this process cannot import, such as those of the script that launched.

An executor, packager or launcher of such a class is read as the one of ours
that it extends, which holds all that it takes to find and end its jobs.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import logging
import zlib
from collections.abc import Mapping
from functools import reduce
from typing import Any

from nemo_run.core.execution.launcher import LAUNCHER_MAP, Launcher
from nemo_run.core.packaging.base import Packager
from nemo_run.core.packaging.git import GitArchivePackager
from nemo_run.core.packaging.hybrid import HybridPackager
from nemo_run.core.packaging.pattern import PatternPackager
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer, unpacked
from nemo_run.run.torchx_backend.schedulers.api import EXECUTOR_MAPPING

logger = logging.getLogger("nemo_run")

_told: set[str] = set()


def restored(text: str) -> Any:
    """
    Give the config that *text* holds, whoever's classes it names.

    Warns once for each class that is read as another.

    Raises:
        ConfigError: the text is cut, or something else altogether.
        ImportError, AttributeError: it names what cannot be imported and extends nothing of ours.
    """
    serializer = ZlibJSONSerializer()
    try:
        return serializer.deserialize(text)
    except (ImportError, AttributeError):
        document = json.loads(unpacked(text))
        if not _replace_unknown(document["objects"]):
            raise
    return serializer.deserialize(base64.urlsafe_b64encode(zlib.compress(json.dumps(document).encode())).decode())


def _replace_unknown(objects: Mapping[str, Any]) -> bool:
    """Let the configs among fiddle's *objects* be of classes that are there; tell whether any was changed."""
    changed = False
    for key, entry in objects.items():
        if entry["type"].get("name") != "BuildableTraverserMetadata":
            continue
        parts = dict(entry["items"])
        symbol = parts["Attr(name='fn_or_cls')"]
        arguments = objects[parts["Attr(name='argument_names')"]["key"]]["items"]
        base = None if _is_there(symbol) else _extended({name for _, name in arguments})
        if base is None:
            continue
        _tell(symbol, base)
        kept = [index for index, (_, name) in enumerate(arguments) if name in _fields(base)]
        for config in objects.values():
            if config.get("metadata") == {"type": "ref", "key": key}:
                config["items"] = [config["items"][index] for index in kept]
        arguments[:] = [arguments[index] for index in kept]
        symbol.update(module=base.__module__, name=base.__qualname__)
        changed = True
    return changed


def _is_there(symbol: Mapping[str, Any]) -> bool:
    try:
        reduce(getattr, symbol["name"].split("."), importlib.import_module(symbol["module"]))
    except (ImportError, AttributeError):
        return False
    return True


def _extended(names: set[str]) -> type | None:
    """Give the class of ours whose fields are all among *names*, as a subclass has them; the one with most."""
    packagers = (Packager, GitArchivePackager, PatternPackager, HybridPackager)
    ours = [*EXECUTOR_MAPPING, *packagers, Launcher, *LAUNCHER_MAP.values()]
    return max((kind for kind in ours if _fields(kind) <= names), key=lambda kind: len(_fields(kind)), default=None)


def _fields(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind) if field.init}


def _tell(symbol: Mapping[str, Any], base: type) -> None:
    name = f"{symbol['module']}.{symbol['name']}"
    if name not in _told:
        _told.add(name)
        logger.warning(
            "%s cannot be imported here and counts as %s, without what it adds; a class in a module can be imported",
            *(name, base.__name__),
        )
