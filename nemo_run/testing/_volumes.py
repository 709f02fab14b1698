"""The volumes of a pod as directories of this machine, and where its containers have them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nemo_run._kube.resources import CLAIM, CONFIG_MAP, SECRET
from nemo_run.testing._environment import BadConfig, Get, data, field
from nemo_run.testing._errors import ApiError
from nemo_run.testing._rootfs import Mount

Json = dict[str, Any]
Claims = Callable[[str, str], Path]


class CannotMount(Exception):
    """A volume cannot be set up (the Event FailedMount)."""


class Volumes:
    """The volumes of one pod; those that end with it lie in *directory*."""

    def __init__(self, pod: Json, directory: Path, claims: Claims, get: Get) -> None:
        self._pod = pod
        self._directory = directory
        self._claims = claims
        self._get = get
        self._paths: dict[str, Path] = {}
        self._read_only: set[str] = set()
        self._shared: set[str] = set()
        """The volumes whose files belong to the pod's ``fsGroup``."""

    def missing_claim(self) -> str | None:
        """Give the name of a claim that is not there, which keeps the pod from being scheduled."""
        for volume in self._pod["spec"].get("volumes", []):
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim is not None:
                try:
                    self._get(CLAIM, self._pod["metadata"]["namespace"], claim)
                except ApiError:
                    return str(claim)
        return None

    def set_up(self) -> None:
        """
        Make every volume's directory.

        Raises:
            CannotMount: what a volume is made from is not there.
        """
        on_host: set[str] = set()
        for volume in self._pod["spec"].get("volumes", []):
            self._paths[volume["name"]] = self._make(volume)
            source = volume.get("persistentVolumeClaim", {})
            if "hostPath" in volume:
                on_host.add(volume["name"])
            if source.get("readOnly") or not {"persistentVolumeClaim", "emptyDir", "hostPath"} & volume.keys():
                self._read_only.add(volume["name"])
        group = self._pod["spec"].get("securityContext", {}).get("fsGroup")
        if group is not None and os.geteuid() == 0:
            self._shared = self._paths.keys() - self._read_only - on_host
            for name in self._shared:
                _give_to_group(self._paths[name], int(group))

    def mounts(self, container: Json) -> list[Mount]:
        """
        Give what *container* mounts, making missing ``subPath`` directories as the kubelet does.

        Raises:
            BadConfig: a ``subPath`` leads out of its volume.
        """
        return [self._mount(entry) for entry in container.get("volumeMounts", [])]

    def _mount(self, entry: Json) -> Mount:
        name = entry["name"]
        path = self._paths[name]
        if sub := entry.get("subPath"):
            path = _sub_path(path, sub, name, mode=self._mode(path, name))
        return Mount(path, entry["mountPath"], bool(entry.get("readOnly")) or name in self._read_only)

    def _mode(self, path: Path, name: str) -> int:
        """Give the mode of new directories: in a group's volume that of its top, whose group they get by setgid."""
        return path.stat().st_mode & 0o7777 if name in self._shared else 0o755

    def _make(self, volume: Json) -> Path:
        namespace = self._pod["metadata"]["namespace"]
        if "persistentVolumeClaim" in volume:
            return self._claims(namespace, volume["persistentVolumeClaim"]["claimName"])
        if "hostPath" in volume:
            return _host_path(volume)
        path: Path = self._directory / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        if "emptyDir" in volume:
            path.chmod(0o777)
            return path
        for name, content, mode in self._files(volume, namespace):
            if name.startswith("/") or ".." in name.split("/"):
                raise CannotMount(f'MountVolume.SetUp failed for volume "{volume["name"]}" : invalid path: {name}')
            file = path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(mode)
        return path

    def _files(self, volume: Json, namespace: str) -> Iterator[tuple[str, bytes, int]]:
        for kind, key, name in ((SECRET, "secret", "secretName"), (CONFIG_MAP, "configMap", "name")):
            if key in volume:
                source = volume[key]
                found = data(kind, namespace, source[name], self._get)
                if found is None and not source.get("optional"):
                    what = f'{kind.kind.lower()} "{source[name]}" not found'
                    raise CannotMount(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {what}')
                yield from _items(volume["name"], source, found or {})
                return
        if "downwardAPI" in volume:
            for item in volume["downwardAPI"].get("items", []):
                yield item["path"], field(self._pod, item["fieldRef"]["fieldPath"]).encode(), 0o644
            return
        kinds = ", ".join(key for key in volume if key != "name")
        raise CannotMount(f'LocalKube has no volumes of the kind {kinds} (volume "{volume["name"]}")')


def _items(volume: str, source: Json, found: dict[str, bytes]) -> Iterator[tuple[str, bytes, int]]:
    mode = source.get("defaultMode", 0o644)
    for item in source.get("items") or [{"key": key, "path": key} for key in found]:
        if item["key"] not in found:
            if source.get("optional"):
                continue
            raise CannotMount(
                f'MountVolume.SetUp failed for volume "{volume}" : references non-existent key: {item["key"]}'
            )
        yield item["path"], found[item["key"]], item.get("mode", mode)


def _host_path(volume: Json) -> Path:
    path = Path(volume["hostPath"]["path"])
    if volume["hostPath"].get("type") == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        raise CannotMount(f'MountVolume.SetUp failed for volume "{volume["name"]}" : hostPath {path} does not exist')
    return path


def _sub_path(volume: Path, sub: str, name: str, *, mode: int) -> Path:
    """Give the directory (or file) *sub* of a volume, made with *mode* where it is missing."""
    base = volume.resolve()
    path = (base / sub).resolve()
    if path != base and base not in path.parents:
        raise BadConfig(f'failed to prepare subPath for volumeMount "{name}": subpath {sub!r} not within volume path')
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        each.chmod(mode)
    return path


def _give_to_group(path: Path, group: int) -> None:
    """Let *group* write in a volume, as the kubelet does for ``fsGroup``."""
    for directory, _, files in os.walk(path):
        os.chown(directory, -1, group)
        os.chmod(directory, os.stat(directory).st_mode | 0o2770)  # noqa: S103 - as the kubelet does
        for name in files:
            file = os.path.join(directory, name)
            os.chown(file, -1, group, follow_symlinks=False)
            if not os.path.islink(file):
                os.chmod(file, os.stat(file).st_mode | 0o660)
