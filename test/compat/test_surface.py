"""Every public name of NeMo-Run is there, and can be used as it was; what differs is listed with its reason."""

from __future__ import annotations

import importlib
import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from record_upstream import described

HERE = Path(__file__).parent
RECORDED: dict[str, Any] = json.loads((HERE / "upstream_surface.json").read_text())
REASONS: dict[str, str] = json.loads((HERE / "differences.json").read_text())


def parameters_differ(theirs: list[list[Any]] | None, ours: list[list[Any]] | None) -> bool:
    """Tell whether a call that fits *theirs* may not fit *ours*; ours may take more."""
    if theirs is None or ours is None:
        return theirs is not None
    own = {name: (kind, default) for name, kind, default in ours}
    positional = [name for name, kind, _ in ours if kind == "POSITIONAL_OR_KEYWORD"]
    open_ended = any(kind == "VAR_KEYWORD" for _, kind, _ in ours)
    expected = [name for name, kind, _ in theirs if kind == "POSITIONAL_OR_KEYWORD"]
    same = all(
        own.get(name) == (kind, default) or (open_ended and kind == "KEYWORD_ONLY" and name not in own)
        for name, kind, default in theirs
    )
    extra = [default for name, kind, default in ours if name not in {t[0] for t in theirs} and "VAR" not in kind]
    return not same or positional[: len(expected)] != expected or None in extra


def fields_differ(theirs: list[list[Any]], ours: list[list[Any]]) -> list[str]:
    own = {name: facts for name, *facts in ours}
    return [name for name, *facts in theirs if not name.startswith("_") and own.get(name) != facts]


def differences(name: str) -> set[str]:
    module, _, attribute = name.partition(":")
    try:
        ours = described(getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError):
        return {name}
    theirs = RECORDED[name]
    if theirs["kind"] != ours["kind"]:
        return {name}
    found = set()
    if theirs["kind"] == "function" and parameters_differ(theirs["signature"], ours["signature"]):
        found.add(name)
    if theirs["kind"] == "class":
        found |= {f"{name}.{method}" for method in methods_differ(name, theirs["methods"])}
        found |= {f"{name}.{field}" for field in fields_differ(theirs.get("fields", []), ours.get("fields", []))}
        if theirs.get("init") and parameters_differ(theirs["init"], ours.get("init")):
            found.add(f"{name}.__init__")
        if missing := set(theirs.get("bases", [])) - set(ours.get("bases", [])):
            found.add(f"{name}: is no {sorted(missing)[0]}")
    return found


def methods_differ(name: str, theirs: dict[str, Any]) -> list[str]:
    module, _, attribute = name.partition(":")
    cls = getattr(importlib.import_module(module), attribute)
    return [method for method, expected in theirs.items() if method_differs(cls, method, expected)]


def method_differs(cls: type, method: str, expected: Any) -> bool:
    raw = next((vars(base)[method] for base in cls.__mro__ if method in vars(base)), None)
    if raw is None:
        return True
    if expected == "property" or isinstance(raw, property):
        return (expected == "property") != isinstance(raw, property)
    return parameters_differ(expected, described(getattr(cls, method))["signature"])


def reasons(difference: str) -> list[str]:
    return [pattern for pattern in REASONS if fnmatchcase(difference, pattern)]


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_name_is_as_upstream_has_it(name: str) -> None:
    assert {item for item in differences(name) if not reasons(item)} == set()


@pytest.mark.parametrize("name", [n for n in sorted(RECORDED) if "fields" in RECORDED[n] and differences(n) != {n}])
def test_dataclass_takes_every_field(name: str) -> None:
    """No reason excuses a field: saved configs hold all of them."""
    module, _, attribute = name.partition(":")
    ours = described(getattr(importlib.import_module(module), attribute))
    assert fields_differ(RECORDED[name]["fields"], ours["fields"]) == []


def test_listed_differences_are_differences() -> None:
    """A reason that explains nothing any more goes."""
    used = {pattern for name in RECORDED for item in differences(name) for pattern in reasons(item)}
    assert set(REASONS) - used == set()
