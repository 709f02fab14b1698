"""The validation rules of the operators' schemas: not CEL at large, only the expressions that they use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_IN = re.compile(r"self in \[([^\]]*)\]")
_WORD = re.compile(r"'([^']*)'")


def holds(rule: str, value: Any, old: Any) -> bool:
    """Tell whether *rule* holds of *value*, which replaces *old*; a rule that is not known here holds."""
    if rule == "self == oldSelf":
        return old is None or bool(value == old)
    if match := _IN.fullmatch(rule):
        return value in _WORD.findall(match[1])
    test = _RULES.get(rule)
    return test is None or test(value)


def known(rule: str) -> bool:
    """Tell whether *rule* is one that :func:`holds` evaluates."""
    return rule == "self == oldSelf" or bool(_IN.fullmatch(rule)) or rule in _RULES


def _at_most_one(*names: str) -> Callable[[Any], bool]:
    return lambda value: sum(name in value for name in names) <= 1


def _elastic(value: Any) -> bool:
    return not ("numNodes" in value and "elasticPolicy" in value.get("torch", {}))


def _startup(value: Any) -> bool:
    in_order = value.get("startupPolicy", {}).get("startupPolicyOrder") == "InOrder"
    return not (in_order and any("dependsOn" in job for job in value.get("replicatedJobs", [])))


_RULES: Mapping[str, Callable[[Any], bool]] = {
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')": lambda value: bool(
        re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", value["metadata"]["name"])
    ),
    "size(self.metadata.name) <= 63": lambda value: len(value["metadata"]["name"]) <= 63,
    "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')": lambda value: (
        value == "" or bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*://.", value))
    ),
    "has(self.lastUpdatedTime)": lambda value: "lastUpdatedTime" in value,
    "self >= 1": lambda value: value >= 1,
    "self > 0 || self in ['auto', 'cpu', 'gpu']": lambda value: (
        value in ("auto", "cpu", "gpu") if isinstance(value, str) else value > 0
    ),
    "!self.exists(c, c == 'node')": lambda value: "node" not in value,
    "!(has(self.torch) && has(self.mpi))": _at_most_one("torch", "mpi"),
    "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1": (
        _at_most_one("torch", "mpi", "jax", "xgboost", "flux")
    ),
    "!(has(self.numNodes) && (has(self.torch) && has(self.torch.elasticPolicy)))": _elastic,
    (
        "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder' "
        "&& self.replicatedJobs.exists(x, has(x.dependsOn)))"
    ): _startup,
    "self.templates.all(t, !has(t.metadata.namespace) || size(t.metadata.namespace) == 0)": lambda value: (
        not any(template.get("metadata", {}).get("namespace") for template in value.get("templates", []))
    ),
    "!(has(self.jobStatus) && has(self.jobDeploymentStatus))": _at_most_one("jobStatus", "jobDeploymentStatus"),
    "has(self.jobStatus) || has(self.jobDeploymentStatus)": lambda value: (
        "jobStatus" in value or "jobDeploymentStatus" in value
    ),
    "!((has(self.onSuccess) || has(self.onFailure)) && has(self.deletionRules))": lambda value: (
        not (("onSuccess" in value or "onFailure" in value) and "deletionRules" in value)
    ),
    "((has(self.onSuccess) && has(self.onFailure)) || has(self.deletionRules))": lambda value: (
        ("onSuccess" in value and "onFailure" in value) or "deletionRules" in value
    ),
}
