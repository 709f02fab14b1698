"""Which texts to keep out of messages, worked out of an executor's variables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from nemo_run._kube.manifests.env import literal
from nemo_run.core._masking import is_secret
from nemo_run.core.execution._env import Layer, entries
from nemo_run.core.execution._script import quoted

_MIN = 6
"""Shorter values would be found in text that has nothing to do with them; they count only as a whole quoted text."""
_SHORTEST = 3
_LONG_LINE = 12


def secret_values(layers: Iterable[Layer]) -> list[str]:
    """
    Give the values of variables whose names say that they are secret, as they stand in fields, scripts and manifests.

    Servers quote what they refuse, so the forms that Go and JSON have of them are among these.
    """
    said = [entry for _, variables in layers for entry in entries(variables) if isinstance(entry, Mapping)]
    named = [(str(entry.get("name")), entry.get("value")) for entry in said]
    values = {str(value) for name, value in named if value is not None and is_secret(name)}
    return sorted({form for value in values for form in _forms(value)})


def _forms(value: str) -> Iterator[str]:
    if len(value) < _MIN:
        for quote in ("'", '"', '\\"') if len(value) >= _SHORTEST else ():
            for text in _written(value):
                yield f"{quote}{text}{quote}"
        return
    lines = [line.strip() for line in value.splitlines()]
    for part in (value, *(line for line in lines if len(line) >= _LONG_LINE)):
        yield from _written(part)
        yield from _written(quoted(part).strip("'\""))


def _written(text: str) -> Iterator[str]:
    """Give *text* as it is, as the kubelet is sent it, and both as a JSON or Go text."""
    for plain in (text, literal(text)):
        yield plain
        yield repr(plain)[1:-1]
        for escaped in (json.dumps(plain)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]):
            yield escaped
            # Go's encoding/json, unless it is told otherwise.
            yield escaped.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
