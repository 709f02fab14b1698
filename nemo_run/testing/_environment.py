"""A container's environment and arguments, worked out as the kubelet does it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nemo_run._kube.resources import CONFIG_MAP, SECRET, Resource
from nemo_run.testing._errors import ApiError

Json = dict[str, Any]
Get = Callable[[Resource, str, str], Json]

_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class BadConfig(Exception):
    """The container's configuration refers to what is not there (CreateContainerConfigError)."""


def expand(text: str, env: Mapping[str, str]) -> str:
    """Turn ``$$`` into ``$`` and ``$(NAME)`` into its value, if there is one; leave every other ``$`` as it is."""

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return env.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def environment(pod: Json, container: Json, get: Get) -> dict[str, str]:
    """
    Give what the manifest puts into the container's environment.

    Raises:
        BadConfig: a Secret, ConfigMap or key that it needs is missing.
    """
    namespace = pod["metadata"]["namespace"]
    env: dict[str, str] = {}
    for source in container.get("envFrom", []):
        for key, value in _whole(source, namespace, get).items():
            env[f"{source.get('prefix', '')}{key}"] = value
    for entry in container.get("env", []):
        if "valueFrom" not in entry:
            env[entry["name"]] = expand(entry.get("value") or "", env)
        elif (found := _referred(entry["valueFrom"], pod, namespace, get)) is not None:
            env[entry["name"]] = found
    return env


def data(kind: Resource, namespace: str, name: str, get: Get) -> dict[str, bytes] | None:
    """Give the keys and values of a Secret or ConfigMap; None if there is none of this name."""
    try:
        obj = get(kind, namespace, name)
    except ApiError as error:
        if error.status != 404:
            raise
        return None
    if kind == SECRET:
        encoded = {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
        return {**encoded, **_encoded(obj.get("stringData"))}
    binary = {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}
    return {**_encoded(obj.get("data")), **binary}


def _encoded(texts: Mapping[str, str] | None) -> dict[str, bytes]:
    return {key: value.encode() for key, value in (texts or {}).items()}


def _whole(source: Json, namespace: str, get: Get) -> dict[str, str]:
    kind, ref = (SECRET, source["secretRef"]) if "secretRef" in source else (CONFIG_MAP, source["configMapRef"])
    found = data(kind, namespace, ref["name"], get)
    if found is None and not ref.get("optional"):
        raise BadConfig(f'{kind.kind.lower()} "{ref["name"]}" not found')
    return {key: value.decode("utf-8", "surrogateescape") for key, value in (found or {}).items()}


def _referred(source: Json, pod: Json, namespace: str, get: Get) -> str | None:
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"])
    for kind, name in ((SECRET, "secretKeyRef"), (CONFIG_MAP, "configMapKeyRef")):
        if name in source:
            return _keyed(kind, source[name], namespace, get)
    raise BadConfig(f"LocalKube does not know env from {', '.join(source)}")


def _keyed(kind: Resource, ref: Json, namespace: str, get: Get) -> str | None:
    found = data(kind, namespace, ref["name"], get)
    if found is not None and ref["key"] in found:
        return found[ref["key"]].decode("utf-8", "surrogateescape")
    if ref.get("optional"):
        return None
    if found is None:
        raise BadConfig(f'{kind.kind.lower()} "{ref["name"]}" not found')
    raise BadConfig(f"couldn't find key {ref['key']} in {kind.kind} {namespace}/{ref['name']}")


def field(pod: Json, path: str) -> str:
    """
    Give a field of the pod as the downward API does.

    Raises:
        BadConfig: the downward API does not have it.
    """
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    if match := _KEYED.fullmatch(path):
        return str((meta.get(match[1]) or {}).get(match[2], ""))
    simple = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta["namespace"],
        "metadata.uid": meta["uid"],
        "metadata.labels": _listed(meta.get("labels", {}).items()),
        "metadata.annotations": _listed(meta.get("annotations", {}).items()),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": status.get("hostIP", "127.0.0.1"),
        "status.podIP": status.get("podIP", "127.0.0.1"),
    }
    if path not in simple:
        raise BadConfig(f"field label not supported: {path}")
    return str(simple[path])


def _listed(items: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f'{key}="{value}"' for key, value in sorted(items))
