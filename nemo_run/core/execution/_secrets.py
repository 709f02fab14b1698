"""Which texts to keep out of messages, worked out of an executor's variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nemo_run._kube.manifests.env import literal
from nemo_run.core._masking import is_secret
from nemo_run.core.execution._script import quoted

_MIN = 6


def secret_values(layers: Iterable[Mapping[str, Any]], env_list: Iterable[Mapping[str, Any]]) -> list[str]:
    """
    Give the values of variables whose names say that they are secret, as they stand in fields, scripts and manifests.

    Short ones are left out: they would be found in text that has nothing to do with them.
    """
    entries = [pair for variables in layers for pair in variables.items()]
    entries += [(str(entry.get("name")), entry.get("value") or "") for entry in env_list]
    values = [str(value) for name, value in entries if value is not None and is_secret(str(name))]
    forms = ((value, quoted(value).strip("'\"")) for value in values if len(value) >= _MIN)
    return sorted({form for pair in forms for text in pair for form in (text, literal(text))})
