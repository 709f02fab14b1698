"""TrainJobs in and out of a cluster: which dialect it speaks, creating, finding, deleting."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nemo_run._kube.names import label_value
from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock, poll_until
from nemo_run.core.execution import _creation
from nemo_run.core.execution._ownership import JOB_LABEL, USER_LABEL
from nemo_run.core.execution._passthrough import Dialect, Json, Origin
from nemo_run.core.execution._trainjob import phase
from nemo_run.core.execution.base import current_user
from nemo_run.exceptions import ConfigError, NotAuthorized, NotFound, Rejected, WaitTimeout

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run.core.execution.kubeflow import KubeflowExecutor

logger = logging.getLogger(__name__)

_BY_FIELD: Mapping[str, Dialect] = {"runtimePatches": "2.2", "podTemplateOverrides": "2.1", "podSpecOverrides": "2.0"}


def dialect_of(api: KubeApi) -> Dialect:
    """
    Ask the server which field a TrainJob has for pod settings; where it will not say, take the newest.

    Raises:
        NotFound: Kubeflow Trainer 2 is not installed there.
    """
    try:
        document = api.openapi(TRAINJOB.group, TRAINJOB.version)
    except NotAuthorized as error:
        logger.info("cannot read the server's schema, so assuming Kubeflow Trainer 2.2 or later: %s", error)
        return "2.2"
    except (NotFound, Rejected) as error:
        if error.status != 404:
            raise
        raise _no_trainer(api) from error
    fields = _spec_fields(document)
    if not fields:
        raise _no_trainer(api)
    return next((dialect for field, dialect in _BY_FIELD.items() if field in fields), "2.2")


def _spec_fields(document: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, schema in ((document.get("components") or {}).get("schemas") or {}).items():
        if name.rpartition(".")[2] == TRAINJOB.kind:
            fields: Mapping[str, Any] = schema.get("properties", {}).get("spec", {}).get("properties", {})
            return fields
    return {}


def _no_trainer(api: KubeApi) -> NotFound:
    return NotFound(
        "find Kubeflow Trainer",
        f"this server has no {TRAINJOB.kind} in {TRAINJOB.api_version}; install Kubeflow Trainer 2.1 or later,"
        " or name the right cluster with kubeconfig and context",
        status=404,
        server=api.server,
        context=api.context,
    )


def create(api: KubeApi, body: Json, origins: Mapping[str, Origin], **how: Any) -> Json:
    """
    Create *body*, which carries its launch id, and return what the server stored.

    Raises:
        Conflict: another object has that name; it is left alone.
    """
    hint = "cancel it or launch under another name"
    return _creation.create(api, TRAINJOB, body, origins, state=lambda job: phase(job).name.lower(), hint=hint, **how)


def delete(api: KubeApi, namespace: str, name: str) -> bool:
    """Delete the TrainJob *name*; False if it was gone already."""
    try:
        api.delete(TRAINJOB, namespace, name)
    except NotFound:
        return False
    return True


def gone(
    api: KubeApi, namespace: str, name: str, *, timeout: float, interval: float, clock: Clock = SYSTEM_CLOCK
) -> bool:
    """Wait until the TrainJob *name* and its pods are gone; False if they are not within *timeout* seconds."""

    def left() -> str:
        try:
            api.get(TRAINJOB, namespace, name)
        except NotFound:
            pods = api.list(POD, namespace, labels=f"jobset.sigs.k8s.io/jobset-name={name}")
            return f"{len(pods)} pods" if pods else ""
        return "TrainJob"

    try:
        poll_until(left, "".__eq__, what=f"the end of TrainJob {name}", timeout=timeout, interval=interval, clock=clock)
    except WaitTimeout as error:
        logger.warning("%s", error)
        return False
    return True


def found(api: KubeApi, namespace: str, labels: Mapping[str, str]) -> list[Json]:
    """List the TrainJobs that have all *labels*."""
    return api.list(TRAINJOB, namespace, labels=",".join(f"{key}={value}" for key, value in labels.items()))


def target(api: KubeApi, executor: KubeflowExecutor, name: str) -> tuple[str, str] | None:
    """
    Give namespace and name of the TrainJob that *name* means: its own name, or that of a task.

    A task's is the one that this executor or a clone launched last, else its only unfinished one.

    Raises:
        ConfigError: there are several.
    """
    if launched := executor._session.launched.get(name):
        return launched[-1]
    try:
        api.get(TRAINJOB, executor.namespace, name)
    except NotFound:
        pass
    else:
        return executor.namespace, name
    labels = {USER_LABEL: label_value(current_user()), JOB_LABEL: label_value(name)}
    unfinished = [job["metadata"] for job in found(api, executor.namespace, labels) if not phase(job).ended]
    if len(unfinished) > 1:
        names = ", ".join(f"{each['name']} (since {each.get('creationTimestamp')})" for each in unfinished)
        raise ConfigError("job_name", name, f"more than one TrainJob of this task is unfinished: {names}; name one")
    return (executor.namespace, unfinished[0]["name"]) if unfinished else None
