"""
A pod's volumes and a container's mounts: normal forms, checks and merging.

Kubernetes compares mount paths as strings, so ``/data`` and ``/data/`` are two
to its validation and one to the kernel. Here they are one.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from nemo_run._kube.segments import is_control
from nemo_run.exceptions import ConfigError

Json = dict[str, Any]

MOUNT_FIELDS: Mapping[str, type] = {
    "name": str,
    "mountPath": str,
    "subPath": str,
    "subPathExpr": str,
    "readOnly": bool,
    "recursiveReadOnly": str,
    "mountPropagation": str,
}
"""The fields of a VolumeMount (Kubernetes 1.36 core/v1) and what they hold."""

SHORT_LIVED = ("emptyDir", "ephemeral", "gitRepo")
"""Volume sources that are made anew for each pod, so that a second pod never sees what the first wrote."""

READ_ONLY = ("configMap", "secret", "downwardAPI", "projected", "image")
"""Volume sources that no pod can write to."""


def workdir_mount(mount: Any, *, argument: str) -> Json:
    """
    Give *mount* in its normal form, as a new VolumeMount that both copy pod and workload can use.

    Raises:
        ConfigError: it is no VolumeMount, or one whose directory is not the same in every pod.
    """
    if not isinstance(mount, Mapping):
        raise ConfigError(argument, mount, "write a VolumeMount such as {'name': 'work', 'mountPath': '/nemo_run'}")
    for field, value in mount.items():
        _check_field(mount, field, value, argument)
    normal = _said(mount)
    for field in ("name", "mountPath"):
        if field not in normal:
            raise ConfigError(argument, dict(mount), f"add {field!r}")
    if "subPathExpr" in normal:
        raise ConfigError(
            argument,
            dict(mount),
            "write the value itself into 'subPath': with 'subPathExpr' copy pod and workload could see two directories",
        )
    normal["mountPath"] = str(mount_path(normal["mountPath"], argument=argument, shown=dict(mount)))
    if "subPath" in normal:
        normal["subPath"] = _sub_path(normal["subPath"], argument, dict(mount))
    return _said(normal)


def _check_field(mount: Mapping[str, Any], field: str, value: Any, argument: str) -> None:
    if field not in MOUNT_FIELDS:
        raise ConfigError(argument, dict(mount), f"{field!r} is no field of a VolumeMount; {_instead(field)}")
    wanted = MOUNT_FIELDS[field]
    if value is not None and not isinstance(value, wanted):
        raise ConfigError(
            argument, dict(mount), f"{field!r} must be of type {wanted.__name__}, not {type(value).__name__}"
        )


def _instead(field: object) -> str:
    by_lower_case = {known.lower(): known for known in MOUNT_FIELDS}
    asked = str(field).replace("_", "").lower()
    if near := difflib.get_close_matches(asked, by_lower_case, n=1, cutoff=0.75):
        return f"write {by_lower_case[near[0]]!r}"
    return f"remove it ({', '.join(MOUNT_FIELDS)} are)"


def mount_path(path: Any, *, argument: str, shown: Any = None) -> PurePosixPath:
    """
    Give *path* without ``//``, ``/./`` and a ``/`` at its end.

    Raises:
        ConfigError: nothing can be mounted there for a workdir.
    """
    shown = path if shown is None else shown
    if not isinstance(path, str) or not path.startswith("/"):
        raise ConfigError(argument, shown, f"the mount path {path!r} must be absolute; start it with '/'")
    normal = PurePosixPath(_normal(path))
    if normal == PurePosixPath("/"):
        raise ConfigError(argument, shown, "'/' is the container's own root; write a directory such as '/nemo_run'")
    if ".." in normal.parts:
        raise ConfigError(argument, shown, f"the mount path {path!r} holds '..'; write the path itself")
    if ":" in path or any(is_control(char) for char in path):
        raise ConfigError(argument, shown, f"the mount path {path!r} holds ':' or a control character; remove it")
    return normal


def _sub_path(path: str, argument: str, shown: Any) -> str:
    if path.startswith("/"):
        raise ConfigError(argument, shown, f"write 'subPath' relative to the volume: {path.lstrip('/')!r}")
    if ".." in path.split("/"):
        raise ConfigError(argument, shown, "'subPath' may not hold '..'; write the path itself")
    if any(is_control(char) for char in path):
        raise ConfigError(argument, shown, "'subPath' holds a control character; remove it")
    return _normal(path)


def lasting_volume(volumes: Iterable[Mapping[str, Any]], name: str, *, argument: str) -> Json:
    """
    Give a copy of the volume *name*, which must outlive a pod and be writable.

    Raises:
        ConfigError: there is none, or it is made anew for each pod, or read-only.
    """
    known = {volume["name"]: volume for volume in merged_volumes(volumes)}
    if name not in known:
        there = ", ".join(repr(other) for other in known) or "nothing"
        raise ConfigError(argument, name, f"no volume of that name in volumes, which holds {there}; add or rename it")
    volume = known[name]
    if hint := _why_not(volume):
        raise ConfigError("volumes", volume, f"{argument} names this volume {name!r}, and {hint}")
    return volume


def _why_not(volume: Mapping[str, Any]) -> str:
    """Say why no code can be copied to *volume* for another pod to run, and what to do; nothing if it can."""
    sources = {kind: source for kind, source in volume.items() if kind != "name" and source is not None}
    remedy = "; use a persistentVolumeClaim"
    for kind in sources or ("emptyDir",):
        if kind in READ_ONLY:
            return f"a volume of kind {kind} is read-only, so no code can be copied to it{remedy}"
        if kind in SHORT_LIVED:
            lost = "so what the copy pod writes would be lost"
            return f"a volume of kind {kind} does not outlive its pod, {lost}{remedy}"
    if any(isinstance(source, Mapping) and source.get("readOnly") for source in sources.values()):
        return (
            "it is read-only, so no code can be copied to it; remove its readOnly (and set readOnly on the mount if"
            " the workload should not write)"
        )
    return ""


def merged_mounts(
    mounts: Iterable[Mapping[str, Any]],
    *,
    hiding: tuple[PurePosixPath, PurePosixPath] | None = None,
    argument: str = "volume_mounts",
) -> list[Json]:
    """
    Give each mount path one entry: equal entries collapse, the order stays, every entry is new.

    One volume may stand at several paths. *hiding* is a mount's path and a
    directory below it that has to stay in sight.

    Raises:
        ConfigError: two different entries for one path, or one that hides the directory.
    """
    check_listed(mounts, argument)
    merged: dict[str, Json] = {}
    for mount in mounts:
        entry = _normal_entry(mount, argument)
        path = entry["mountPath"]
        if (other := merged.setdefault(path, entry)) != entry:
            raise ConfigError(
                argument,
                [other, entry],
                f"two different mounts at {path}; a container takes one volume and subPath there: "
                "remove one or move it to another mountPath",
            )
        if hiding and _lies_between(PurePosixPath(path), *hiding):
            raise ConfigError(
                argument,
                entry,
                f"it would hide the code directory {hiding[1]}; mount it elsewhere, or set code_subpath to another"
                " directory",
            )
    return list(merged.values())


def _lies_between(path: PurePosixPath, top: PurePosixPath, bottom: PurePosixPath) -> bool:
    return path != top and path.is_relative_to(top) and bottom.is_relative_to(path)


def _normal_entry(mount: Any, argument: str) -> Json:
    if not isinstance(mount, Mapping):
        raise ConfigError(argument, mount, "each entry is a VolumeMount: {'name': …, 'mountPath': …}")
    entry = _said(mount)
    for field in ("name", "mountPath"):
        if not isinstance(entry.get(field), str):
            raise ConfigError(argument, dict(mount), f"add {field!r}, a string")
    entry["mountPath"] = _normal(entry["mountPath"])
    if isinstance(entry.get("subPath"), str):
        entry["subPath"] = _normal(entry["subPath"])
    return _said(entry)


def merged_volumes(volumes: Iterable[Mapping[str, Any]], *, argument: str = "volumes") -> list[Json]:
    """
    Give each volume name one entry: equal entries collapse, the order stays, every entry is new.

    Raises:
        ConfigError: two different volumes of one name.
    """
    check_listed(volumes, argument)
    merged: dict[str, Json] = {}
    for volume in volumes:
        if not isinstance(volume, Mapping) or not isinstance(volume.get("name"), str) or not volume["name"]:
            raise ConfigError(argument, volume, "each entry is a pod volume with a 'name'")
        entry: Json = copy.deepcopy(dict(volume))
        if _said_deep(other := merged.setdefault(entry["name"], entry)) != _said_deep(entry):
            raise ConfigError(
                argument, [other, entry], f"two different volumes are called {entry['name']!r}; rename one"
            )
    return list(merged.values())


def check_listed(entries: Any, argument: str) -> None:
    """
    Check that *entries* are several, not a single one.

    Raises:
        ConfigError: a dict or a text, whose keys or characters would be taken for them.
    """
    if isinstance(entries, (Mapping, str)):
        raise ConfigError(argument, entries, "write a list, with one dict for each entry: [{…}, {…}]")


def claim_of(volume: Mapping[str, Any]) -> str | None:
    """Give the name of the claim that *volume* holds, if it holds one."""
    claim = volume.get("persistentVolumeClaim")
    return claim.get("claimName") if isinstance(claim, Mapping) else None


def _normal(path: str) -> str:
    inner = "/".join(part for part in path.split("/") if part not in ("", "."))
    return f"/{inner}" if path.startswith("/") else inner


def _said(fields: Mapping[str, Any]) -> Json:
    return {key: copy.deepcopy(value) for key, value in fields.items() if not _unsaid(value)}


def _said_deep(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _said_deep(inner) for key, inner in value.items() if not _unsaid(inner)}
    return [_said_deep(inner) for inner in value] if isinstance(value, list) else value


def _unsaid(value: Any) -> bool:
    return value is None or value is False or value == ""
