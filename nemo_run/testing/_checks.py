"""All that an API server does to an object before it stores it: decode, complete, validate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_run._kube.resources import CLAIM, POD, Resource
from nemo_run.testing import _metadata, _podrules, _podspec, _schema
from nemo_run.testing._errors import cannot_handle, invalid
from nemo_run.testing._kinds import NAMESPACE
from nemo_run.testing._store import Review

Json = dict[str, Any]


class Validation:
    """The checks by schema and by the rules of the core kinds: a check for the store."""

    def __init__(self, schemas: Mapping[Resource, Json]) -> None:
        self._schemas = schemas

    def __call__(self, kind: Resource, obj: Json, old: Json | None, review: Review) -> Json:
        """
        Give *obj* as it is to be stored.

        Raises:
            ApiError: it cannot be decoded, has unknown fields that are refused (400), or is invalid (422).
        """
        schema = self._schemas.get(kind)
        if schema is not None:
            if kind == POD:
                _podspec.check_types(schema, obj)
            obj = self._known(kind, schema, obj, review)
        obj = _without_nulls(obj)
        obj = _completed(kind, schema, obj)
        errors = list(_metadata.problems(kind, obj["metadata"])) if old is None else []
        if kind == POD:
            if old is None or old["spec"] != obj["spec"]:
                errors += _podrules.problems(obj)
            review.warnings += _podrules.warnings(obj)
        elif schema is not None:
            errors += _schema.problems(schema, obj, old)
        if errors:
            raise invalid(kind, obj["metadata"]["name"], errors)
        return obj

    def _known(self, kind: Resource, schema: Json, obj: Json, review: Review) -> Json:
        """Give *obj* without unknown fields, which are refused or warned of as the review says."""
        unknown: list[str] = []
        kept: Json = _schema.pruned(schema, obj, unknown=unknown)
        unknown += [f"metadata.{key}" for key in kept["metadata"] if key not in _metadata.KNOWN]
        kept["metadata"] = {key: value for key, value in kept["metadata"].items() if key in _metadata.KNOWN}
        told = [f'unknown field "{path}"' for path in sorted(unknown)]
        if told and review.strict:
            raise cannot_handle(kind, f"strict decoding error: {', '.join(told)}")
        if not review.silent:
            review.warnings += told
        return kept


def _completed(kind: Resource, schema: Json | None, obj: Json) -> Json:
    if kind == POD and schema is not None:
        return _podspec.completed(schema, obj)
    if schema is not None:
        filled: Json = _schema.filled(schema, obj)
        return filled
    if kind == NAMESPACE:
        labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": obj["metadata"]["name"]}
        meta = {**obj["metadata"], "labels": labels}
        return {**obj, "metadata": meta, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    if kind == CLAIM:
        spec = obj.get("spec", {})
        capacity = spec.get("resources", {}).get("requests", {})
        status = {"phase": "Bound", "accessModes": spec.get("accessModes", []), "capacity": capacity}
        return {**obj, "spec": {"volumeMode": "Filesystem", **spec}, "status": status}
    return obj


def _without_nulls(obj: Json) -> Json:
    """Give *obj* without the nulls in its metadata, where clients put them for fields that they leave open."""
    meta = {key: value for key, value in obj["metadata"].items() if value is not None}
    for key in ("labels", "annotations"):
        if key in meta:
            meta[key] = {name: value for name, value in meta[key].items() if value is not None}
    return {**obj, "metadata": meta}
