"""
Environment variables of a container, and what the kubelet makes of them.

The kubelet rewrites ``$$`` to ``$`` and ``$(NAME)`` to a variable's value in
command, args and env values, whatever shell runs there.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from nemo_run._kube.mounts import Json
from nemo_run.exceptions import ConfigError

# A pair first, as the kubelet reads it: in `$$(NAME)` there is no reference.
_REFERENCE_OR_DOLLARS = re.compile(r"\$\$|\$\(([^()$]*)\)|\$")

_FIELDS = ("name", "value", "valueFrom")
_SOURCES = ("secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef", "fileKeyRef")
"""As in the Kubernetes API: core/v1 EnvVar and EnvVarSource."""


def merge_env(*lists: Iterable[Mapping[str, Any]], argument: str = "env_list") -> list[Json]:
    """
    Give each name one EnvVar: a later one wins and takes the place of the first.

    A value of None leaves the variable out, and a number becomes its text.

    Raises:
        ConfigError: an entry that is no EnvVar or has a field that EnvVars do not have, or a value that is neither
            text nor a number.
    """
    merged: dict[str, Json] = {}
    for entry in (entry for entries in lists for entry in entries):
        if not isinstance(entry, Mapping) or "name" not in entry:
            shown = dict.fromkeys(entry, "…") if isinstance(entry, Mapping) else type(entry).__name__  # may be secret
            raise ConfigError(argument, shown, "each entry is an EnvVar: {'name': …, 'value': …} or with 'valueFrom'")
        name = _env_name(entry["name"], argument)
        _check_fields(entry, f"{argument}[{name!r}]")
        if entry.get("valueFrom") is not None:
            merged[name] = copy.deepcopy({"name": name, "valueFrom": entry["valueFrom"]})
        elif (value := entry.get("value", "")) is None:
            merged.pop(name, None)
        else:
            merged[name] = {"name": name, "value": _env_value(name, value, argument)}
    return list(merged.values())


def literal(text: str, *, references: Collection[str] = ()) -> str:
    """
    Write *text* so that it is the same again behind the kubelet's rewriting.

    ``$(NAME)`` stays Kubernetes' reference where NAME is one of *references*.
    """
    return _REFERENCE_OR_DOLLARS.sub(lambda match: _kept_or_doubled(match, references), text)


def literal_env(entries: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Write the entries' values so that only references to one another are rewritten by the kubelet."""
    known = [dict(entry) for entry in entries]
    names = {entry["name"] for entry in known}
    return [
        {**entry, "value": literal(entry["value"], references=names)} if "value" in entry else entry for entry in known
    ]


def _kept_or_doubled(match: re.Match[str], references: Collection[str]) -> str:
    text = match.group()
    return text if match.group(1) in references else text.replace("$", "$$")


def _check_fields(entry: Mapping[str, Any], argument: str) -> None:
    """Check that a misspelt field does not leave the variable without its value."""
    _check_known(entry, _FIELDS, argument, "an EnvVar")
    if (source := entry.get("valueFrom")) is None:
        return
    if not isinstance(source, Mapping):
        hint = "write where the value comes from: {'secretKeyRef': {'name': …, 'key': …}}"
        raise ConfigError(f"{argument}['valueFrom']", source, hint)
    _check_known(source, _SOURCES, f"{argument}['valueFrom']", "valueFrom")


def _check_known(given: Mapping[str, Any], known: Sequence[str], argument: str, what: str) -> None:
    plain = {name.lower(): name for name in known}
    for field, value in given.items():
        # The to_dict() of Kubernetes' own client has snake-case names, and None for what is not set.
        if field not in known and value is not None:
            near = difflib.get_close_matches(str(field).replace("_", "").lower(), plain, n=1)
            hint = f"write {plain[near[0]]!r}" if near else f"it has {', '.join(known)}"
            raise ConfigError(argument, field, f"{what} has no field {field!r}; {hint}")


def _env_name(name: Any, argument: str) -> str:
    if not isinstance(name, str) or not name or "=" in name or not name.isprintable():
        raise ConfigError(argument, name, "the name of a variable is text without '='")
    return name


def _env_value(name: str, value: Any, argument: str) -> str:
    # bool is an int: str(True) is "True", which no shell script means.
    if isinstance(value, bool):
        raise ConfigError(f"{argument}[{name!r}]", value, "write the text itself, such as '1' or 'true'")
    if not isinstance(value, (str, int, float)):
        raise ConfigError(
            f"{argument}[{name!r}]", type(value).__name__, "write a text, a number, or None to leave the variable out"
        )
    return str(value)
