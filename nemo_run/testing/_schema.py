"""
What an API server does with a custom resource by its structural schema.

In order: :func:`pruned` drops the fields that the schema does not know, :func:`filled` drops nulls and sets
defaults, :func:`problems` tells all that is wrong with the rest. Values in, new values out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nemo_run.testing._errors import FieldError
from nemo_run.testing._rules import holds

Json = dict[str, Any]
Schema = Mapping[str, Any]

_ROOT = ("apiVersion", "kind", "metadata")
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
_BITS = {"int32": 31, "int64": 63}


def pruned(schema: Schema, value: Any, path: str = "", unknown: list[str] | None = None) -> Any:
    """Give *value* without the fields that *schema* does not have; their paths are added to *unknown*."""
    unknown = [] if unknown is None else unknown
    if isinstance(value, list):
        items = schema.get("items", {})
        return [pruned(items, item, f"{path}[{at}]", unknown) for at, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, item in value.items():
        below = f"{path}.{key}" if path else key
        if (found := field_schema(schema, key)) is not None:
            root_metadata = not path and key == "metadata"
            kept[key] = item if root_metadata else pruned(found, item, below, unknown)
        elif schema.get("x-kubernetes-preserve-unknown-fields") or (not path and key in _ROOT):
            kept[key] = item
        else:
            unknown.append(below)
    return kept


def filled(schema: Schema, value: Any) -> Any:
    """Give *value* with the schema's defaults, and without nulls where null is no value."""
    if isinstance(value, list):
        return [filled(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, item in value.items():
        found = field_schema(schema, key) or {}
        if item is None and "type" in found and not found.get("nullable"):
            continue
        result[key] = filled(found, item)
    for key, found in schema.get("properties", {}).items():
        if key not in result and "default" in found:
            result[key] = filled(found, json.loads(json.dumps(found["default"])))
    return result


def problems(schema: Schema, obj: Json, old: Json | None = None) -> list[FieldError]:
    """Give everything that is wrong with *obj*, which replaces *old*."""
    found = [*_values(schema, obj, ""), *_duplicates(schema, obj, "")]
    if not found:
        return list(_broken_rules(schema, obj, old, ""))
    if _has_rules(schema):
        message = (
            "some validation rules were not checked because the object was invalid; "
            "correct the existing errors to complete validation"
        )
        found.append(FieldError("<nil>", f'Invalid value: "null": {message}'))
    return found


def field_schema(schema: Schema, key: str) -> Schema | None:
    """Give the schema of the field *key*, None if there is no such field."""
    found: Schema | None = schema.get("properties", {}).get(key)
    if found is None:
        extra = schema.get("additionalProperties")
        return extra if isinstance(extra, dict) else {} if extra else None
    return found


def map_key(schema: Schema, item: Json) -> Json:
    """Give what tells *item* apart from the others of a list-map; an absent key counts as its default."""
    properties = schema["items"].get("properties", {})
    return {
        key: item.get(key, properties.get(key, {}).get("default"))
        for key in sorted(schema["x-kubernetes-list-map-keys"])
    }


def _values(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string"):
        if not _TYPES["integer"](value) and not isinstance(value, str):
            yield _wrong_type(path, value, "integer,string")
            return
    elif (wanted := schema.get("type")) and not _TYPES[wanted](value):
        yield _wrong_type(path, value, wanted)
        return
    yield from _limits(schema, value, path)
    if isinstance(value, dict):
        for key in schema.get("required", ()):
            if key not in value:
                yield FieldError(_below(path, key), "Required value", "FieldValueRequired")
        for key, item in value.items():
            if path or key != "metadata":
                yield from _values(field_schema(schema, key) or {}, item, _below(path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _values(schema.get("items", {}), item, f"{path}[{at}]")


def _limits(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    shown = json.dumps(value)
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(json.dumps(each) for each in sorted(schema["enum"]))
        yield FieldError(path, f"Unsupported value: {shown}: supported values: {allowed}", "FieldValueNotSupported")
    if isinstance(value, str):
        yield from _text_limits(schema, value, path)
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            message = f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
            yield FieldError(path, message, "FieldValueTooMany")
        if len(value) < schema.get("minItems", 0):
            yield _in_body(path, str(len(value)), f"should have at least {schema['minItems']} items")
    elif isinstance(value, dict):
        if len(value) < schema.get("minProperties", 0):
            yield _in_body(path, str(len(value)), f"should have at least {schema['minProperties']} properties")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield _in_body(path, shown, f"should be greater than or equal to {schema['minimum']}")
        if value > schema.get("maximum", value):
            yield _in_body(path, shown, f"should be less than or equal to {schema['maximum']}")
        if (bits := _BITS.get(schema.get("format", ""))) and not -(2**bits) <= value < 2**bits:
            yield _in_body(path, shown, f'must be of type {schema["format"]}: "integer"')


def _text_limits(schema: Schema, value: str, path: str) -> Iterator[FieldError]:
    shown = json.dumps(value)
    if len(value) > schema.get("maxLength", len(value)):
        yield FieldError(path, f"Too long: may not be more than {schema['maxLength']} bytes", "FieldValueTooLong")
    if len(value) < schema.get("minLength", 0):
        yield _in_body(path, shown, f"should be at least {schema['minLength']} chars long")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield _in_body(path, shown, f"should match '{schema['pattern']}'")


def _duplicates(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    if isinstance(value, dict):
        for key, item in value.items():
            if path or key != "metadata":
                yield from _duplicates(field_schema(schema, key) or {}, item, _below(path, key))
    elif isinstance(value, list):
        kind = schema.get("x-kubernetes-list-type")
        seen: set[str] = set()
        for at, item in enumerate(value):
            if kind == "set" or (kind == "map" and isinstance(item, dict)):
                key = json.dumps(map_key(schema, item) if kind == "map" else item, separators=(",", ":"))
                if key in seen:
                    yield FieldError(f"{path}[{at}]", f"Duplicate value: {key}", "FieldValueDuplicate")
                seen.add(key)
            yield from _duplicates(schema.get("items", {}), item, f"{path}[{at}]")


def _broken_rules(schema: Schema, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if not holds(rule["rule"], value, old):
            shown = schema.get("type", "object")
            yield FieldError(path or "<nil>", f'Invalid value: "{shown}": {rule.get("message", rule["rule"])}')
    if isinstance(value, dict):
        for key, item in value.items():
            before = old.get(key) if isinstance(old, dict) else None
            yield from _broken_rules(field_schema(schema, key) or {}, item, before, _below(path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            before = _counterpart(schema, item, old)
            yield from _broken_rules(schema.get("items", {}), item, before, f"{path}[{at}]")


def _counterpart(schema: Schema, item: Any, old: Any) -> Any:
    """Give the item of *old* that *item* replaces: only a list-map can tell."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return None
    key = map_key(schema, item)
    return next((each for each in old if map_key(schema, each) == key), None)


def _has_rules(schema: Any) -> bool:
    if isinstance(schema, dict):
        return "x-kubernetes-validations" in schema or any(_has_rules(item) for item in schema.values())
    return False


def _wrong_type(path: str, value: Any, wanted: str) -> FieldError:
    found = "null" if value is None else next(name for name, test in _TYPES.items() if test(value))
    message = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return FieldError(path, message, "FieldValueTypeInvalid")


def _in_body(path: str, shown: str, what: str) -> FieldError:
    return FieldError(path, f"Invalid value: {shown}: {path} in body {what}")


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
