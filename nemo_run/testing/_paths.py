"""URL paths of the API, taken apart."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from nemo_run._kube.resources import Resource
from nemo_run.testing._errors import ApiError
from nemo_run.testing._kinds import NAMESPACE, Kinds


@dataclass(frozen=True)
class Target:
    """What a path points to: a collection, one object of it, or a subresource of that."""

    kind: Resource
    namespace: str = ""
    name: str = ""
    sub: str = ""


def target(path: str, kinds: Kinds) -> Target | None:
    """
    Give what *path* points to; None where the server knows no such group and version at all.

    Raises:
        ApiError: the group is known, but not that resource (404).
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if (group, version) not in kinds.group_versions():
        return None
    found = _in_namespace(group, version, rest, kinds) or _on_its_own(group, version, rest, kinds)
    if found is None:
        raise ApiError(404, "NotFound", "the server could not find the requested resource", details={})
    return found


def _in_namespace(group: str, version: str, rest: list[str], kinds: Kinds) -> Target | None:
    if rest[0] != "namespaces" or len(rest) < 3:
        return None
    kind = kinds.find(group, version, rest[2])
    if kind is None or not kind.namespaced or len(rest) > 5:
        return None
    name, sub = ([*rest[3:], "", ""])[:2]
    return Target(kind, rest[1], name, sub)


def _on_its_own(group: str, version: str, rest: list[str], kinds: Kinds) -> Target | None:
    kind = kinds.find(group, version, rest[0])
    if kind is None or len(rest) > (1 if kind.namespaced else 3):
        return None
    name, sub = ([*rest[1:], "", ""])[:2]
    if kind == NAMESPACE and sub not in ("", "status", "finalize"):
        return None
    return Target(kind, "", name, sub)
