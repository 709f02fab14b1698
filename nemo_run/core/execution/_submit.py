"""TrainJobs in and out of a cluster: which dialect it speaks, creating, finding, deleting."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nemo_run._kube import rights
from nemo_run._kube.names import label_value
from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock, poll_until
from nemo_run.core.execution import _creation
from nemo_run.core.execution._launched import Launched
from nemo_run.core.execution._ownership import JOB_LABEL, USER_LABEL
from nemo_run.core.execution._passthrough import Dialect, Json, Origin
from nemo_run.core.execution._session import deleting
from nemo_run.core.execution._trainjob import phase
from nemo_run.core.execution.base import current_user
from nemo_run.exceptions import ConfigError, Conflict, NotAuthorized, NotFound, Rejected, WaitTimeout

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run.core.execution.kubeflow import KubeflowExecutor

logger = logging.getLogger(__name__)

_GET, _DELETE = (rights.Right(verb, TRAINJOB.plural, TRAINJOB.group) for verb in ("get", "delete"))
_SOON = 0.25

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


def check_rights(api: KubeApi, namespace: str) -> None:
    """
    Make sure that what is launched can be followed, and tell if it cannot be ended.

    Whether it may be created, the dry run tells.

    Raises:
        NotAuthorized: names the right that is missing.
    """
    rights.require(api, namespace, "launching a TrainJob", [_GET])
    for right in rights.missing(api, namespace, [_DELETE]):
        logger.warning(
            "the right to %s is missing in namespace %s (context %s): the job cannot be cancelled from here,"
            " nor taken back if its launch is interrupted",
            right,
            namespace,
            api.context,
        )


def create(api: KubeApi, body: Json, origins: Mapping[str, Origin], **how: Any) -> Json:
    """
    Create *body*, which carries its launch id, and return what the server stored.

    Raises:
        Conflict: another object has that name; it is left alone.
    """
    hint = "cancel it or launch under another name"
    return _creation.create(api, TRAINJOB, body, origins, state=lambda job: phase(job).name.lower(), hint=hint, **how)


def delete(api: KubeApi, job: Launched) -> bool:
    """Delete the TrainJob; False if it was gone already, also where another one has its name now."""
    try:
        with deleting(api.server, job.namespace, job.name):
            api.delete(TRAINJOB, job.namespace, job.name, uid=job.uid or _uid_of(api, job))
    except NotFound:
        return False
    except Conflict:
        logger.warning("TrainJob %s in namespace %s is another job's by now: it is left alone", job.name, job.namespace)
        return False
    return True


def _uid_of(api: KubeApi, job: Launched) -> str | None:
    """
    Ask for the uid of a TrainJob of which only the launch is known.

    Raises:
        NotFound: it is not there.
        Conflict: another one is.
    """
    if not job.launch_id:
        return None
    there = api.get(TRAINJOB, job.namespace, job.name)
    if not job.is_it(there):
        raise Conflict(f"delete {TRAINJOB.kind} {job.name}", "it is of another launch", namespace=job.namespace)
    return str(there["metadata"]["uid"])


def gone(api: KubeApi, job: Launched, *, timeout: float, interval: float, clock: Clock = SYSTEM_CLOCK) -> bool:
    """Wait until the TrainJob and its pods are gone; False if they are not within *timeout* seconds."""

    def left() -> str:
        since = None
        with suppress(NotFound):
            there = api.get(TRAINJOB, job.namespace, job.name)
            if job.is_it(there):
                return "TrainJob"
            since = there["metadata"].get("creationTimestamp")
        pods = api.list(POD, job.namespace, labels=f"jobset.sigs.k8s.io/jobset-name={job.name}")
        if since:  # later ones are those of the job that has the name now
            pods = [pod for pod in pods if pod["metadata"]["creationTimestamp"] < since]
        return f"{len(pods)} pods" if pods else ""

    what = f"the end of TrainJob {job.name}"
    try:
        # Most pods end within a second or two of being told to.
        poll_until(left, "".__eq__, what=what, timeout=timeout, interval=interval, first=_SOON, clock=clock)
    except WaitTimeout as error:
        logger.warning("%s", error)
        return False
    return True


def found(api: KubeApi, namespace: str, labels: Mapping[str, str]) -> list[Json]:
    """List the TrainJobs that have all *labels*."""
    return api.list(TRAINJOB, namespace, labels=",".join(f"{key}={value}" for key, value in labels.items()))


def target(api: KubeApi, executor: KubeflowExecutor, name: str) -> Launched | None:
    """
    Give the TrainJob that *name* means: its own name, or that of a task.

    A task's is the one that this executor or a clone launched and that has not
    ended, else its only unfinished one.

    Raises:
        ConfigError: there are several.
    """
    session = executor._session
    if name in session.launched:
        running = [(one, job) for one in session.launched[name] if (job := _unfinished(api, one))]
        session.launched[name] = [one for one, _ in running]
        if running:
            return _only(name, [job for _, job in running])
    if known := session.known.get((executor.namespace, name)):
        return known
    try:
        return _of(api.get(TRAINJOB, executor.namespace, name))
    except NotFound:
        pass
    labels = {USER_LABEL: label_value(current_user()), JOB_LABEL: label_value(name)}
    unfinished = [job for job in found(api, executor.namespace, labels) if _goes_on(job)]
    return _only(name, unfinished) if unfinished else None


def _unfinished(api: KubeApi, launched: Launched) -> Json | None:
    try:
        job = api.get(TRAINJOB, launched.namespace, launched.name)
    except NotFound:
        return None
    return job if launched.is_it(job) and _goes_on(job) else None


def _goes_on(job: Json) -> bool:
    return not phase(job).ended and not job["metadata"].get("deletionTimestamp")


def _only(task: str, jobs: Sequence[Json]) -> Launched:
    if len(jobs) > 1:
        names = ", ".join(
            f"{job['metadata']['name']} (since {job['metadata'].get('creationTimestamp')})" for job in jobs
        )
        raise ConfigError("job_name", task, f"more than one TrainJob of this task is unfinished: {names}; name one")
    return _of(jobs[0])


def _of(job: Json) -> Launched:
    metadata = job["metadata"]
    return Launched(metadata["namespace"], metadata["name"], metadata["uid"])
