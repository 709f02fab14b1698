"""What the API server refuses in a pod that is well typed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from nemo_run.testing._errors import FieldError
from nemo_run.testing._metadata import label_faults, wrong

Json = dict[str, Any]

_NATIVE = ("cpu", "memory", "ephemeral-storage", "storage")
_SUFFIXES = {
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P"), -3)},
    "E": Decimal(1000) ** 6,
}


def problems(pod: Json) -> Iterator[FieldError]:
    """Tell all that is wrong with a pod's spec, in the order in which the API server finds it."""
    spec = pod["spec"]
    volumes: set[str] = set()
    for at, volume in enumerate(spec.get("volumes", [])):
        faults = list(_volume(volume, volumes, f"spec.volumes[{at}]"))
        yield from faults
        if not faults:
            volumes.add(volume["name"])
    names: set[str] = set()
    if not spec.get("containers"):
        yield _required("spec.containers")
    for group in ("containers", "initContainers"):
        for at, container in enumerate(spec.get(group, [])):
            yield from _container(container, names, volumes, f"spec.{group}[{at}]")
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never"):
        yield _unsupported("spec.restartPolicy", spec["restartPolicy"], ("Always", "Never", "OnFailure"))
    if spec.get("activeDeadlineSeconds", 1) < 1:
        yield wrong("spec.activeDeadlineSeconds", spec["activeDeadlineSeconds"], _BETWEEN)
    for key in ("hostname", "subdomain"):
        for fault in label_faults(spec[key]) if key in spec else ():
            yield wrong(f"spec.{key}", spec[key], fault)


_BETWEEN = "must be between 1 and 2147483647, inclusive"


def warnings(pod: Json) -> Iterator[str]:
    """Tell what the API server accepts in a pod with a shake of its head."""
    for group in ("initContainers", "containers"):
        for at, container in enumerate(pod["spec"].get(group, [])):
            seen = set()
            for number, env in enumerate(container.get("env", [])):
                name = env.get("name")
                if name in seen:
                    where = f"spec.{group}[{at}].env[{number}]"
                    yield f'{where}: hides previous definition of "{name}", which may be dropped when using apply'
                seen.add(name)


def quantity(text: Any) -> Decimal:
    """Give the number that a Kubernetes quantity means."""
    match = re.fullmatch(r"([+-]?[0-9.]+)(?:[eE]([-+]?[0-9]+)|([a-zA-Z]*))", str(text))
    if not match or match[3] not in (None, *_SUFFIXES):
        return Decimal(0)
    factor = Decimal(10) ** int(match[2]) if match[2] else _SUFFIXES[match[3] or ""]
    return Decimal(match[1]) * factor


def _volume(volume: Json, known: set[str], path: str) -> Iterator[FieldError]:
    name = volume.get("name", "")
    if not name:
        yield _required(f"{path}.name")
    else:
        for fault in label_faults(name):
            yield wrong(f"{path}.name", name, fault)
        if name in known:
            yield _duplicate(f"{path}.name", name)
    for extra in [key for key in volume if key != "name"][1:]:
        message = "Forbidden: may not specify more than 1 volume type"
        yield FieldError(f"{path}.{extra}", message, "FieldValueForbidden")
    if "persistentVolumeClaim" in volume and not (volume["persistentVolumeClaim"] or {}).get("claimName"):
        yield _required(f"{path}.persistentVolumeClaim.claimName")


def _container(container: Json, names: set[str], volumes: set[str], path: str) -> Iterator[FieldError]:
    name = container.get("name", "")
    if not name:
        yield _required(f"{path}.name")
    else:
        for fault in label_faults(name):
            yield wrong(f"{path}.name", name, fault)
        if name in names:
            yield _duplicate(f"{path}.name", name)
        names.add(name)
    image = container.get("image", "")
    if not image:
        yield _required(f"{path}.image")
    elif image != image.strip():
        yield wrong(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from _ports(container, path)
    for at, env in enumerate(container.get("env", [])):
        yield from _env(env, f"{path}.env[{at}]")
    yield from _mounts(container, volumes, path)
    if container["imagePullPolicy"] not in ("Always", "IfNotPresent", "Never"):
        yield _unsupported(f"{path}.imagePullPolicy", container["imagePullPolicy"], ("Always", "IfNotPresent", "Never"))
    yield from _resources(container["resources"], f"{path}.resources")


def _ports(container: Json, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for at, port in enumerate(container.get("ports", [])):
        name = port.get("name")
        if name in seen:
            yield _duplicate(f"{path}.ports[{at}].name", name)
        if name:
            seen.add(name)
            if len(name) > 15:
                yield wrong(f"{path}.ports[{at}].name", name, "must be no more than 15 characters")
        if not port.get("containerPort"):
            yield _required(f"{path}.ports[{at}].containerPort")
        elif not 0 < port["containerPort"] < 65536:
            why = "must be between 1 and 65535, inclusive"
            yield wrong(f"{path}.ports[{at}].containerPort", port["containerPort"], why)


def _env(env: Json, path: str) -> Iterator[FieldError]:
    name = env.get("name", "")
    if not name:
        yield _required(f"{path}.name")
    elif not re.fullmatch(r"[ -<>-~]+", name):
        why = (
            "a valid environment variable name must consist only of printable ASCII characters other than '=' "
            "(e.g. 'my_ENV~', regex used for validation is '[ -<>-~]+')"
        )
        yield wrong(f"{path}.name", name, why)
    source = env.get("valueFrom")
    if source is None:
        return
    kinds = [key for key in source if source[key] is not None]
    if not kinds:
        yield wrong(
            f"{path}.valueFrom",
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
        )
    elif env.get("value"):
        yield wrong(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
    elif len(kinds) > 1:
        yield wrong(f"{path}.valueFrom", "", "may not have more than one field specified at a time")


def _mounts(container: Json, volumes: set[str], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for at, mount in enumerate(container.get("volumeMounts", [])):
        here = f"{path}.volumeMounts[{at}]"
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield _required(f"{here}.name")
        if name not in volumes:
            yield FieldError(f"{here}.name", f"Not found: {json.dumps(name)}", "FieldValueNotFound")
        if not where:
            yield _required(f"{here}.mountPath")
        if where in seen:
            yield wrong(f"{here}.mountPath", where, "must be unique")
        seen.add(where)
        if mount.get("subPath") and mount.get("subPathExpr"):
            why = "subPathExpr and subPath are mutually exclusive"
            yield wrong(f"{here}.subPathExpr", mount["subPathExpr"], why)
        for key in ("subPath", "subPathExpr"):
            if mount.get(key):
                yield from _descending(mount[key], f"{here}.{key}")


def _descending(path: str, where: str) -> Iterator[FieldError]:
    if path.startswith("/"):
        yield wrong(where, path, "must be a relative path")
    if ".." in path.split("/"):
        yield wrong(where, path, "must not contain '..'")


def _resources(resources: Json, path: str) -> Iterator[FieldError]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for name, asked in requests.items():
        own = "/" in name and not name.startswith("kubernetes.io/")
        if name not in limits:
            if own:
                yield _required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif own and quantity(asked) != quantity(limits[name]):
            yield wrong(f"{path}.requests", str(asked), f"must be equal to {name} limit of {limits[name]}")
        elif quantity(asked) > quantity(limits[name]):
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield wrong(f"{path}.requests", str(asked), why)
    for name in {**limits, **requests}:
        if "/" not in name and name not in _NATIVE and not name.startswith("hugepages-"):
            group = "limits" if name in limits else "requests"
            why = "must be a standard resource for containers"
            yield wrong(f"{path}.{group}[{name}]", name, why)


def _required(path: str, why: str = "") -> FieldError:
    return FieldError(path, f"Required value{f': {why}' if why else ''}", "FieldValueRequired")


def _duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, f"Duplicate value: {json.dumps(value)}", "FieldValueDuplicate")


def _unsupported(path: str, value: Any, allowed: tuple[str, ...]) -> FieldError:
    names = ", ".join(json.dumps(each) for each in allowed)
    message = f"Unsupported value: {json.dumps(value)}: supported values: {names}"
    return FieldError(path, message, "FieldValueNotSupported")
