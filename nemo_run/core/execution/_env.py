"""
The environment of a job's container: which variables Kubernetes sets, and which a shell in the container has to.

A value that refers to its own former value (``PYTHONPATH="/x:$PYTHONPATH"``)
can only be worked out where that former value is known: in the image.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from nemo_run._kube.manifests.env import literal_env, merge_env
from nemo_run.exceptions import ConfigError

Json = dict[str, Any]

RESERVED = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
"""Set by Kubeflow Trainer itself in a torch runtime, which refuses them from others (Trainer v2.3 torch.go)."""

_SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Export:
    """A variable that a shell in the container sets, before the process starts."""

    name: str
    value: str
    """As the user wrote it."""
    references: frozenset[str] = frozenset()
    """The variables that ``$(NAME)`` in it stands for; of all others it is text."""


@dataclass(frozen=True)
class Environment:
    """The variables of one container."""

    container: list[Json]
    """EnvVars, each name once, written so that the process gets each value as the user wrote it."""
    exports: list[Export]
    """In their order: values that refer to their own former value, or to a variable that is exported before."""

    def variables(self) -> dict[str, str]:
        """Give what is known here of the process's variables: at least so long are their values."""
        sent = {entry["name"]: entry.get("value", "").replace("$$", "$") for entry in self.container}
        return {**{export.name: export.value for export in self.exports}, **sent}


Layer = tuple[str, Mapping[str, Any] | Iterable[Mapping[str, Any]] | None]
"""An argument's name, and its variables: values by name, or EnvVars."""


def environment(layers: Iterable[Layer], *, reserved: Collection[str] = ()) -> Environment:
    """
    Merge *layers*: the later wins, the first place stays.

    A value of None leaves the variable out, a number becomes its text. The former value of one that refers to
    itself is that of an earlier layer, if one has it, else the image's.

    Raises:
        ConfigError: a name or value that the container would not get as written.
    """
    container: list[Json] = []
    exports: list[Export] = []
    exported: set[str] = set()
    for name, variable in _merged(layers).items():
        for argument, entry in variable.said:
            _check(entry, argument, reserved)
        values = [entry for _, entry in variable.said]
        if variable.base and (not _is_shell_name(name) or exported.isdisjoint(_referred(values[0]))):
            container.append(values[0])
            values = values[1:]
        exports += [Export(name, entry["value"], frozenset(exported)) for entry in values]
        exported |= {name} if values else set()
    names = {entry["name"] for entry in container}
    return Environment(literal_env(container), [replace(each, references=each.references | names) for each in exports])


@dataclass
class _Variable:
    """What the layers say of one name."""

    said: list[tuple[str, Json]]
    """By which argument, and what."""
    base: bool
    """Whether the first is a whole value; all others refer to the value before them."""


def _merged(layers: Iterable[Layer]) -> dict[str, _Variable]:
    merged: dict[str, _Variable] = {}
    for argument, variables in layers:
        for given in entries(variables):
            entry = next(iter(merge_env([given], argument=argument)), None)
            if entry is None:
                merged.pop(given["name"], None)
                continue
            name = entry["name"]
            if _extends(entry, already=name in merged):
                merged.setdefault(name, _Variable([], base=False)).said.append((argument, entry))
            else:
                merged[name] = _Variable([(argument, entry)], base=True)
    return merged


def entries(variables: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None) -> Iterable[Mapping[str, Any]]:
    """Give the variables of a layer as EnvVars."""
    if isinstance(variables, Mapping):
        return [{"name": name, "value": value} for name, value in variables.items()]
    return variables or ()


def _extends(entry: Json, *, already: bool) -> bool:
    """Tell whether a shell has to work the value out: it refers to its own former value."""
    name, value = entry["name"], entry.get("value", "")
    if not _is_shell_name(name):
        return False
    return any(match["own"] or (already and match["other"] == name) for match in references(name).finditer(value))


def references(name: str) -> re.Pattern[str]:
    """
    Give a pattern for what may expand in a value of *name*; it takes ``$$`` as a pair, which is text.

    Its group ``own`` is ``$NAME`` or ``${NAME}``, its group ``other`` the word in ``$(WORD)``.
    """
    word = re.escape(name)
    return re.compile(rf"\$\$|(?P<own>\$(?:{word}(?![A-Za-z0-9_])|\{{{word}\}}))|\$\((?P<other>[^()$]+)\)")


def _referred(entry: Json) -> set[str]:
    return {match["other"] for match in references(entry["name"]).finditer(entry.get("value", "")) if match["other"]}


def _is_shell_name(name: str) -> bool:
    return bool(_SHELL_NAME.fullmatch(name))


def _check(entry: Json, argument: str, reserved: Collection[str]) -> None:
    name, value = entry["name"], entry.get("value", "")
    if name in reserved:
        raise ConfigError(
            argument,
            name,
            "Kubeflow Trainer sets this variable itself; leave it out, and use num_nodes and nprocs_per_node",
        )
    if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
        raise ConfigError(argument, name, "its value holds NUL or bytes that are not UTF-8, which cannot be sent")
