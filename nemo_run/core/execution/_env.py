"""
The environment of a job's container: which variables Kubernetes sets, and which a shell in the container has to.

A value that refers to its own former value (``PYTHONPATH="/x:$PYTHONPATH"``)
can only be worked out where that former value is known: in the image.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nemo_run._kube.manifests.env import literal_env, merge_env
from nemo_run.exceptions import ConfigError

Json = dict[str, Any]

RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
"""Set by Kubeflow Trainer itself in a torch runtime, which refuses them from others (Trainer v2.3 torch.go)."""

_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Environment:
    """The variables of one container."""

    container: list[Json]
    """EnvVars, each name once, written so that the process gets each value as the user wrote it."""
    exports: dict[str, str]
    """Values that refer to their own former value, as written; they are not in *container*."""


def environment(
    layers: Sequence[tuple[str, Mapping[str, Any]]],
    env_list: Iterable[Mapping[str, Any]],
    *,
    reserved: Collection[str] = (),
) -> Environment:
    """
    Merge *layers* (an argument's name and its variables) and *env_list*: the later wins, the first place stays.

    A value of None leaves the variable out, a number becomes its text.

    Raises:
        ConfigError: a name or value that the container would not get as written.
    """
    merged: list[Json] = []
    for argument, variables in layers:
        entries = [{"name": name, "value": value} for name, value in variables.items()]
        merged = merge_env(merged, entries, argument=argument)
    merged = merge_env(merged, env_list)
    for entry in merged:
        _check(entry, reserved)
    exports = {e["name"]: e["value"] for e in merged if refers_to(e["name"], e.get("value"))}
    return Environment(literal_env(entry for entry in merged if entry["name"] not in exports), exports)


def refers_to(name: str, value: str | None) -> bool:
    """Tell whether *value* holds ``$NAME`` or ``${NAME}`` for this *name*, one that a shell can have."""
    if value is None or not _SHELL_NAME.fullmatch(name):
        return False
    return any(match["own"] for match in own_reference(name).finditer(value))


def own_reference(name: str) -> re.Pattern[str]:
    """Give a pattern whose group ``own`` is ``$NAME`` or ``${NAME}``; it takes ``$$`` as a pair, which is text."""
    word = re.escape(name)
    return re.compile(rf"\$\$|(?P<own>\$(?:{word}(?![A-Za-z0-9_])|\{{{word}\}}))")


def _check(entry: Json, reserved: Collection[str]) -> None:
    name, value = entry["name"], entry.get("value", "")
    if name in reserved:
        raise ConfigError(
            "env_vars",
            name,
            "Kubeflow Trainer sets this variable itself; leave it out, and use num_nodes and nprocs_per_node",
        )
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigError("env_vars", name, "its value holds NUL or bytes that are not UTF-8, which cannot be sent")
