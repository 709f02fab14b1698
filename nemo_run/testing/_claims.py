"""Persistent volume claims as directories of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Claims:
    """
    Which directory stands for which claim.

    Claims that are given by name are there in every namespace, ``namespace/name`` in that one only.
    """

    def __init__(self, home: Path, given: Iterable[str] | Mapping[str, Path] | None) -> None:
        self._root = home / "claims"
        names = given if isinstance(given, Mapping) else dict.fromkeys(given or ())
        self._paths = {self._key(name): path for name, path in names.items()}

    def __call__(self, namespace: str, name: str) -> Path:
        """Give the directory, made if it is not there: open to all, as local volume provisioners make it."""
        given = self._paths.get((namespace, name)) or self._paths.get(("", name))
        if given is not None:
            given.mkdir(parents=True, exist_ok=True)
            return given
        for part in (namespace, name):
            if not _NAME.fullmatch(part):
                raise ValueError(f"{part!r} is no name of a claim or namespace")
        path = self._root / namespace / name
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(0o777)
        return path

    def namespaces(self) -> set[str]:
        """Give the namespaces that are named in front of claims."""
        return {namespace for namespace, _ in self._paths if namespace}

    def names(self, namespace: str) -> list[str]:
        """Give the claims that *namespace* has from the start."""
        return [name for where, name in self._paths if where in ("", namespace)]

    @staticmethod
    def _key(name: str) -> tuple[str, str]:
        namespace, _, rest = name.rpartition("/")
        return namespace, rest
