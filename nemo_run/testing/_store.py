"""
The objects of one LocalKube, with the identities and refusals that an API server gives them.

All methods are synchronous and are called on the server's event loop, so that nothing
happens between a check and the change it allows. What they take and give are copies.
"""

from __future__ import annotations

import datetime
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nemo_run._kube.resources import EVENT, POD, Resource
from nemo_run.testing._changes import Changes, Event, Subscription, selecting
from nemo_run.testing._errors import (
    ApiError,
    FieldError,
    already_exists,
    bad_request,
    invalid,
    modified,
    not_found,
    precondition,
)
from nemo_run.testing._kinds import COUNTED, NAMESPACE, WITH_STATUS
from nemo_run.testing._selectors import field_test, label_test

__all__ = ["ApiError", "Event", "Review", "Store", "Subscription", "now"]

Json = dict[str, Any]

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_FIXED = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace")
_FOREGROUND = "foregroundDeletion"


@dataclass
class Review:
    """How strictly one request is to be read, and what the server has to say about it beside the answer."""

    strict: bool = False
    silent: bool = False
    warnings: list[str] = field(default_factory=list)


Check = Callable[[Resource, Json, "Json | None", Review], Json]
"""
Takes the object to be stored and the one it replaces, gives it decoded and defaulted, or raises ApiError.
"""


def now(offset: float = 0) -> str:
    """Give the time as objects carry it, *offset* seconds from now."""
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=offset)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def copied(value: Any) -> Any:
    """Copy what came from JSON: many times faster than ``copy.deepcopy``."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copied(item) for item in value]
    return value


def merged(target: Any, patch: Any) -> Any:
    """Give *target* with a JSON merge patch (RFC 7386) applied."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class Store:
    """Objects by kind, namespace and name; each change is numbered and told to subscribers."""

    def __init__(self, checks: Sequence[Check] = ()) -> None:
        self.checks = list(checks)
        self.changes = Changes()
        self.missing_namespace: Callable[[str], None] | None = None
        """Asked to make a namespace that an object is created in; without it such an object is refused."""
        self._objects: dict[Resource, dict[tuple[str, str], Json]] = {}

    def create(
        self, kind: Resource, namespace: str, obj: Json, *, review: Review | None = None, dry_run: bool = False
    ) -> Json:
        """
        Store a new object and give it with its identity.

        Raises:
            ApiError: its namespace is missing (404), its name is taken (409), or a check refuses it.
        """
        review = review or Review()
        obj = copied(obj)
        meta = obj.setdefault("metadata", {})
        self._place(kind, namespace, meta)
        for key in (*_FIXED[:-1], "resourceVersion", "selfLink"):
            meta.pop(key, None)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + random_suffix()
        if not meta.get("name"):
            why = "Required value: name or generateName is required"
            raise invalid(kind, "", [FieldError("metadata.name", why, "FieldValueRequired")])
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = now()
        if kind.plural in COUNTED:
            meta["generation"] = 1
        if kind.plural in WITH_STATUS and kind.group:
            obj.pop("status", None)
        for check in self.checks:
            obj = check(kind, obj, None, review)
        meta = obj["metadata"]
        if (taken := self._find(kind, namespace, meta["name"])) is not None:
            raise already_exists(kind, meta["name"], deleting="deletionTimestamp" in taken["metadata"])
        if not dry_run:
            self._put(kind, "ADDED", obj)
        return _copy(obj)

    def get(self, kind: Resource, namespace: str, name: str) -> Json:
        """
        Give one object.

        Raises:
            ApiError: there is none of this name (404).
        """
        if (obj := self._find(kind, namespace, name)) is None:
            raise not_found(kind, name)
        return _copy(obj)

    def list(self, kind: Resource, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Json]:
        """Give the objects of *namespace* ("": of all) that both selectors accept, ordered by namespace and name."""
        by_label, by_field = label_test(labels), field_test(kind, fields)
        found = sorted(self._objects.get(kind, {}).items())
        here = (obj for (where, _), obj in found if not namespace or where == namespace)
        return [_copy(obj) for obj in here if by_label(obj) and by_field(obj)]

    def update(
        self,
        kind: Resource,
        obj: Json,
        *,
        status: bool = False,
        review: Review | None = None,
        dry_run: bool = False,
    ) -> Json:
        """
        Put *obj* in the place of the stored one: all but its status, or with *status* nothing else.

        Raises:
            ApiError: it is gone (404), *obj* stems from an older version (409), or a check refuses it.
        """
        meta = obj.get("metadata", {})
        namespace = meta.get("namespace", "") if kind.namespaced else ""
        old = self._find(kind, namespace, meta.get("name", ""))
        if old is None:
            raise not_found(kind, meta.get("name", ""))
        version = meta.get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            raise modified(kind, meta["name"])
        if meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise precondition(kind, meta["name"], meta["uid"], old["metadata"]["uid"])
        if status:
            new = {**copied(old), "status": copied(obj.get("status") or {})}
        else:
            new = copied(obj)
            if kind.plural in WITH_STATUS:
                new.pop("status", None)
                if "status" in old:
                    new["status"] = copied(old["status"])
            new["metadata"] = {
                **{key: value for key, value in new["metadata"].items() if key not in _FIXED},
                **{key: old["metadata"][key] for key in _FIXED if key in old["metadata"]},
            }
            for check in self.checks:
                new = check(kind, new, old, review or Review())
        return self._replace(kind, old, new, dry_run=dry_run)

    def patch(
        self,
        kind: Resource,
        namespace: str,
        name: str,
        patch: Json,
        *,
        status: bool = False,
        review: Review | None = None,
        dry_run: bool = False,
    ) -> Json:
        """
        Apply a JSON merge patch, to the status alone if *status*, and give the object as it is then.

        Raises:
            ApiError: as :meth:`update`.
        """
        old = self.get(kind, namespace, name)
        new = merged(old, patch)
        if new["metadata"].get("name") != name:
            raise bad_request("the name of the object does not match the name on the URL")
        return self.update(kind, new, status=status, review=review, dry_run=dry_run)

    def patch_status(self, kind: Resource, namespace: str, name: str, status: Json, merge: bool = True) -> Json:
        """Merge *status* into the object's status, or put it in its place."""
        if merge:
            return self.patch(kind, namespace, name, {"status": status}, status=True)
        return self.update(kind, {**self.get(kind, namespace, name), "status": status}, status=True)

    def delete(
        self,
        kind: Resource,
        namespace: str,
        name: str,
        *,
        grace: int | None = None,
        uid: str | None = None,
        propagation: str = "Background",
        dry_run: bool = False,
    ) -> Json:
        """
        Mark the object for deletion, or remove it where nothing holds it back; give it as it was left.

        A pod on a node stays for its grace period, until the kubelet calls :meth:`remove`; an object with
        finalizers until the last is gone. Dependents follow unless *propagation* is Orphan.

        Raises:
            ApiError: there is none (404), or its uid is another (409).
        """
        obj = self.get(kind, namespace, name)
        meta = obj["metadata"]
        if uid and uid != meta["uid"]:
            raise precondition(kind, name, uid, meta["uid"])
        if dry_run:
            return obj
        self._propagate(obj, propagation)
        seconds = _grace(obj, grace) if kind == POD else 0
        if "deletionTimestamp" in meta and seconds >= meta.get("deletionGracePeriodSeconds", 0) > 0:
            return obj
        held = bool(meta.get("finalizers")) or seconds > 0
        if held or kind == POD:
            meta.update(deletionTimestamp=now(seconds), deletionGracePeriodSeconds=seconds)
            if kind.plural in COUNTED and "deletionTimestamp" not in self._objects[kind][namespace, name]["metadata"]:
                meta["generation"] += 1
            obj = self._put(kind, "MODIFIED", obj)
        return _copy(obj if held else self._drop(kind, obj))

    def remove(self, kind: Resource, namespace: str, name: str) -> None:
        """Let the object be really gone now, whatever grace it had; no matter if it is gone already."""
        if (obj := self._find(kind, namespace, name)) is not None:
            self._drop(kind, obj)

    def event(self, obj: Json, reason: str, message: str, type: str = "Warning", *, component: str = "") -> Json:
        """Tell an Event about *obj*; one that was told before is counted up instead."""
        meta = obj["metadata"]
        namespace = meta.get("namespace") or "default"
        about = {
            "kind": obj["kind"],
            "apiVersion": obj["apiVersion"],
            "name": meta["name"],
            "namespace": meta.get("namespace"),
            "uid": meta["uid"],
            "resourceVersion": meta.get("resourceVersion"),
        }
        about = {key: value for key, value in about.items() if value}
        for told in self._objects.get(EVENT, {}).values():
            same = told["involvedObject"].get("uid") == meta["uid"] and told["reason"] == reason
            if same and told["message"] == message:
                return self.update(EVENT, {**told, "count": told["count"] + 1, "lastTimestamp": now()})
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name']}.{random.getrandbits(64):016x}"},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": type,
            "count": 1,
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "source": {"component": component} if component else {},
        }
        return self.create(EVENT, namespace, body)

    def subscribe(
        self,
        kind: Resource | None = None,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: int | None = None,
        initial: bool = True,
    ) -> Subscription:
        """
        Give all events of *kind* (None: of every kind) from now on, the present objects first as ADDED.

        With *since* the changes after that version come first instead; without *initial* nothing does.

        Raises:
            ApiError: *since* is too old (410).
        """
        by_label = label_test(labels)
        by_field = field_test(kind, fields) if kind else (lambda obj: True)
        wanted = selecting(kind, namespace, lambda obj: by_label(obj) and by_field(obj))
        present = [
            Event("ADDED", _copy(obj), each, int(obj["metadata"]["resourceVersion"]))
            for each, objects in self._objects.items()
            if initial and since is None and kind in (None, each)
            for _, obj in sorted(objects.items())
        ]
        return self.changes.subscribe(wanted, since=since, initial=present)

    def _place(self, kind: Resource, namespace: str, meta: Json) -> None:
        if not kind.namespaced:
            meta.pop("namespace", None)
            return
        if meta.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if self._find(NAMESPACE, "", namespace) is None:
            if self.missing_namespace is None:
                raise not_found(NAMESPACE, namespace)
            self.missing_namespace(namespace)

    def _find(self, kind: Resource, namespace: str, name: str) -> Json | None:
        return self._objects.get(kind, {}).get((namespace if kind.namespaced else "", name))

    def _put(self, kind: Resource, change: str, obj: Json) -> Json:
        meta = obj["metadata"]
        place = (meta.get("namespace", ""), meta["name"])
        objects = self._objects.setdefault(kind, {})
        old = objects.get(place)
        version = self.changes.next_version()
        meta["resourceVersion"] = str(version)
        objects[place] = _copy(obj)
        self.changes.record(Event(change, _copy(obj), kind, version, old))
        return obj

    def _replace(self, kind: Resource, old: Json, new: Json, *, dry_run: bool) -> Json:
        meta = new["metadata"]
        meta["resourceVersion"] = old["metadata"]["resourceVersion"]
        if kind.plural in COUNTED and _wanted(old) != _wanted(new):
            meta["generation"] += 1
        if dry_run or new == old:
            return _copy(new)
        if "deletionTimestamp" in meta and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            meta.pop("finalizers", None)
            self._objects[kind][meta.get("namespace", ""), meta["name"]] = new
            self._drop(kind, new)
            return _copy(new)
        return _copy(self._put(kind, "MODIFIED", new))

    def _drop(self, kind: Resource, obj: Json) -> Json:
        meta = obj["metadata"]
        old = self._objects[kind].pop((meta.get("namespace", ""), meta["name"]))
        version = self.changes.next_version()
        gone: Json = {**obj, "metadata": {**meta, "resourceVersion": str(version)}}
        self.changes.record(Event("DELETED", _copy(gone), kind, version, old))
        self._collect(meta["uid"])
        for ref in meta.get("ownerReferences", []):
            self._release(ref["uid"])
        return gone

    def _dependents(self, uid: str) -> Sequence[tuple[Resource, Json]]:
        return [
            (kind, obj)
            for kind, objects in self._objects.items()
            for obj in objects.values()
            if any(ref["uid"] == uid for ref in obj["metadata"].get("ownerReferences", []))
        ]

    def _collect(self, uid: str) -> None:
        """Delete what the object of this *uid* owned, as the garbage collector does."""
        for kind, obj in self._dependents(uid):
            meta = obj["metadata"]
            if self._find(kind, meta.get("namespace", ""), meta["name"]) is not None:
                self.delete(kind, meta.get("namespace", ""), meta["name"])

    def _propagate(self, obj: Json, propagation: str) -> None:
        meta = obj["metadata"]
        dependents = self._dependents(meta["uid"])
        if propagation == "Orphan":
            for kind, dependent in dependents:
                kept = [ref for ref in dependent["metadata"]["ownerReferences"] if ref["uid"] != meta["uid"]]
                where, name = dependent["metadata"].get("namespace", ""), dependent["metadata"]["name"]
                self.patch(kind, where, name, {"metadata": {"ownerReferences": kept or None}})
        elif propagation == "Foreground" and dependents and _FOREGROUND not in meta.get("finalizers", []):
            meta["finalizers"] = [*meta.get("finalizers", []), _FOREGROUND]
            self._collect(meta["uid"])
            if not self._dependents(meta["uid"]):
                meta["finalizers"].remove(_FOREGROUND)

    def _release(self, uid: str) -> None:
        """Let an owner go that waited in the foreground for the last of its dependents."""
        for kind, objects in list(self._objects.items()):
            for obj in list(objects.values()):
                meta = obj["metadata"]
                waits = meta["uid"] == uid and _FOREGROUND in meta.get("finalizers", [])
                if waits and "deletionTimestamp" in meta and not self._dependents(uid):
                    left = [name for name in meta["finalizers"] if name != _FOREGROUND]
                    self._replace(kind, obj, {**obj, "metadata": {**meta, "finalizers": left}}, dry_run=False)


def _copy(obj: Json) -> Json:
    result: Json = copied(obj)
    return result


def random_suffix() -> str:
    """Give what makes a generated name unique."""
    return "".join(random.choices(_SUFFIX, k=5))  # noqa: S311


def _wanted(obj: Json) -> Json:
    """Give the part of an object whose changes are counted: all that its user asks for, but not where it runs."""
    wanted = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
    if isinstance(wanted.get("spec"), dict):
        wanted["spec"] = {key: value for key, value in wanted["spec"].items() if key != "nodeName"}
    return wanted


def _grace(pod: Json, asked: int | None) -> int:
    """Give a pod's grace in seconds: none where nothing of it can be running."""
    if not pod.get("spec", {}).get("nodeName") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return max(asked, 0)
    return int(pod["spec"].get("terminationGracePeriodSeconds", 30))
