"""Label and field selectors, parsed as the API server parses them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from nemo_run._kube.resources import Resource
from nemo_run.testing._errors import bad_request

Json = dict[str, Any]
Test = Callable[[Json], bool]

_SET = re.compile(r"\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUALS = re.compile(r"\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*")
_EXISTS = re.compile(r"\s*(!?)\s*([^\s!=,()]+)\s*")

_METADATA = ("metadata.name", "metadata.namespace")
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "jobs": ("status.successful",),
}


def label_test(selector: str) -> Test:
    """Give the test that *selector* puts to an object's labels."""
    tests = list(_requirements(selector))
    return lambda obj: all(test(obj.get("metadata", {}).get("labels") or {}) for test in tests)


def field_test(kind: Resource, selector: str) -> Test:
    """Give the test that *selector* puts to the few fields that *kind* can be selected by."""
    tests = [_field_requirement(kind, part) for part in selector.split(",") if part]
    return lambda obj: all(test(obj) for test in tests)


def _requirements(selector: str) -> list[Test]:
    tests: list[Test] = []
    at = 0
    while at < len(selector) and selector.strip():
        for pattern, make in ((_SET, _in_set), (_EQUALS, _equals), (_EXISTS, _exists)):
            match = pattern.match(selector, at)
            if match and (match.end() == len(selector) or selector[match.end()] == ","):
                tests.append(make(match))
                at = match.end() + 1
                break
        else:
            raise bad_request("unable to parse requirement: found '', expected: ',', ')' or identifier")
    return tests


def _in_set(match: re.Match[str]) -> Test:
    key, operator = match[1], match[2]
    values = {value.strip() for value in match[3].split(",")}
    if operator == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _equals(match: re.Match[str]) -> Test:
    key, operator, value = match.groups()
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _exists(match: re.Match[str]) -> Test:
    absent, key = match.groups()
    return lambda labels: (key in labels) != bool(absent)


def _field_requirement(kind: Resource, text: str) -> Test:
    match = re.fullmatch(r"\s*([^!=]+?)\s*(==|=|!=)\s*(.*?)\s*", text)
    if not match:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{text}'")
    path, operator, value = match.groups()
    known = _METADATA if kind.namespaced else _METADATA[:1]
    if path not in known + (_FIELDS.get(kind.plural, ()) if "." not in kind.group else ()):
        raise bad_request(f"field label not supported: {path}")
    return lambda obj: (_field(obj, path) == value) == (operator != "!=")


def _field(obj: Json, path: str) -> str:
    if path == "source":
        path = "source.component"
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
