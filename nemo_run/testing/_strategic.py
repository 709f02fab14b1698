"""Strategic merge patches, as far as pod templates need them (Kubernetes' ``strategicpatch``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "volumeMounts": "mountPath",
    "replicatedJobs": "name",
}
"""Lists that are merged, and by which field of their items (core/v1's patchMergeKey); others are replaced."""


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """Give *base* with *patch* merged over it."""
    result = dict(base)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            below = result.get(name)
            result[name] = merged(below if isinstance(below, Mapping) else {}, value)
        elif name in _KEYS and isinstance(value, list):
            result[name] = _lists(result.get(name) or [], value, _KEYS[name])
        else:
            result[name] = value
    return result


def _lists(base: Sequence[Json], patch: Sequence[Json], key: str) -> list[Json]:
    """Merge items of the same *key*; new ones come before those that only *base* has, as in Kubernetes."""
    found = {item[key]: item for item in base}
    places = {item[key]: place for place, item in enumerate(base)}
    for item in patch:
        found[item[key]] = merged(found.get(item[key], {}), _set(item) if key == "mountPath" else item)
    ours = list(dict.fromkeys(item[key] for item in patch))
    theirs = [item[key] for item in base if item[key] not in ours]
    order = []
    while ours and theirs:
        first_is_theirs = ours[0] in places and places[theirs[0]] < places[ours[0]]
        order.append(theirs.pop(0) if first_is_theirs else ours.pop(0))
    return [found[name] for name in (*order, *ours, *theirs)]


def _set(mount: Json) -> Json:
    """Leave out what Go leaves out of a patch as empty, so that it cannot unset anything."""
    return {name: value for name, value in mount.items() if value not in ("", False, None)}
