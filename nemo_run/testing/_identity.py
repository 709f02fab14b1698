"""Whom a container runs as: its security context, as far as this machine can follow it."""

from __future__ import annotations

import pwd
from typing import Any

from nemo_run.testing._container import User
from nemo_run.testing._environment import BadConfig

Json = dict[str, Any]


def identity(pod: Json, container: Json, *, one_uid: bool) -> User:
    """
    Give the user of *container*; what it does not say is taken from its pod.

    Raises:
        BadConfig: it contradicts itself, or asks for a uid that only root can give.
    """
    shared = pod["spec"].get("securityContext") or {}
    own = container.get("securityContext") or {}
    context = {**shared, **{key: value for key, value in own.items() if value is not None}}
    uid = int(context.get("runAsUser") or 0)
    gid = int(context.get("runAsGroup") or 0)
    if context.get("runAsNonRoot") and uid == 0:
        raise BadConfig(f"container has runAsNonRoot and image will run as root (container: {container['name']})")
    if one_uid and (uid or gid):
        raise BadConfig(f"runAsUser {uid}, runAsGroup {gid}: a LocalKube that is not run by root has one uid only, 0")
    groups = {gid, *(int(group) for group in context.get("supplementalGroups") or [])}
    if "fsGroup" in context:
        groups.add(int(context["fsGroup"]))
    dropped = (context.get("capabilities") or {}).get("drop") or []
    return User(
        uid=uid,
        gid=gid,
        groups=tuple(sorted(groups)),
        drop_all="ALL" in dropped,
        no_new_privileges=context.get("allowPrivilegeEscalation") is False,
    )


def home_of(uid: int) -> str:
    """Give a user's home directory as a container runtime does: ``/`` for one that the image does not know."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/"
