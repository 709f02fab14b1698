"""Where a TrainJob is, why it does not start, and what it failed of: what it, its pods and the events say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nemo_run._kube.resources import EVENT, POD, TRAINJOB
from nemo_run._kube.startup import startup, trouble
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock, poll_until
from nemo_run.core.execution._endings import note, noted, pods_of
from nemo_run.core.execution._ownership import LAUNCH_ANNOTATION
from nemo_run.core.execution._trainjob import phase
from nemo_run.core.execution.kubeflow import JobReport, KubeflowJobState
from nemo_run.exceptions import JobFailed, KubeError, NotFound, WaitTimeout

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

_STARTED = (KubeflowJobState.RUNNING, KubeflowJobState.SUCCEEDED, KubeflowJobState.FAILED)
_REFUSED = ("JobCreationFailed", "TrainJobResourcesCreationFailed")
"""Events on the JobSet and on the TrainJob; no condition tells of it (JobSet v0.12, Trainer v2.3 controllers)."""
_told: set[str] = set()


def report(api: KubeApi, namespace: str, name: str) -> JobReport | None:
    """Give the state of the TrainJob *name*; None where the cluster says that it is gone."""
    try:
        return reported(api, api.get(TRAINJOB, namespace, name))
    except NotFound:
        return None


def reported(api: KubeApi, job: Mapping[str, Any]) -> JobReport:
    """Give what the TrainJob *job* says of itself."""
    now = phase(job)
    metadata = job["metadata"]
    uid, name, namespace = (metadata.get(key, "") for key in ("uid", "name", "namespace"))
    launch_id = (metadata.get("annotations") or {}).get(LAUNCH_ANNOTATION, "")
    state = KubeflowJobState(now.name)
    return JobReport(state, now.reason, now.message, uid, name, namespace, api.server, api.context, launch_id)


def started(
    status: Callable[[str], KubeflowJobState | None],
    name: str,
    *,
    why: Callable[[], str],
    timeout: float,
    interval: float,
    clock: Clock = SYSTEM_CLOCK,
) -> KubeflowJobState:
    """
    Wait until the TrainJob *name* runs or has ended, and give its state.

    Args:
        why: asked at the end of a wait in vain what the job waits for.

    Raises:
        JobFailed: it was deleted.
        WaitTimeout: it did not start in time.
    """

    def look() -> KubeflowJobState:
        state = status(name)
        if state is None:
            raise JobFailed(f"TrainJob {name} was deleted before it started", job=name, state="CANCELLED")
        return state

    what = f"the start of TrainJob {name}"
    try:
        return poll_until(look, _STARTED.__contains__, what=what, timeout=timeout, interval=interval, clock=clock)
    except WaitTimeout as error:
        reason = why()
        raise WaitTimeout(what, timeout, f"{error.last}: {reason}" if reason else error.last) from None


def explained(api: KubeApi, report: JobReport) -> JobReport:
    """Add to *report* why the job does not run, where anybody says."""
    if report.state is KubeflowJobState.FAILED:
        why = why_failed(api, report.namespace, report.name)
    elif report.state in (KubeflowJobState.CREATED, KubeflowJobState.PENDING) and not report.message:
        why = why_waiting(api, report.namespace, report.name)
    else:
        return report
    return replace(report, message="; ".join(part for part in (report.message, why) if part))


def why_waiting(api: KubeApi, namespace: str, name: str) -> str:
    """Say what the job's pods wait for, or what the newest warning about it is; nothing where nobody says."""
    pods = [startup(pod) for pod in _pods(api, namespace, name)]
    reasons = sorted({pod.text for pod in pods if not pod.ready and pod.text not in ("Pending", "Running")})
    if reasons:
        return "; ".join(reasons)
    return why_no_pod(api, namespace, name)


def why_no_pod(api: KubeApi, namespace: str, name: str) -> str:
    """Say what keeps the job's pods from being created: that they were refused, else the newest warning."""
    events = _events(api, namespace, name)
    return trouble(event for event in events if event.get("reason") in _REFUSED) or trouble(events)


def why_failed(api: KubeApi, namespace: str, name: str) -> str:
    """Say which container of which pod ended how, now or when somebody last looked; nothing where nobody saw it."""
    note(api, namespace, name, _pods(api, namespace, name))
    return noted(api, namespace, name)


def _pods(api: KubeApi, namespace: str, name: str) -> list[dict[str, Any]]:
    try:
        return api.list(POD, namespace, labels=pods_of(name))
    except KubeError as error:
        _tell_once("pods", namespace, error)
        return []


def _events(api: KubeApi, namespace: str, name: str) -> list[dict[str, Any]]:
    """List the events of the TrainJob and of its JobSet, which has the same name."""
    try:
        events = api.list(EVENT, namespace, fields=f"involvedObject.name={name}")
    except KubeError as error:
        _tell_once("events", namespace, error)
        return []
    return [event for event in events if (event.get("involvedObject") or {}).get("kind") in ("TrainJob", "JobSet")]


def _tell_once(what: str, namespace: str, error: KubeError) -> None:
    if f"{what} {namespace}" not in _told:
        _told.add(f"{what} {namespace}")
        logger.info("cannot read the %s of namespace %s, so reasons are not shown: %s", what, namespace, error)
