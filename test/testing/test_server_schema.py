"""Structural schemas: pruning, nulls, defaults, validation; and the ones that ship."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemo_run._kube.resources import CLUSTER_TRAINING_RUNTIME, RAYJOB, TRAINJOB
from nemo_run.testing._rules import known
from nemo_run.testing._schema import filled, problems, pruned
from nemo_run.testing._schemas import TRAINER, schemas
from nemo_run.testing._seeds import torch_runtime

Json = dict[str, Any]

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["b", "a"], "default": "a"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4, "minLength": 1},
                "maybe": {"type": "string", "nullable": True},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "port": {"x-kubernetes-int-or-string": True},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 2},
                "env": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "kind"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "kind": {"type": "string", "default": "x"},
                            "fixed": {
                                "type": "integer",
                                "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is fixed"}],
                            },
                        },
                    },
                },
            },
        },
    },
}


def wrong(spec: Any, old: Any = None) -> list[str]:
    before = None if old is None else {"spec": old}
    return [str(error) for error in problems(SCHEMA, {"spec": spec}, before)]


def test_unknown_fields_are_dropped_and_told() -> None:
    unknown: list[str] = []
    obj = {
        "kind": "K",
        "metadata": {"anything": 1},
        "nope": 1,
        "spec": {"size": 1, "bad": {}, "any": {"x": 1}, "labels": {"k": "v"}, "env": [{"name": "a", "worse": 1}]},
    }
    assert pruned(SCHEMA, obj, unknown=unknown) == {
        "kind": "K",
        "metadata": {"anything": 1},
        "spec": {"size": 1, "any": {"x": 1}, "labels": {"k": "v"}, "env": [{"name": "a"}]},
    }
    assert unknown == ["nope", "spec.bad", "spec.env[0].worse"]


def test_nulls_go_and_defaults_come() -> None:
    spec = {"size": 1, "name": None, "mode": None, "maybe": None, "env": [{"name": "a", "kind": None}]}
    assert filled(SCHEMA, {"spec": spec}) == {
        "spec": {"size": 1, "mode": "a", "maybe": None, "env": [{"name": "a", "kind": "x"}]}
    }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec.size: Required value"),
        ({"size": "1"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": True}, 'spec.size: Invalid value: "boolean": spec.size in body must be of type integer: "boolean"'),
        ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 10}, "spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9"),
        ({"size": 1, "mode": "c"}, 'spec.mode: Unsupported value: "c": supported values: "a", "b"'),
        ({"size": 1, "name": "A"}, "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'"),
        ({"size": 1, "name": "abcde"}, "spec.name: Too long: may not be more than 4 bytes"),
        ({"size": 1, "tags": ["a", "b", "c"]}, "spec.tags: Too many: 3: must have at most 2 items"),
        ({"size": 1, "tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"'),
        (
            {"size": 1, "env": [{"name": "a"}, {"name": "a", "kind": "x"}]},
            'spec.env[1]: Duplicate value: {"kind":"x","name":"a"}',
        ),
        (
            {"size": 1, "labels": {"k": 1}},
            'spec.labels.k: Invalid value: "integer": spec.labels.k in body must be of type string: "integer"',
        ),
        (
            {"size": 1, "port": []},
            'spec.port: Invalid value: "array": spec.port in body must be of type integer,string: "array"',
        ),
    ],
    ids=lambda value: value.partition(": ")[0] if isinstance(value, str) else None,
)
def test_what_is_wrong_is_said_as_the_server_says_it(spec: Json, message: str) -> None:
    first, *others = wrong(spec)
    assert first == message
    assert [other for other in others if "some validation rules were not checked" not in other] == []


def test_a_null_is_no_value_of_a_type() -> None:
    assert wrong({"size": 1, "env": [None]})[0].startswith('spec.env[0]: Invalid value: "null"')


def test_immutable_fields_are_compared_by_list_key() -> None:
    old = {"size": 1, "env": [{"name": "a", "kind": "x", "fixed": 1}, {"name": "b", "kind": "x", "fixed": 2}]}
    swapped = {**old, "env": old["env"][::-1]}
    changed = {**old, "env": [{**old["env"][0], "fixed": 9}]}
    assert wrong(swapped, old) == []
    assert wrong(changed, old) == ['spec.env[0].fixed: Invalid value: "integer": fixed is fixed']


def rules(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        yield from (rule["rule"] for rule in node.get("x-kubernetes-validations", []) if isinstance(rule, dict))
        for value in node.values():
            yield from rules(value)


@pytest.mark.parametrize("trainer", TRAINER)
def test_every_rule_of_the_operators_is_evaluated(trainer: str) -> None:
    unknown = {rule for schema in schemas(trainer, "1.7").values() for rule in rules(schema) if not known(rule)}
    assert unknown == set()


@pytest.mark.parametrize("trainer", TRAINER)
def test_the_stock_runtime_is_valid(trainer: str) -> None:
    schema, runtime = schemas(trainer, None)[CLUSTER_TRAINING_RUNTIME], torch_runtime(trainer)
    unknown: list[str] = []
    pruned(schema, runtime, unknown=unknown)
    assert unknown == []
    assert problems(schema, filled(schema, runtime)) == []


@pytest.mark.parametrize("options", [("1.9", None), ("2.3", "0.9")])
def test_other_releases_are_refused(options: tuple[str, str | None]) -> None:
    with pytest.raises(ValueError, match="one of"):
        schemas(*options)


POD_SPEC: Json = {
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "containers": [{"name": "node", "volumeMounts": [{"name": "v", "mountPath": "/a"}]}],
}
REPLICATED: Json = {"name": "node", "template": {"spec": {"template": {"spec": POD_SPEC}}}}
VALID: Json = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "a"},
    "spec": {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {
            "image": "x",
            "command": ["a"],
            "numNodes": 2,
            "numProcPerNode": 1,
            "env": [{"name": "A", "value": "1"}],
            "resourcesPerNode": {"limits": {"nvidia.com/gpu": 8, "memory": "4Gi"}},
        },
        "runtimePatches": [
            {
                "manager": "example.com/m",
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [REPLICATED]}}},
            }
        ],
    },
}


def to_json_schema(schema: Any) -> Any:
    """Give an independent reading of a structural schema's value rules."""
    if not isinstance(schema, dict):
        return schema
    out = {
        key: schema[key]
        for key in ("type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
        if key in schema
    }
    for key in ("required", "minProperties"):
        if key in schema:
            out[key] = schema[key]
    if schema.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""))
    if bits:
        out.setdefault("maximum", 2**bits - 1)
        out.setdefault("minimum", -(2**bits))
    if "properties" in schema:
        out["properties"] = {key: to_json_schema(value) for key, value in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            out[key] = to_json_schema(schema[key])
    return out


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, value in below for place in places(value, (*path, key)))]


PLACES = [place for place in places(VALID["spec"]) if place]
VALUES = [0, -1, 2**40, 1.5, "", "x", "A_b", True, None, [], {}, ["x", "x"], {"name": "x"}, "4 GiB", [None]]


RULE_MESSAGES = (
    "runtimeRef is immutable",
    "ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set",
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


@cache
def validator() -> jsonschema.Draft4Validator:
    """Give the independent judge of TrainJobs."""
    schema = to_json_schema(schemas("2.3", None)[TRAINJOB])
    schema["properties"].pop("metadata")
    return jsonschema.Draft4Validator(schema)


@settings(max_examples=300, deadline=None)
@given(place=st.sampled_from(PLACES), value=st.sampled_from(VALUES))
def test_verdicts_agree_with_jsonschema(place: tuple[Any, ...], value: Any) -> None:
    """What one changed value does to a TrainJob is judged as by an independent validator."""
    schema = schemas("2.3", None)[TRAINJOB]
    changed = copy.deepcopy(VALID)
    holder: Any = changed["spec"]
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = copy.deepcopy(value)
    obj = filled(schema, pruned(schema, changed))
    of_values = [
        error
        for error in problems(schema, obj)
        if error.reason != "FieldValueDuplicate" and not error.message.endswith(RULE_MESSAGES)
    ]
    assert (of_values == []) == validator().is_valid(obj)


def test_ray_is_known_where_it_is_asked_for() -> None:
    assert RAYJOB in schemas("2.3", "1.7")
    assert RAYJOB not in schemas("2.3", None)
