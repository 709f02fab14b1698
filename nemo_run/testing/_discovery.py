"""What the server says about itself: versions, groups, resources, schemas."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from nemo_run._kube.resources import POD, Resource
from nemo_run.testing._kinds import SHORT_NAMES, WITH_STATUS, Kinds

Json = dict[str, Any]

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
REVIEWS = ("authorization.k8s.io", "v1")


def version() -> Json:
    """Give the answer to ``/version``."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return {
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": "v1.36.2+localkube",
        "gitCommit": "0",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.26.6",
        "compiler": "gc",
        "platform": f"linux/{machine}",
    }


def core_versions(address: str) -> Json:
    """Give the answer to ``/api``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def groups(kinds: Kinds) -> Json:
    """Give the answer to ``/apis``."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*each) for each in _named_groups(kinds)]}


def group(kinds: Kinds, name: str) -> Json | None:
    """Give the answer to ``/apis/<name>``."""
    for each, version_ in _named_groups(kinds):
        if each == name:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(each, version_)}
    return None


def resources(kinds: Kinds, group_: str, version_: str) -> Json | None:
    """Give the answer to ``/api/v1`` or ``/apis/<group>/<version>``."""
    found = [each for kind in kinds.all if (kind.group, kind.version) == (group_, version_) for each in _resource(kind)]
    if (group_, version_) == REVIEWS:
        review = {"name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview", "namespaced": False}
        found.append({**review, "kind": "SelfSubjectAccessReview", "verbs": ["create"]})
    if not found:
        return None
    name = f"{group_}/{version_}" if group_ else version_
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": found}


def openapi_index(kinds: Kinds) -> Json:
    """Give the answer to ``/openapi/v3``."""
    paths = {}
    for group_, version_ in kinds.group_versions():
        path = f"apis/{group_}/{version_}" if group_ else f"api/{version_}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash=LOCALKUBE"}
    return {"paths": paths}


def openapi(kinds: Kinds, group_: str, version_: str, schemas: Mapping[Resource, Json]) -> Json | None:
    """Give the OpenAPI v3 document of one group and version."""
    found = [kind for kind in kinds.all if (kind.group, kind.version) == (group_, version_)]
    if not found:
        return None
    paths: Json = {}
    components: Json = {}
    for kind in found:
        name = _schema_name(kind)
        gvk = {"group": kind.group, "kind": kind.kind, "version": kind.version}
        components[name] = {**schemas.get(kind, {"type": "object"}), "x-kubernetes-group-version-kind": [gvk]}
        where = kind.path("{namespace}", "{name}").replace("%7B", "{").replace("%7D", "}")
        paths[where.removesuffix("/{name}")] = {"post": _operation(kind, "post", name, gvk)}
        paths[where] = {"get": _operation(kind, "get", name, gvk), "patch": _operation(kind, "patch", name, gvk)}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": version()["gitVersion"]},
        "paths": paths,
        "components": {"schemas": components},
    }


def _named_groups(kinds: Kinds) -> list[tuple[str, str]]:
    return [*(each for each in kinds.group_versions() if each[0]), REVIEWS]


def _group(name: str, version_: str) -> Json:
    preferred = {"groupVersion": f"{name}/{version_}", "version": version_}
    return {"name": name, "versions": [preferred], "preferredVersion": preferred}


def _resource(kind: Resource) -> list[Json]:
    main = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": VERBS,
    }
    if kind.plural in SHORT_NAMES:
        main["shortNames"] = SHORT_NAMES[kind.plural]
    subs: list[tuple[str, str, list[str]]] = []
    if kind.plural in WITH_STATUS:
        subs.append(("status", kind.kind, ["get", "patch", "update"]))
    if kind == POD:
        subs += [("binding", "Binding", ["create"]), ("exec", "PodExecOptions", ["create", "get"])]
        subs.append(("log", "Pod", ["get"]))
    extra = [
        {"name": f"{kind.plural}/{sub}", "singularName": "", "namespaced": kind.namespaced, "kind": of, "verbs": verbs}
        for sub, of, verbs in subs
    ]
    return [main, *extra]


def _schema_name(kind: Resource) -> str:
    group_ = kind.group or "api.core"
    if "." not in kind.group or kind.group.endswith(".k8s.io"):
        return (
            f"io.k8s.{'api.core' if not kind.group else f'api.{group_.split(chr(46))[0]}'}.{kind.version}.{kind.kind}"
        )
    return ".".join([*reversed(group_.split(".")), kind.version, kind.kind])


def _operation(kind: Resource, verb: str, schema: str, gvk: Json) -> Json:
    content = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    operation: Json = {
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": gvk,
        "responses": {"200": {"description": "OK", "content": {"application/json": content}}},
    }
    if verb != "get":
        names = ["dryRun", "fieldManager", "fieldValidation"] + (["force"] if verb == "patch" else [])
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": {"type": "boolean" if name == "force" else "string"}}
            for name in names
        ]
        operation["requestBody"] = {"content": {"application/json": content}}
    return operation
