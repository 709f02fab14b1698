"""Pods as a typed API decodes and completes them: types, unknown fields, defaults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nemo_run._kube.resources import POD
from nemo_run.testing._errors import ApiError, cannot_handle
from nemo_run.testing._schema import field_schema, filled

Json = dict[str, Any]
Schema = Mapping[str, Any]

_QUANTITY = r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)"

_STRUCTS = {
    "": "Pod",
    "spec": "PodSpec",
    "containers": "Container",
    "initContainers": "Container",
    "env": "EnvVar",
    "valueFrom": "EnvVarSource",
    "ports": "ContainerPort",
    "volumes": "Volume",
    "tolerations": "Toleration",
    "volumeMounts": "VolumeMount",
    "resources": "ResourceRequirements",
    "persistentVolumeClaim": "PersistentVolumeClaimVolumeSource",
    "imagePullSecrets": "LocalObjectReference",
}
"""What Go calls the values of these fields; of others, their name with a capital."""

_EVICTION = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for state in ("not-ready", "unreachable")
]


def check_types(schema: Schema, pod: Json) -> None:
    """
    Return if every value has the type of its field.

    Raises:
        ApiError: one has not (400), in the words of Go's decoder.
    """
    _check(schema, pod, ())


def completed(schema: Schema, pod: Json) -> Json:
    """Give *pod* with the defaults that the API server sets."""
    pod = {**pod, "spec": filled(schema["properties"]["spec"], pod.get("spec") or {})}
    spec = pod["spec"]
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [_container(each) for each in spec[key]]
    for volume in spec.get("volumes", []):
        _complete_volume(volume)
    defaults: Json = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    if "serviceAccountName" in spec:
        defaults["serviceAccount"] = spec["serviceAccountName"]
    if spec.get("hostNetwork"):
        for port in (port for each in spec["containers"] for port in each.get("ports", [])):
            port.setdefault("hostPort", port.get("containerPort"))
    spec = pod["spec"] = {**defaults, **spec}
    given = spec.get("tolerations", [])
    keys = [each.get("key") for each in given if each.get("effect") in (None, "", "NoExecute")]
    if not any(each.get("operator") == "Exists" and not each.get("key") for each in given):
        given = [*given, *(dict(each) for each in _EVICTION if each["key"] not in keys)]
    spec["tolerations"] = given
    status = {"phase": "Pending", "qosClass": _quality(spec)}
    return {**pod, "status": {**status, **(pod.get("status") or {})}}


def _check(schema: Schema, value: Any, path: tuple[str, ...]) -> None:
    if value is None:
        return
    if schema.get("x-kubernetes-int-or-string"):
        if "pattern" in schema and not re.fullmatch(_QUANTITY, str(value)):
            raise cannot_handle(POD, f"quantities must match the regular expression '^{_QUANTITY}$'")
        return
    wanted = schema.get("type")
    if wanted and not _fits(wanted, value):
        raise _cannot_unmarshal(schema, value, path)
    if isinstance(value, dict):
        for key, item in value.items():
            if (found := field_schema(schema, key)) is not None:
                _check(found, item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            _check(schema.get("items", {}), item, path)


def _fits(wanted: str, value: Any) -> bool:
    if wanted in ("integer", "number"):
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool}[wanted])


def _cannot_unmarshal(schema: Schema, value: Any, path: tuple[str, ...]) -> ApiError:
    holder = path[-2] if len(path) > 1 else ""
    struct = _STRUCTS.get(holder, holder[:1].upper() + holder[1:])
    found = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}[type(value)]
    where = f"Go struct field {struct}.{'.'.join(path)} of type {_go_type(schema, path[-1] if path else '')}"
    return cannot_handle(POD, f"json: cannot unmarshal {found} into {where}")


def _go_type(schema: Schema, name: str) -> str:
    wanted = schema.get("type")
    if wanted == "array":
        return f"[]{_go_type(schema.get('items', {}), name)}"
    if wanted == "object":
        if "additionalProperties" in schema:
            return f"map[string]{_go_type(schema['additionalProperties'], name)}"
        return f"v1.{_STRUCTS.get(name, name[:1].upper() + name[1:])}"
    if wanted in ("integer", "number"):
        return str(schema.get("format", "int32"))
    return {"boolean": "bool"}.get(str(wanted), "string")


def _container(container: Json) -> Json:
    image = str(container.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    always = "@" not in image and tag in ("", "latest")
    resources = dict(container.get("resources", {}))
    if limits := resources.get("limits"):
        resources["requests"] = {**limits, **resources.get("requests", {})}
    return {
        **container,
        "resources": resources,
        "terminationMessagePath": container.get("terminationMessagePath", "/dev/termination-log"),
        "terminationMessagePolicy": container.get("terminationMessagePolicy", "File"),
        "imagePullPolicy": container.get("imagePullPolicy", "Always" if always else "IfNotPresent"),
    }


def _complete_volume(volume: Json) -> None:
    if not set(volume) - {"name"}:
        volume["emptyDir"] = {}
    for kind in ("secret", "configMap", "projected", "downwardAPI"):
        if isinstance(volume.get(kind), dict):
            volume[kind].setdefault("defaultMode", 420)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")


def _quality(spec: Json) -> str:
    """Give the quality of service class that a pod's cpu and memory settings earn it."""
    asked, sure = False, True
    for container in [*spec.get("containers", []), *spec.get("initContainers", [])]:
        requests, limits = (container["resources"].get(key, {}) for key in ("requests", "limits"))
        for name in ("cpu", "memory"):
            asked = asked or name in requests or name in limits
            sure = sure and name in limits and requests.get(name) == limits[name]
    return "BestEffort" if not asked else "Guaranteed" if sure else "Burstable"
