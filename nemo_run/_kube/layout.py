"""
Where on the volume is it? The one answer for copy pod, workload, launch script and messages.

A layout is computed from an executor's fields when it is asked for, so that
what was appended to them meanwhile counts.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from nemo_run._kube.mounts import (
    Json,
    claim_of,
    lasting_volume,
    merged_mounts,
    merged_volumes,
    mount_path,
    workdir_mount,
)
from nemo_run._kube.segments import render, safe_segment
from nemo_run.exceptions import ConfigError

__all__ = ["DEPRECATED_VOLUME", "WorkdirLayout", "merged_mounts", "merged_volumes", "safe_segment"]

DEPRECATED_VOLUME = "nemo-run-workdir"
"""The name of the volume that is added for ``workdir_pvc``, as NeMo-Run called it."""

_DEPRECATED_PATH = "/nemo_run"


@dataclass(frozen=True)
class WorkdirLayout:
    """The volume that carries a job's code, where it is mounted, and where on it the code lies."""

    volume: Mapping[str, Any]
    """The pod volume, a copy."""
    mount: Mapping[str, Any]
    """The workload's VolumeMount in its normal form."""
    code_dir: PurePosixPath
    """The directory, seen from the container, that holds ``launch.sh``, ``configs/``, ``scripts/``, ``code/``."""
    replaced: str | None = None
    """What to write instead of the deprecated arguments, if they were used."""

    @classmethod
    def resolve(
        cls,
        *,
        volumes: Sequence[Mapping[str, Any]],
        volume_mounts: Sequence[Mapping[str, Any]],
        workdir_volume_mount: Mapping[str, Any] | None,
        code_subpath: str | None,
        default_subpath: str,
        values: Mapping[str, str | None],
        workdir_pvc: str | None = None,
        workdir_pvc_path: str | None = None,
        first_mount: bool = False,
    ) -> WorkdirLayout | None:
        """
        Work the layout out of an executor's fields; None where they ask for no workdir.

        Args:
            default_subpath: the template where *code_subpath* is None.
            values: what ``{user}``, ``{experiment_id}``, ``{job_name}``, ``{workdir}`` stand for.
            first_mount: take the first of *volume_mounts* where nothing else says where the workdir is.

        Raises:
            ConfigError: the fields contradict each other, or what Kubernetes can do.
        """
        new = old = None
        if workdir_volume_mount is not None:
            new = _named(volumes, workdir_volume_mount, "workdir_volume_mount")
        if workdir_pvc:
            old = _of_claim(volumes, volume_mounts, workdir_pvc, workdir_pvc_path or _DEPRECATED_PATH)
        elif new is None and first_mount and volume_mounts:
            old = _named(volumes, volume_mounts[0], "volume_mounts[0]")
            old = replace(old, replaced=f"workdir_volume_mount={old.mount!r}")
        if new and old:
            _check_equal(new, old)
            new = replace(new, replaced=f"workdir_volume_mount={new.mount!r}")
        place = new or old
        if place is None:
            return None
        subpath = render(default_subpath if code_subpath is None else code_subpath, values)
        return cls(place.volume, place.mount, PurePosixPath(place.mount["mountPath"]) / subpath, place.replaced)

    @property
    def launch_script(self) -> PurePosixPath:
        """The script that the workload's containers start with."""
        return self.code_dir / "launch.sh"

    @property
    def package_dir(self) -> PurePosixPath:
        """Where the packager's output lies."""
        return self.code_dir / "code"

    @property
    def configs_dir(self) -> PurePosixPath:
        """Where a task's serialised configs lie."""
        return self.code_dir / "configs"

    @property
    def scripts_dir(self) -> PurePosixPath:
        """Where inline scripts lie."""
        return self.code_dir / "scripts"

    @property
    def mover_mount(self) -> Json:
        """
        The same directory for the copy pod, which has to write to it and is not privileged.

        Kubernetes takes ``recursiveReadOnly`` only beside ``readOnly``, and ``Bidirectional`` only from privileged
        containers; ``HostToContainer`` sees the same mounts.
        """
        mount = {k: v for k, v in self.mount.items() if k not in ("readOnly", "recursiveReadOnly")}
        if mount.get("mountPropagation") == "Bidirectional":
            mount["mountPropagation"] = "HostToContainer"
        return copy.deepcopy(mount)

    def volumes(self, others: Iterable[Mapping[str, Any]]) -> list[Json]:
        """
        Give *others* and the workdir's volume, each name once, in a stable order, as new objects.

        Raises:
            ConfigError: two different volumes of one name.
        """
        return merged_volumes([*others, self.volume])

    def mounts(self, others: Iterable[Mapping[str, Any]]) -> list[Json]:
        """
        Give *others* and the workdir's mount, each path once, in a stable order, as new objects.

        Raises:
            ConfigError: two different mounts at one path, or one that hides the code directory.
        """
        return merged_mounts([*others, self.mount], hiding=(PurePosixPath(self.mount["mountPath"]), self.code_dir))

    def among(self, others: Iterable[Mapping[str, Any]]) -> WorkdirLayout:
        """
        Give the layout for a pod that has the volumes *others*: where one of them holds the claim, it is used.

        A pod that declares one claim under two names may wait for ever for the second.
        """
        claim = claim_of(self.volume)
        known = list(others)
        if claim is None or any(volume["name"] == self.volume["name"] for volume in known):
            return self
        for volume in known:
            if claim_of(volume) == claim and not volume["persistentVolumeClaim"].get("readOnly"):
                mount = {**self.mount, "name": volume["name"]}
                return replace(self, volume=copy.deepcopy(dict(volume)), mount=mount)
        return self


@dataclass(frozen=True)
class _Place:
    volume: Json
    mount: Json
    replaced: str | None = None


def _named(volumes: Sequence[Mapping[str, Any]], mount: Any, argument: str) -> _Place:
    normal = workdir_mount(mount, argument=argument)
    return _Place(lasting_volume(volumes, normal["name"], argument=argument), normal)


def _of_claim(
    volumes: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]], claim: str, path: str
) -> _Place:
    """Map ``workdir_pvc`` and ``workdir_pvc_path``: use what is declared and mounted already, else add it."""
    if not isinstance(claim, str):
        raise ConfigError("workdir_pvc", claim, "write the name of a PersistentVolumeClaim")
    where = str(mount_path(path, argument="workdir_pvc_path"))
    declared = [volume for volume in merged_volumes(volumes) if claim_of(volume) == claim]
    added: Json = {"name": DEPRECATED_VOLUME, "persistentVolumeClaim": {"claimName": claim}}
    names = [volume["name"] for volume in declared] or [DEPRECATED_VOLUME]
    there = [mount for mount in merged_mounts(mounts) if mount["mountPath"] == where and mount["name"] in names]
    wanted = there[0] if there else {"name": names[0], "mountPath": where}
    every = list(volumes) if declared else [*volumes, added]
    place = _named(every, wanted, "volume_mounts" if there else "workdir_pvc")
    shown = "" if declared else f"volumes={merged_volumes(every)!r}, "
    return replace(place, replaced=f"{shown}workdir_volume_mount={place.mount!r}")


def _check_equal(new: _Place, old: _Place) -> None:
    same_claim = claim_of(new.volume) == claim_of(old.volume)
    if same_claim and {**new.mount, "name": ""} == {**old.mount, "name": ""}:
        return
    raise ConfigError(
        "workdir_volume_mount",
        new.mount,
        f"workdir_pvc and workdir_pvc_path say another thing: {old.mount!r} of claim {claim_of(old.volume)!r};"
        " remove workdir_pvc and workdir_pvc_path",
    )
