"""Where a TrainJob is, why it does not start, and what it failed of: what it, its pods and the events say."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nemo_run._kube.resources import EVENT, POD, TRAINJOB
from nemo_run._kube.startup import SILENT, startup, trouble, with_trouble
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock, poll_until
from nemo_run.core.execution._endings import JOBSET_LABEL, endings, note, noted, pods_of
from nemo_run.core.execution._ownership import LAUNCH_ANNOTATION
from nemo_run.core.execution._trainjob import phase, untouched
from nemo_run.core.execution.kubeflow import JobReport, KubeflowJobState
from nemo_run.exceptions import JobFailed, KubeError, NotFound, WaitTimeout

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

_STARTED = (KubeflowJobState.RUNNING, KubeflowJobState.SUCCEEDED, KubeflowJobState.FAILED)
_REFUSED = ("JobCreationFailed", "TrainJobResourcesCreationFailed")
"""Events on the JobSet and on the TrainJob; no condition tells of it (JobSet v0.12, Trainer v2.3 controllers)."""
_NOT_READY = "running, but not ready"
_AT_ONCE = 100
"""Jobs whose pods are listed in one request: a URL may have some thousand characters."""
_told: set[str] = set()


def report(api: KubeApi, namespace: str, name: str) -> JobReport | None:
    """Give the state of the TrainJob *name*; None where the cluster says that it is gone."""
    try:
        return reported(api, api.get(TRAINJOB, namespace, name))
    except NotFound:
        return None


def reported(api: KubeApi, job: Mapping[str, Any], clock: Callable[[], float] = time.time) -> JobReport:
    """Give what the TrainJob *job* says of itself."""
    now = phase(job)
    metadata = job["metadata"]
    uid, name, namespace = (metadata.get(key, "") for key in ("uid", "name", "namespace"))
    launch_id = (metadata.get("annotations") or {}).get(LAUNCH_ANNOTATION, "")
    state = KubeflowJobState(now.name)
    return JobReport(
        state,
        now.reason,
        now.message,
        uid,
        name,
        namespace,
        api.server,
        api.context,
        launch_id,
        untouched(job, clock()),
    )


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
    elif _waits(report):
        why = why_waiting(api, report.namespace, report.name) or report.untouched
    else:
        return report
    return _with(report, why)


def all_explained(api: KubeApi, namespace: str, reports: Mapping[str, JobReport]) -> dict[str, JobReport]:
    """Add to each of *reports* why its job does not run yet, in few requests; the failed ones are left as they are."""
    waiting = [name for name, report in reports.items() if _waits(report)]
    pods = {name: list(of_job) for name, of_job in _pods_by_job(api, namespace, waiting).items()}
    told = _Warnings(api, namespace)
    explained = dict(reports)
    for name in waiting:
        why = _by_pods(pods[name], told.about_pod) or told.about_job(name) or reports[name].untouched
        explained[name] = _with(reports[name], why)
    return explained


def _waits(report: JobReport) -> bool:
    return report.state in (KubeflowJobState.CREATED, KubeflowJobState.PENDING) and not report.message


def _with(report: JobReport, why: str) -> JobReport:
    return replace(report, message="; ".join(part for part in (report.message, why) if part))


def why_waiting(api: KubeApi, namespace: str, name: str) -> str:
    """Say what the job's pods wait for, or what the newest warning about it is; nothing where nobody says."""
    pods = _pods(api, namespace, pods_of(name))
    return _by_pods(pods, lambda pod: pod_trouble(api, namespace, pod)) or why_no_pod(api, namespace, name)


def _by_pods(pods: Iterable[Mapping[str, Any]], trouble_of: Callable[[str], str]) -> str:
    """Say what *pods* wait for; of those that do not say, one is looked at for warnings."""
    names: dict[str, str] = {}
    for pod in pods:
        seen = startup(pod)
        if not seen.ready:
            names.setdefault(seen.text, pod["metadata"]["name"])
    texts = [with_trouble(text, trouble_of(name)) if text in SILENT else text for text, name in names.items()]
    return "; ".join(sorted(_NOT_READY if text == "Running" else text for text in texts if text != "Pending"))


def pod_trouble(api: KubeApi, namespace: str, pod: str) -> str:
    """Give the newest warning about a pod."""
    return trouble(_events(api, namespace, f"involvedObject.kind=Pod,involvedObject.name={pod}"))


def why_no_pod(api: KubeApi, namespace: str, name: str) -> str:
    """
    Say what keeps the job's pods from being created: that they were refused, else the newest warning.

    What refuses the JobSet is told of the TrainJob, what refuses a Job of the
    JobSet, which has the same name, and what refuses a pod (a quota) of the Job.
    """
    events = [event for event in _events(api, namespace, f"involvedObject.name={name}") if _is_about(event, name)]
    if said := _worst(events):
        return said
    events = _events(api, namespace, "involvedObject.kind=Job,type=Warning")
    return trouble(event for event in events if _is_about(event, name))


def _worst(events: Sequence[Mapping[str, Any]]) -> str:
    return trouble(event for event in events if event.get("reason") in _REFUSED) or trouble(events)


def _is_about(event: Mapping[str, Any], name: str) -> bool:
    """Tell whether an event is about the TrainJob *name*, its JobSet, or a Job of that."""
    about = event.get("involvedObject") or {}
    kind, other = about.get("kind"), about.get("name") or ""
    return other == name if kind in ("TrainJob", "JobSet") else kind == "Job" and other.startswith(f"{name}-")


class _Warnings:
    """The warnings of a namespace, listed when the first is asked for."""

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    @cached_property
    def _all(self) -> list[dict[str, Any]]:
        return _events(self._api, self._namespace, "type=Warning")

    def about_pod(self, pod: str) -> str:
        return trouble(e for e in self._all if (e.get("involvedObject") or {}).get("name") == pod)

    def about_job(self, name: str) -> str:
        return _worst([event for event in self._all if _is_about(event, name)])


def why_failed(api: KubeApi, namespace: str, name: str) -> str:
    """Say which container of which pod ended how, now or when somebody last looked; nothing where nobody saw it."""
    labels = pods_of(name)
    note(api, namespace, labels, _pods(api, namespace, labels), endings)
    return noted(api, namespace, labels)


def _pods(api: KubeApi, namespace: str, labels: str) -> list[dict[str, Any]]:
    try:
        return api.list(POD, namespace, labels=labels)
    except KubeError as error:
        _tell_once("pods", namespace, error)
        return []


def _pods_by_job(api: KubeApi, namespace: str, names: Sequence[str]) -> Mapping[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for first in range(0, len(names), _AT_ONCE):
        for pod in _pods(api, namespace, f"{JOBSET_LABEL} in ({','.join(names[first : first + _AT_ONCE])})"):
            found[pod["metadata"]["labels"][JOBSET_LABEL]].append(pod)
    return found


def _events(api: KubeApi, namespace: str, fields: str) -> list[dict[str, Any]]:
    try:
        return api.list(EVENT, namespace, fields=fields)
    except KubeError as error:
        _tell_once("events", namespace, error)
        return []


def _tell_once(what: str, namespace: str, error: KubeError) -> None:
    if f"{what} {namespace}" not in _told:
        _told.add(f"{what} {namespace}")
        logger.info("cannot read the %s of namespace %s, so reasons are not shown: %s", what, namespace, error)
