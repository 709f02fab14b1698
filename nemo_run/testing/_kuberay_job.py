"""Plays KubeRay's RayJob controller: a cluster for each RayJob, its submitter, and what becomes of it."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Any

from nemo_run._kube.resources import POD, RAYCLUSTER, RAYJOB
from nemo_run.testing import _kuberay_pods as pods
from nemo_run.testing import _kuberay_submitter as submitter
from nemo_run.testing._errors import ApiError
from nemo_run.testing._jobs import JobController, finished
from nemo_run.testing._jobset import owner
from nemo_run.testing._kinds import JOB, SERVICE
from nemo_run.testing._kuberay_cluster import OPERATOR, Later
from nemo_run.testing._kuberay_dashboard import Dashboard, Dashboards
from nemo_run.testing._kuberay_rules import job_problem, release
from nemo_run.testing._podstatus import now
from nemo_run.testing._store import Store, copied

Json = dict[str, Any]

FINALIZER = "ray.io/rayjob-finalizer"
RETRY = 1.0
"""Seconds until what was refused is tried again."""
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
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
        self._jobs = JobController(store, pod=submitter.pod)
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
        self._submitter(job)
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
            if after != stage:
                self._later(RAYJOB, namespace, name, 0)

    def _refuse(self, job: Json, status: Json, reason: str, text: str) -> None:
        self._tell(job, reason, f"The RayJob is invalid {_place(job)}: {text}")
        if self._release >= (1, 5):
            status |= {"jobDeploymentStatus": "ValidationFailed", "reason": "ValidationFailed", "message": text}

    def _begin(self, job: Json, status: Json) -> None:
        meta, spec = job["metadata"], job["spec"]
        if FINALIZER not in meta.get("finalizers", []):
            finalizers = [*meta.get("finalizers", []), FINALIZER]
            self._store.patch(RAYJOB, meta["namespace"], meta["name"], {"metadata": {"finalizers": finalizers}})
        if spec.get("submissionMode") != "InteractiveMode" and not status.get("jobId"):
            status["jobId"] = spec.get("jobId") or f"{meta['name']}-{_random()}"
        if not status.get("rayClusterName"):
            stem = meta["name"] if self._release >= (1, 4) else f"{meta['name']}-raycluster"
            chosen = (spec.get("clusterSelector") or {}).get(pods.CLUSTER)
            status["rayClusterName"] = chosen or f"{stem}-{_random()}"
        status |= {"jobDeploymentStatus": "Initializing", "startTime": now()}

    def _initialize(self, job: Json, status: Json) -> None:
        if self._interrupted(job, status, before_running=True):
            return
        if (cluster := self._cluster(job)) is None:
            return
        status["rayClusterStatus"] = cluster.get("status") or {}
        self._job_service(job, cluster)
        if status["rayClusterStatus"].get("state") != "ready":
            return
        if (url := pods.dashboard_url(cluster)) is None:
            return  # as in KubeRay: without a port of that name it waits for ever
        status["dashboardURL"] = url
        mode = job["spec"].get("submissionMode", "K8sJobMode")
        if mode == "InteractiveMode":
            status["jobDeploymentStatus"] = "Waiting"
        elif mode != "K8sJobMode" or self._submit(job, cluster):
            status["jobDeploymentStatus"] = "Running"

    def _wait(self, job: Json, status: Json) -> None:
        if not self._interrupted(job, status, before_running=True) and job["spec"].get("jobId"):
            status |= {"jobId": job["spec"]["jobId"], "jobDeploymentStatus": "Running"}

    def _watch(self, job: Json, status: Json) -> None:
        if self._interrupted(job, status, before_running=False) or self._submission_failed(job, status):
            return
        if (cluster := self._cluster(job)) is None:
            return
        status["rayClusterStatus"] = cluster.get("status") or {}
        head = self._head(job)
        mode = job["spec"].get("submissionMode", "K8sJobMode")
        if mode == "SidecarMode" and head is None:
            status |= {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "Ray head pod not found"}
            return
        dashboard = self._dashboard(job, cluster)
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
            over = over and (found := self._submitter(job)) is not None and finished(found) is not None
        elif mode == "SidecarMode":
            over = over and _ended(head, submitter.CONTAINER)
        if over and info["status"] == "FAILED":
            status |= {"jobDeploymentStatus": "Failed", "reason": "AppFailed"}
        elif over:
            status["jobDeploymentStatus"] = "Complete"

    def _submission_failed(self, job: Json, status: Json) -> bool:
        """Tell if the submitter has given up, which ends the RayJob."""
        found = self._submitter(job)
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
            self._tell(job, f"Deleted{word}", f"Deleted {kind.kind} {meta['namespace']}/{name}", "Normal")
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
        self._tell(job, "DeletedRayCluster", text, "Normal")

    def _let_go(self, job: Json) -> None:
        """Stop the job if it may still run, and let the RayJob be deleted."""
        meta, status = job["metadata"], job.get("status") or {}
        if status.get("jobStatus") not in _TERMINAL and status.get("jobId"):
            cluster = self._find(RAYCLUSTER, meta["namespace"], status.get("rayClusterName", ""))
            if cluster is not None and (dashboard := self._dashboard(job, cluster)) is not None:
                dashboard.stop(status["jobId"])
        self._dashboards.leave((meta["namespace"], meta["name"]))
        if FINALIZER in meta.get("finalizers", []):
            left = [name for name in meta["finalizers"] if name != FINALIZER]
            self._store.patch(RAYJOB, meta["namespace"], meta["name"], {"metadata": {"finalizers": left}})

    def _cluster(self, job: Json) -> Json | None:
        """Give the RayJob's cluster, made if it is missing; None if it cannot be."""
        meta, spec, name = job["metadata"], job["spec"], job["status"]["rayClusterName"]
        found = self._find(RAYCLUSTER, meta["namespace"], name)
        if found is not None or spec.get("clusterSelector"):
            if found is None:
                self._later(RAYJOB, meta["namespace"], meta["name"], RETRY)
            return found
        wanted: Json = {
            "apiVersion": RAYCLUSTER.api_version,
            "kind": RAYCLUSTER.kind,
            "metadata": {
                "name": name,
                "namespace": meta["namespace"],
                "labels": {**(meta.get("labels") or {}), pods.ORIGIN: meta["name"], pods.ORIGIN_KIND: RAYJOB.kind},
                "annotations": meta.get("annotations") or {},
                "ownerReferences": [owner(job, RAYJOB.api_version, RAYJOB.kind)],
            },
            "spec": spec["rayClusterSpec"],
        }
        if spec.get("submissionMode") == "SidecarMode":
            wanted = submitter.sidecar(job, wanted)
        try:
            made = self._store.create(RAYCLUSTER, meta["namespace"], wanted)
        except ApiError as error:
            place = f"{meta['namespace']}/{name}"
            self._tell(job, "FailedToCreateRayCluster", f"Failed to create RayCluster {place}: {error}")
            self._later(RAYJOB, meta["namespace"], meta["name"], RETRY)
            return None
        self._tell(job, "CreatedRayCluster", f"Created RayCluster {meta['namespace']}/{name}", "Normal")
        return made

    def _job_service(self, job: Json, cluster: Json) -> None:
        """Have the Service that is named after the RayJob."""
        name = f"{job['metadata']['name']}-head-svc"
        if self._release < (1, 5) or self._find(SERVICE, job["metadata"]["namespace"], name) is not None:
            return
        service = pods.head_service(cluster)
        labels = {pods.ORIGIN: job["metadata"]["name"], pods.ORIGIN_KIND: RAYJOB.kind, pods.TYPE: "head"}
        service["metadata"] = {
            "name": name,
            "labels": labels,
            "ownerReferences": [owner(job, RAYJOB.api_version, RAYJOB.kind)],
        }
        self._store.create(SERVICE, job["metadata"]["namespace"], service)

    def _submit(self, job: Json, cluster: Json) -> bool:
        """Have the batch Job that submits; tell if there is one."""
        meta = job["metadata"]
        if self._find(JOB, meta["namespace"], meta["name"]) is not None:
            return True
        try:
            wanted = submitter.job(job, cluster)
            self._store.create(POD, meta["namespace"], submitter.pod(wanted, 0), dry_run=True)
            self._store.create(JOB, meta["namespace"], wanted)
        except ApiError as error:
            text = f"Failed to create new Kubernetes Job {_place(job)}: {error}"
            self._tell(job, "FailedToCreateRayJobSubmitter", text)
            self._later(RAYJOB, meta["namespace"], meta["name"], RETRY)
            return False
        self._tell(job, "CreatedRayJobSubmitter", f"Created Kubernetes Job {_place(job)}", "Normal")
        self._submitter(job)
        return True

    def _submitter(self, job: Json) -> Json | None:
        """Bring the RayJob's batch Job forward, and give it."""
        found = self._find(JOB, job["metadata"]["namespace"], job["metadata"]["name"])
        own = found is not None and found["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        return self._jobs.reconcile(found) if found is not None and own else None

    def _dashboard(self, job: Json, cluster: Json) -> Dashboard | None:
        head, port = self._head(job), pods.ports(cluster).get("dashboard")
        if head is None or port is None:
            return None
        return self._dashboards.find(head, port, (job["metadata"]["namespace"], job["metadata"]["name"]))

    def _head(self, job: Json) -> Json | None:
        labels = f"{pods.CLUSTER}={job['status'].get('rayClusterName', '')},{pods.TYPE}=head"
        found = self._store.list(POD, job["metadata"]["namespace"], labels=labels)
        return next((pod for pod in found if "deletionTimestamp" not in pod["metadata"]), None)

    def _find(self, kind: Any, namespace: str, name: str) -> Json | None:
        try:
            return self._store.get(kind, namespace, name)
        except ApiError:
            return None

    def _tell(self, job: Json, reason: str, message: str, type: str = "Warning") -> None:
        self._store.event(job, reason, message, type, component="rayjob-controller")


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


def _place(job: Json) -> str:
    return f"{job['metadata']['namespace']}/{job['metadata']['name']}"


def _random() -> str:
    return "".join(random.choices(_SUFFIX, k=5))  # noqa: S311 - a name, no secret


def _time(milliseconds: int) -> str:
    moment = datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _age(since: str) -> float:
    start = datetime.datetime.fromisoformat(since.replace("Z", "+00:00"))
    return (datetime.datetime.now(datetime.timezone.utc) - start).total_seconds()
