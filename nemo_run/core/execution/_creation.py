"""Objects created as a launch of our own: strictly, each once, and no secret in what a refusal says."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nemo_run._kube.waiting import ON_ITS_WAY, SYSTEM_CLOCK, Clock
from nemo_run.core._masking import masked
from nemo_run.core.execution._launched import Launched
from nemo_run.core.execution._ownership import LAUNCH_ANNOTATION
from nemo_run.exceptions import ConfigError, Conflict, KubeError, NotAuthorized, NotFound, Rejected

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run._kube.resources import Resource

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_UNKNOWN = re.compile(r'unknown field "([^"]+)"')
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_ROUNDS = 10

REFUSED = (ConfigError, Conflict, NotAuthorized, NotFound, Rejected)
"""Errors of a create by which nothing was created."""
_PAUSE = 0.5


def accepted(
    api: KubeApi,
    kind: Resource,
    body: Json,
    origins: Mapping[str, object],
    *,
    strict: bool,
    told: set[str],
    secrets: Sequence[str],
    own: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> Json:
    """
    Create *body*, without those pass-through fields that this server does not know, and return what it stored.

    Args:
        origins: what to call the pass-through fields, by the path that the server names.
        strict: raise for such a field.
        told: the warnings given so far.
        own: *body* without what was passed through; no origin is to blame for what stands there too.

    Raises:
        ConfigError: *strict*, and the server does not know a field.
        KubeError: the server refused; a field that we send of our own accord is among the reasons too.
    """
    body = copy.deepcopy(body)
    namespace = body["metadata"]["namespace"]
    for _ in range(_ROUNDS):
        try:
            with _hidden(secrets):
                return api.create(kind, namespace, body, dry_run=dry_run)
        except Rejected as error:
            unknown = {path: _origin(path, origins, own) for path in _UNKNOWN.findall(error.message)}
            if not unknown or not all(unknown.values()):
                raise
            if strict:
                raise _unknown_field(kind, unknown) from error
            for path in unknown:
                _remove(body, path)
            _warn(kind, unknown, told)
    raise ConfigError("spec_kwargs", sorted(str(origin) for origin in origins.values()), "the server knows none of it")


def _origin(path: str, origins: Mapping[str, object], own: Mapping[str, Any] | None) -> object | None:
    # In a list that both give entries to, ours come first, so a place means the same with and without the others.
    if own is not None and _stands(path, own):
        return None
    return next(
        (o for start, o in origins.items() if path == start or path.startswith((f"{start}.", f"{start}["))), None
    )


def _stands(path: str, body: Mapping[str, Any]) -> bool:
    place: Any = body
    for step in _steps(path):
        try:
            place = place[step]
        except (LookupError, TypeError):
            return False
    return True


def _unknown_field(kind: Resource, unknown: Mapping[str, object]) -> ConfigError:
    names = ", ".join(str(origin) for origin in unknown.values())
    return ConfigError(
        names, sorted(unknown), f"this server's {kind.kind} has no such field; remove it, or set strict=False"
    )


def _warn(kind: Resource, unknown: Mapping[str, object], told: set[str]) -> None:
    text = "; ".join(f"{origin} ({path})" for path, origin in unknown.items())
    if text not in told:
        told.add(text)
        logger.warning(
            "left out, since the %s of this server has no such field: %s; strict=True makes it an error",
            kind.kind,
            text,
        )


def _remove(body: Json, path: str) -> None:
    *above, field = _steps(path)
    place: Any = body
    for step in above:
        place = place[step]
    place.pop(field, None)


def _steps(path: str) -> list[Any]:
    return [int(index) if index else name for name, index in _STEP.findall(path)]


def create(
    api: KubeApi,
    kind: Resource,
    body: Json,
    origins: Mapping[str, object],
    *,
    state: Callable[[Json], str],
    hint: str,
    **how: Any,
) -> Json:
    """
    Create *body*, which carries its launch id, and return what the server stored.

    Args:
        state: says of another object of that name where it is in its life.
        hint: what to do about that one.

    Raises:
        Conflict: another object has that name; it is left alone.
    """
    metadata = body["metadata"]
    try:
        return accepted(api, kind, body, origins, **how)
    except Conflict as error:
        try:
            there = api.get(kind, metadata["namespace"], metadata["name"])
        except NotFound:
            return accepted(api, kind, body, origins, **how)  # it was on its way out
        # An answer that was lost on the way: the first try had created it.
        if launch_id(body) and launch_id(there) == launch_id(body):
            return there
        raise Conflict(
            f"create {kind.kind} {metadata['name']}",
            f"another one already exists, {state(there)} since"
            f" {there['metadata'].get('creationTimestamp')}; it is left alone: {hint}",
            status=409,
            reason=error.reason,
            server=api.server,
            context=api.context,
            namespace=metadata["namespace"],
        ) from error


def taken_back(
    api: KubeApi, kind: Resource, job: Launched, *, patience: float = ON_ITS_WAY, clock: Clock = SYSTEM_CLOCK
) -> bool:
    """
    Delete an object whose launch was cut off; False if it cannot be told whether it will be there.

    What carries a request (a proxy, a slow webhook) may deliver it after its
    sender has gone. So the object is looked for during *patience* seconds, and
    only that of this launch is deleted.
    """
    api = api.patient(0)
    deadline = clock.now() + patience
    while True:
        try:
            there = api.get(kind, job.namespace, job.name)
            if job.is_it(there):
                api.delete(kind, job.namespace, job.name, uid=there["metadata"]["uid"])
            return True
        except NotFound:
            if job.uid:
                return True
        except KubeError as error:
            logger.debug("cannot take %s back yet: %s", job.name, error)
        if clock.now() >= deadline:
            return False
        clock.sleep(_PAUSE)


def launch_id(body: Mapping[str, Any]) -> str | None:
    """Give the launch that made an object."""
    found: str | None = (body["metadata"].get("annotations") or {}).get(LAUNCH_ANNOTATION)
    return found


@contextmanager
def _hidden(secrets: Sequence[str]) -> Iterator[None]:
    """Keep values out of an error: a server may quote what it was sent."""
    try:
        yield
    except KubeError as error:
        error.message = masked(error.message, secrets=secrets)
        error.args = (error.what, error.message)
        raise
