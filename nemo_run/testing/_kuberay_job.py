"""Plays KubeRay's RayJob controller: a cluster for each RayJob, its submitter, and what becomes of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from nemo_run._kube.resources import RAYCLUSTER, RAYJOB
from nemo_run.testing import _kuberay_pods as pods
from nemo_run.testing import _kuberay_submitter as submitter
from nemo_run.testing._errors import ApiError
from nemo_run.testing._jobs import finished
from nemo_run.testing._kinds import JOB
from nemo_run.testing._kuberay_cluster import OPERATOR, Later
from nemo_run.testing._kuberay_dashboard import Dashboards
from nemo_run.testing._kuberay_owned import Owned, place
from nemo_run.testing._kuberay_rules import job_problem, release
from nemo_run.testing._podstatus import now
from nemo_run.testing._store import Store, copied, random_suffix

Json = dict[str, Any]

FINALIZER = "ray.io/rayjob-finalizer"
_TERMINAL = ("SUCCEEDED", "FAILED", "STOPPED")
_OVER = ("Complete", "Failed")


class RayJobs:
    """Brings the RayJobs of a store forward, one step at each call."""

    def __init__(self, store: Store, dashboards: Dashboards, *, version: str, later: Later) -> None:
        self._store = store
        self._dashboards = dashboards
        self._version = version
        self._release = release(version)
        self._later = later
        self._owned = Owned(store, dashboards, version=version, later=later)
        self._steps: dict[str, Callable[[Json, Json], None]] = {
            "": self._begin,
            "Initializing": self._initialize,
            "Waiting": self._wait,
            "Running": self._watch,
            "Suspending": self._clear,
            "Retrying": self._clear,
            "Suspended": self._resume,
            "Complete": self._shut_down,
            "Failed": self._shut_down,
        }

    def reconcile(self, namespace: str, name: str) -> None:
        """Do what one RayJob needs now."""
        try:
            job = self._store.get(RAYJOB, namespace, name)
        except ApiError:
            self._dashboards.leave((namespace, name))
            return
        if job["spec"].get("managedBy", OPERATOR) != OPERATOR:
            return
        if "deletionTimestamp" in job["metadata"]:
            self._let_go(job)
            return
        self._owned.submitter(job)
        before: Json = job.get("status") or {}
        status: Json = copied(before)
        stage = status.get("jobDeploymentStatus", "")
        if stage not in (*_OVER, "ValidationFailed") and (problem := job_problem(job, self._version)) is not None:
            self._refuse(job, status, *problem)
        elif stage in self._steps:
            job["status"] = status
            self._steps[stage](job, status)
            _count(job["spec"], status, stage)
        status = {key: value for key, value in status.items() if value not in (None, "", {})}
        if status != before:
            after = status.get("jobDeploymentStatus", "")
            if after in _OVER and after != stage:
                status["endTime"] = now()
            self._store.patch_status(RAYJOB, namespace, name, status, merge=False)

    def _refuse(self, job: Json, status: Json, reason: str, text: str) -> None:
        self._owned.tell(job, reason, f"The RayJob is invalid {place(job)}: {text}")
        if self._release >= (1, 5):
            status |= {"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": text}

    def _begin(self, job: Json, status: Json) -> None:
        meta, spec = job["metadata"], job["spec"]
        if FINALIZER not in meta.get("finalizers", []):
            finalizers = [*meta.get("finalizers", []), FINALIZER]
            self._store.patch(RAYJOB, meta["namespace"], meta["name"], {"metadata": {"finalizers": finalizers}})
        if spec.get("submissionMode") != "InteractiveMode" and not status.get("jobId"):
            status["jobId"] = spec.get("jobId") or f"{meta['name']}-{random_suffix()}"
        if not status.get("rayClusterName"):
            stem = meta["name"] if self._release >= (1, 4) else f"{meta['name']}-raycluster"
            chosen = (spec.get("clusterSelector") or {}).get(pods.CLUSTER)
            status["rayClusterName"] = chosen or f"{stem}-{random_suffix()}"
        status |= {"jobDeploymentStatus": "Initializing", "startTime": now()}

    def _initialize(self, job: Json, status: Json) -> None:
        if self._interrupted(job, status, before_running=True):
            return
        if (cluster := self._owned.cluster(job)) is None:
            return
        status["rayClusterStatus"] = cluster.get("status") or {}
        self._owned.service(job, cluster)
        if status["rayClusterStatus"].get("state") != "ready":
            return
        if (url := pods.dashboard_url(cluster)) is None:
            return  # as in KubeRay: without a port of that name it waits for ever
        status["dashboardURL"] = url
        mode = job["spec"].get("submissionMode", "K8sJobMode")
        if mode == "InteractiveMode":
            status["jobDeploymentStatus"] = "Waiting"
        elif mode != "K8sJobMode" or self._owned.submit(job, cluster):
            status["jobDeploymentStatus"] = "Running"

    def _wait(self, job: Json, status: Json) -> None:
        if not self._interrupted(job, status, before_running=True) and job["spec"].get("jobId"):
            status |= {"jobId": job["spec"]["jobId"], "jobDeploymentStatus": "Running"}

    def _watch(self, job: Json, status: Json) -> None:
        if self._interrupted(job, status, before_running=False) or self._submission_failed(job, status):
            return
        if (cluster := self._owned.cluster(job)) is None:
            return
        status["rayClusterStatus"] = cluster.get("status") or {}
        head = self._owned.head(job)
        mode = job["spec"].get("submissionMode", "K8sJobMode")
        if mode == "SidecarMode" and head is None:
            status |= {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "Ray head pod not found"}
            return
        dashboard = self._owned.dashboard(job, cluster)
        if dashboard is None or dashboard.jobs is None:
            return
        info = dashboard.jobs.get(status["jobId"])
        if info is None:
            if mode == "HTTPMode":
                dashboard.submit(_request(job, status))
            return
        self._note(job, status, info, head, mode)

    def _note(self, job: Json, status: Json, info: Json, head: Json | None, mode: str) -> None:
        status |= {"jobStatus": info["status"], "message": info.get("message") or ""}
        times = {"startTime": info.get("start_time"), "endTime": info.get("end_time")}
        status["rayJobInfo"] = {key: _time(value) for key, value in times.items() if value}
        over = info["status"] in _TERMINAL
        if mode == "K8sJobMode":
            over = over and (found := self._owned.submitter(job)) is not None and finished(found) is not None
        elif mode == "SidecarMode":
            over = over and _ended(head, submitter.CONTAINER)
        if over and info["status"] == "FAILED":
            status |= {"jobDeploymentStatus": "Failed", "reason": "AppFailed"}
        elif over:
            status["jobDeploymentStatus"] = "Complete"

    def _submission_failed(self, job: Json, status: Json) -> bool:
        """Tell if the submitter has given up, which ends the RayJob."""
        found = self._owned.submitter(job)
        if found is None or finished(found) != "Failed":
            return False
        condition = next(each for each in found["status"]["conditions"] if each["type"] == "Failed")
        status["jobDeploymentStatus"] = "Failed"
        if status.get("jobStatus") == "FAILED":
            status["reason"] = "AppFailed"
        else:
            why = f"Job submission has failed. Reason: {condition['reason']}. Message: {condition['message']}"
            status |= {"reason": "SubmissionFailed", "message": why}
        return True

    def _interrupted(self, job: Json, status: Json, *, before_running: bool) -> bool:
        """Note a suspension or a deadline that is over; else look again when it is."""
        spec, meta = job["spec"], job["metadata"]
        if spec.get("suspend"):
            status["jobDeploymentStatus"] = "Suspending"
            return True
        limits = {"activeDeadlineSeconds": "DeadlineExceeded"}
        if before_running and self._release >= (1, 6):
            limits["preRunningDeadlineSeconds"] = "PreRunningDeadlineExceeded"
        for key, reason in limits.items():
            if (limit := spec.get(key)) is None:
                continue
            if (left := limit - _age(status["startTime"])) <= 0:
                text = f"The RayJob has passed the {key}. StartTime: {status['startTime']}. {key}: {limit}"
                status |= {"jobDeploymentStatus": "Failed", "reason": reason, "message": text}
                return True
            self._later(RAYJOB, meta["namespace"], meta["name"], left)
        return False

    def _clear(self, job: Json, status: Json) -> None:
        """Delete what runs, and once that is gone begin anew or stay suspended."""
        meta = job["metadata"]
        self._dashboards.leave((meta["namespace"], meta["name"]))
        for kind, name in ((RAYCLUSTER, status.get("rayClusterName", "")), (JOB, meta["name"])):
            try:
                self._store.delete(kind, meta["namespace"], name)
            except ApiError:
                continue
            word = "RayCluster" if kind == RAYCLUSTER else "RayJobSubmitter"
            self._owned.tell(job, f"Deleted{word}", f"Deleted {kind.kind} {meta['namespace']}/{name}", "Normal")
        stage = status.pop("jobDeploymentStatus")
        for key in (
            *("rayClusterStatus", "rayClusterName", "dashboardURL", "jobId"),
            *("message", "reason", "rayJobInfo", "jobStatus"),
        ):
            status.pop(key, None)
        if stage == "Suspending":
            status["jobDeploymentStatus"] = "Suspended"

    def _resume(self, job: Json, status: Json) -> None:
        if not job["spec"].get("suspend"):
            del status["jobDeploymentStatus"]

    def _shut_down(self, job: Json, status: Json) -> None:
        """Delete the cluster once the RayJob has been over for long enough."""
        meta, spec = job["metadata"], job["spec"]
        self._dashboards.leave((meta["namespace"], meta["name"]))
        if not spec.get("shutdownAfterJobFinishes") or spec.get("clusterSelector") or "endTime" not in status:
            return
        if (left := (spec.get("ttlSecondsAfterFinished") or 0) - _age(status["endTime"])) > 0:
            self._later(RAYJOB, meta["namespace"], meta["name"], left)
            return
        try:
            self._store.delete(RAYCLUSTER, meta["namespace"], status["rayClusterName"])
        except ApiError:
            return
        text = f"Deleted cluster {meta['namespace']}/{status['rayClusterName']}"
        self._owned.tell(job, "DeletedRayCluster", text, "Normal")

    def _let_go(self, job: Json) -> None:
        """Stop the job if it may still run, and let the RayJob be deleted."""
        meta, status = job["metadata"], job.get("status") or {}
        if status.get("jobStatus") not in _TERMINAL and status.get("jobId"):
            cluster = self._owned.find(RAYCLUSTER, meta["namespace"], status.get("rayClusterName", ""))
            if cluster is not None and (dashboard := self._owned.dashboard(job, cluster)) is not None:
                dashboard.stop(status["jobId"])
        self._dashboards.leave((meta["namespace"], meta["name"]))
        if FINALIZER in meta.get("finalizers", []):
            left = [name for name in meta["finalizers"] if name != FINALIZER]
            self._store.patch(RAYJOB, meta["namespace"], meta["name"], {"metadata": {"finalizers": left}})


def _count(spec: Json, status: Json, stage: str) -> None:
    """Count ends, and turn a failure that is to be tried again into a retry."""
    failed, succeeded = status.get("failed", 0), status.get("succeeded", 0)
    after = status.get("jobDeploymentStatus")
    if after == "Failed" and stage != after:
        failed += 1
        if failed <= (spec.get("backoffLimit") or 0) and status.get("reason") != "DeadlineExceeded":
            status["jobDeploymentStatus"] = "Retrying"
    if after == "Complete" and stage != after and status.get("jobStatus") == "SUCCEEDED":
        succeeded += 1
    status |= {"failed": failed, "succeeded": succeeded}


def _request(job: Json, status: Json) -> Json:
    """Give what HTTPMode sends to the dashboard."""
    return {
        "entrypoint": job["spec"].get("entrypoint", ""),
        "submission_id": status["jobId"],
        "runtime_env": submitter.environment(job),
        "metadata": job["spec"].get("metadata") or {},
    }


def _ended(pod: Json | None, container: str) -> bool:
    states = ((pod or {}).get("status") or {}).get("containerStatuses") or []
    return any(each["name"] == container and "terminated" in each["state"] for each in states)


def _time(milliseconds: int) -> str:
    moment = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _age(since: str) -> float:
    start = datetime.datetime.fromisoformat(since.replace("Z", "+00:00"))
    return (datetime.datetime.now(datetime.timezone.utc) - start).total_seconds()
