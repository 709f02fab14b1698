"""
Where fields of ``spec_kwargs``, ``container_kwargs`` and ``pod_spec_overrides`` belong.

NeMo-Run put them where the API server dropped most of them in silence. Here a
field goes to the one place of a TrainJob that has it; a field that has none is
sent where NeMo-Run sent it, so that the server itself says whether it knows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nemo_run._kube.manifests.pods import json_merge

Json = dict[str, Any]
Dialect = Literal["2.0", "2.1", "2.2"]
Place = Literal["spec", "trainer", "pod", "container"]

_TRAINER = ("image", "command", "args", "env", "numNodes", "numProcPerNode", "resourcesPerNode")
_POD = ("serviceAccountName", "nodeSelector", "tolerations", "volumes", "initContainers", "containers")
_POD_2_1 = (*_POD, "schedulingGates", "affinity", "imagePullSecrets")

FIELDS: Mapping[Dialect, Mapping[Place, tuple[str, ...]]] = {
    "2.0": {"trainer": _TRAINER, "pod": (*_POD, "schedulingGates"), "container": ("volumeMounts",)},
    "2.1": {"trainer": _TRAINER, "pod": _POD_2_1, "container": ("volumeMounts",)},
    "2.2": {
        "trainer": _TRAINER,
        "pod": (*_POD_2_1, "securityContext", "terminationGracePeriodSeconds"),
        "container": ("volumeMounts", "securityContext"),
    },
}
"""What ``spec.trainer``, a patch's pod and its containers have (CRDs of Trainer 2.0.1, 2.1.0, 2.2.1 and 2.3.0)."""

_PLACES: Mapping[str, tuple[Place, ...]] = {
    "spec_kwargs": ("spec", "pod"),
    "container_kwargs": ("trainer", "container"),
    "pod_spec_overrides": ("pod",),
}
"""Where an argument's fields may belong; the first is where NeMo-Run put all of them."""

_RENAMED = {"container_kwargs": {"resources": "resourcesPerNode"}}
_SNAKE = re.compile(r"_([a-z0-9])")


@dataclass(frozen=True)
class Origin:
    """Which argument a field of the manifest came from."""

    place: Place
    field: str
    argument: str
    key: str

    def __str__(self) -> str:
        return f"{self.argument}[{self.key!r}]"


@dataclass
class Placed:
    """The fields, each at its place; None says that a field is to be removed."""

    spec: Json = field(default_factory=dict)
    trainer: Json = field(default_factory=dict)
    pod: Json = field(default_factory=dict)
    container: Json = field(default_factory=dict)
    origins: list[Origin] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the user should be told."""


def placed(dialect: Dialect, arguments: Mapping[str, Mapping[str, Any] | None]) -> Placed:
    """Give each field of *arguments* (by argument name) its place in a TrainJob of this *dialect*."""
    result = Placed()
    for argument, fields in arguments.items():
        for key, value in (fields or {}).items():
            if argument == "spec_kwargs" and key == "trainer" and isinstance(value, Mapping):
                result.trainer = json_merge(result.trainer, value)
                result.origins += [Origin("trainer", name, argument, key) for name in value]
                continue
            name = _RENAMED.get(argument, {}).get(key) or _camel_case(key)
            if "_" in key:
                result.notes.append(f"{argument}[{key!r}] is sent as {name!r}, the name that Kubernetes has for it")
            place = _place(dialect, argument, name)
            there: Json = getattr(result, place)
            there[name] = json_merge({name: there.get(name)}, {name: value}).get(name)
            result.origins.append(Origin(place, name, argument, key))
    return result


def _place(dialect: Dialect, argument: str, name: str) -> Place:
    places = _PLACES[argument]
    return next((place for place in places if name in FIELDS[dialect].get(place, ())), places[0])


def _camel_case(key: str) -> str:
    return _SNAKE.sub(lambda match: match[1].upper(), key)
