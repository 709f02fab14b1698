"""What RayClusters and RayJobs have in common: created whole or not at all, deleted and waited for, asked why."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nemo_run._kube.resources import EVENT, POD, Resource
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock, poll_until
from nemo_run._kube.wire import UNTRUSTED
from nemo_run.core.execution._creation import REFUSED, launch_id, taken_back
from nemo_run.core.execution._launched import Launched
from nemo_run.core.execution._ownership import LAUNCH_ANNOTATION
from nemo_run.core.execution._raystate import refusal
from nemo_run.exceptions import (
    KubeError,
    NotFound,
    ServerError,
    Unreachable,
    WaitTimeout,
)

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_told: set[str] = set()


def signed(body: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> Json:
    """Give *body* with a launch id, by which its creator knows it again."""
    metadata = body["metadata"]
    added = {LAUNCH_ANNOTATION: secrets.token_hex(16), **(annotations or {})}
    return {**body, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **added}}}


@contextmanager
def undone_on_failure(
    api: KubeApi, kind: Resource, body: Mapping[str, Any], clock: Clock = SYSTEM_CLOCK
) -> Iterator[None]:
    """
    Remove the object that *body* became, should the block not come to its end; nobody else's of that name.

    A create that nobody answered may arrive later: it is waited for, for a few seconds.
    """
    try:
        yield
    except BaseException as error:
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        sure = isinstance(error, REFUSED) or getattr(error, "reason", "") == UNTRUSTED
        job = Launched(namespace, name, launch_id=launch_id(body) or "")
        how = {"patience": 0.0} if sure else {}
        if not taken_back(api, kind, job, **how, clock=clock) and not sure:
            logger.warning(
                "%s %s may be there or come yet: look with `kubectl get %s %s -n %s`, and delete it",
                kind.kind,
                name,
                kind.plural,
                name,
                namespace,
            )
        raise


def installed(api: KubeApi, kind: Resource, error: KubeError) -> KubeError:
    """Give the error to show where creating *kind* met *error*: a 404 mostly means that the operator is not there."""
    if error.status != 404 or "namespaces" in error.message:
        return error
    return NotFound(
        "find KubeRay",
        f"this server has no {kind.kind} in {kind.api_version}; install KubeRay 1.3 or later, or name the right cluster"
        " with kubeconfig and context",
        status=404,
        server=api.server,
        context=api.context,
    )


def events_of(api: KubeApi, kind: Resource, namespace: str, name: str) -> list[Json]:
    """List the events of an object, as far as the rights allow."""
    try:
        fields = f"involvedObject.kind={kind.kind},involvedObject.name={name}"
        return api.list(EVENT, namespace, fields=fields)
    except KubeError as error:
        if namespace not in _told:
            _told.add(namespace)
            logger.info("cannot read the events of namespace %s, so some reasons are not shown: %s", namespace, error)
        return []


def refused(obj: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> str:
    """Give by which words KubeRay refused *obj*, by its *events*: an invalid object often gets nothing else."""
    uid = obj["metadata"].get("uid")
    return refusal(event for event in events if (event.get("involvedObject") or {}).get("uid") in (uid, None, ""))


def delete(api: KubeApi, kind: Resource, namespace: str, name: str) -> bool:
    """Delete an object; False if it was gone already."""
    try:
        api.delete(kind, namespace, name)
    except NotFound:
        return False
    return True


def gone(
    api: KubeApi,
    kind: Resource,
    namespace: str,
    name: str,
    *,
    pods: Sequence[str],
    timeout: float,
    interval: float,
    clock: Clock = SYSTEM_CLOCK,
) -> bool:
    """
    Wait until an object and its pods are gone; False if they are not within *timeout* seconds.

    Args:
        pods: label selectors of its pods.
    """

    def what_is_left() -> str:
        try:
            there = api.get(kind, namespace, name)
        except NotFound:
            left = [pod["metadata"]["name"] for labels in pods for pod in api.list(POD, namespace, labels=labels)]
            return f"pods {', '.join(left[:5])}" if left else ""
        except (ServerError, Unreachable) as error:
            return f"no answer ({error.message})"
        finalizers = there["metadata"].get("finalizers")
        held = f", which {', '.join(finalizers)} holds: is the KubeRay operator running?" if finalizers else ""
        return f"{kind.kind} {name}{held}"

    what = f"the end of {kind.kind} {name}"
    try:
        poll_until(what_is_left, "".__eq__, what=what, timeout=timeout, interval=interval, clock=clock)
    except WaitTimeout as error:
        logger.warning("%s", error)
        return False
    logger.info("%s %s and its pods are gone", kind.kind, name)
    return True
