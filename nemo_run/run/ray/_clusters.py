"""RayClusters in and out of a Kubernetes cluster, and their way to readiness."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nemo_run._kube.names import label_value
from nemo_run._kube.resources import POD, RAYCLUSTER
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock, poll_until
from nemo_run.core.execution import _creation
from nemo_run.core.execution._ownership import USER_LABEL
from nemo_run.core.execution._raydiff import HASH_ANNOTATION, differences, spec_hash
from nemo_run.core.execution._rayjob import CLUSTER_LABEL, NODE_LABEL
from nemo_run.core.execution._raystate import Readiness, readiness
from nemo_run.core.execution.base import current_user
from nemo_run.exceptions import Conflict, JobFailed, NotFound, Rejected, ServerError, Unreachable
from nemo_run.run.ray import _objects

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_SHOWN = 8


def created(
    api: KubeApi,
    body: Json,
    origins: Mapping[str, object],
    *,
    strict: bool,
    told: set[str],
    secrets: Sequence[str],
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[Json, bool]:
    """
    Give the RayCluster that is as *body* says, and whether it was made just now.

    One of ours that is there already is used if it is alike. A create that is interrupted leaves none behind.

    Raises:
        Conflict: the name is taken by someone else's, or by one of ours that differs.
        KubeError: the server refused.
    """
    body = _objects.signed(body, {HASH_ANNOTATION: spec_hash(body)})
    metadata = body["metadata"]
    with _objects.undone_on_failure(api, RAYCLUSTER, body, clock):
        try:
            stored = _creation.accepted(api, RAYCLUSTER, body, origins, strict=strict, told=told, secrets=secrets)
        except Conflict as error:
            there = api.get(RAYCLUSTER, metadata["namespace"], metadata["name"])
            if _creation.launch_id(there) == _creation.launch_id(body):
                return there, True
            _check_ours(body, there, error, secrets)
            logger.info("RayCluster %s is there already, as it is to be; using it", metadata["name"])
            return there, False
        except (NotFound, Rejected) as error:
            raise _objects.installed(api, RAYCLUSTER, error) from error
    return stored, True


def _check_ours(body: Json, there: Json, error: Conflict, secrets: Sequence[str]) -> None:
    metadata = there["metadata"]
    since = f"since {metadata.get('creationTimestamp')}"
    if metadata.get("deletionTimestamp"):
        why = "another one of that name is being deleted; wait until it is gone"
    elif (metadata.get("labels") or {}).get(USER_LABEL) != label_value(current_user()):
        why = f"another one that is not ours has the name {since}; it is left alone: choose another name"
    elif found := differences(body, there, secrets=secrets):
        shown = "; ".join(found[:_SHOWN]) + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
        why = f"ours is there {since}, and differs: {shown}. Stop it first, or choose another name"
    else:
        return
    raise Conflict(
        error.what,
        why,
        status=409,
        reason=error.reason,
        server=error.server,
        context=error.context,
        namespace=error.namespace,
    ) from error


def status(
    api: KubeApi, namespace: str, name: str, *, timeout: float, interval: float, clock: Clock = SYSTEM_CLOCK
) -> Json | None:
    """
    Give the RayCluster's status once KubeRay has written one; None only if the cluster says that it is not there.

    Raises:
        Rejected: KubeRay refuses it, by an event.
        WaitTimeout: there is no status within *timeout* seconds.
    """

    def look() -> Json | None:
        try:
            cluster = api.get(RAYCLUSTER, namespace, name)
        except NotFound:
            return None
        _check(api, cluster)
        found: Json = cluster.get("status") or {}
        return found

    what = f"a status of RayCluster {name} (is the KubeRay operator running, and does it watch {namespace}?)"
    return poll_until(
        look, lambda seen: seen is None or bool(seen), what=what, timeout=timeout, interval=interval, clock=clock
    )


def wait_until_ready(
    api: KubeApi, namespace: str, name: str, *, timeout: float, interval: float, clock: Clock = SYSTEM_CLOCK
) -> None:
    """
    Wait until the head can be used; each new reason why it cannot yet is logged.

    Raises:
        Rejected: KubeRay refuses the cluster, by an event.
        JobFailed: it was deleted meanwhile.
        WaitTimeout: not within *timeout* seconds; says what it last waited for.
    """
    told = ""

    def look() -> Readiness:
        nonlocal told
        seen = _looked_at(api, namespace, name)
        if str(seen) != told:
            told = str(seen)
            logger.info("RayCluster %s: %s", name, told)
        return seen

    poll_until(
        look,
        lambda seen: seen.ready,
        what=f"the start of RayCluster {name}",
        timeout=timeout,
        interval=interval,
        clock=clock,
    )


def _looked_at(api: KubeApi, namespace: str, name: str) -> Readiness:
    try:
        cluster = api.get(RAYCLUSTER, namespace, name)
        _check(api, cluster)
        return readiness(cluster, pods_of(api, namespace, name))
    except NotFound as error:
        raise JobFailed(f"RayCluster {name} was deleted before it was ready", job=name, state="CANCELLED") from error
    except (ServerError, Unreachable) as error:
        return Readiness(False, f"the server does not answer: {error.message}")


def _check(api: KubeApi, cluster: Json) -> None:
    if not cluster.get("status"):
        metadata = cluster["metadata"]
        events = _objects.events_of(api, RAYCLUSTER, metadata["namespace"], metadata["name"])
        if text := _objects.refused(cluster, events):
            raise Rejected(
                f"run RayCluster {metadata['name']}",
                f"KubeRay refuses it: {text}",
                reason=text.partition(":")[0],
                server=api.server,
                context=api.context,
                namespace=metadata["namespace"],
            )


def pods_of(api: KubeApi, namespace: str, name: str) -> list[Json]:
    """List the pods of a RayCluster."""
    return api.list(POD, namespace, labels=labels_of(name))


def labels_of(name: str) -> str:
    """Give the labels of all pods of the RayCluster *name*."""
    return f"{CLUSTER_LABEL}={name}"


def head_of(api: KubeApi, namespace: str, name: str) -> str:
    """
    Give the name of the pod that is the cluster's head now.

    Raises:
        NotFound: there is none that runs.
    """
    pods = api.list(POD, namespace, labels=f"{labels_of(name)},{NODE_LABEL}=head")
    for pod in pods:
        if (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp"):
            found: str = pod["metadata"]["name"]
            return found
    raise NotFound(
        f"find the head of RayCluster {name}",
        "no head pod runs; wait until the cluster is ready",
        server=api.server,
        context=api.context,
        namespace=namespace,
    )
