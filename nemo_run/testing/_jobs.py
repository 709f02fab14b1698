"""
Plays the Job controller: keeps a pod for each index until all have succeeded.

A Job that is not Indexed has one completion here, which counts as index 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from nemo_run._kube.resources import POD
from nemo_run.testing import _jobset
from nemo_run.testing._errors import ApiError
from nemo_run.testing._jobset import INDEX
from nemo_run.testing._kinds import JOB
from nemo_run.testing._podstatus import now
from nemo_run.testing._store import Store

Json = dict[str, Any]

BATCH = 1.0
"""
Seconds that pods have after the restart that fails their Job: what a Job's pods do is looked at in batches.

As the real controller's (pkg/controller/job, syncJobBatchPeriod).
"""

RETRY = 2.0
"""Seconds until a pod that was refused is tried again; the real controller waits longer each time."""


def finished(job: Json) -> str | None:
    """Give ``Complete`` or ``Failed`` once the Job is."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return None


class JobController:
    """Brings the Jobs of a store forward, one step at each call."""

    def __init__(
        self,
        store: Store,
        *,
        pod: Callable[[Json, int], Json] = _jobset.pod,
        later: Callable[[Json, float], None] | None = None,
    ) -> None:
        """Take what makes a Job's new pod for an index, and what has a Job looked at again after some seconds."""
        self._store = store
        self._pod = pod
        self._later = later
        self._failing: dict[str, float] = {}

    def reconcile(self, job: Json) -> Json:
        """Create and delete pods as *job* needs it now; give it with its new status."""
        if finished(job):
            return job
        pods = self.pods(job)
        live = [each for each in pods if _live(each)]
        done = {_index(each) for each in pods if _phase(each) == "Succeeded"}
        failed = [each for each in pods if _phase(each) == "Failed" and "deletionTimestamp" not in each["metadata"]]
        conditions: list[Json] = []
        wanted = range(job["spec"]["completions"])
        if job["spec"].get("suspend"):
            self._delete(live)
            live = []
            conditions.append(_condition("Suspended", "JobSuspended", "Job suspended"))
        elif _too_many_failures(job, live, failed):
            if self._waits(job):
                return job
            self._delete(live)
            live = []
            message = "Job has reached the specified backoff limit"
            conditions.append(_condition("Failed", "BackoffLimitExceeded", message))
            self._store.event(job, "BackoffLimitExceeded", message, component="job-controller")
        elif done.issuperset(wanted):
            conditions.append(_condition("Complete", "CompletionsReached", "Reached expected number of succeeded pods"))
            self._store.event(job, "Completed", "Job completed", "Normal", component="job-controller")
        else:
            busy = {_index(each) for each in pods if _phase(each) not in ("Succeeded", "Failed")}
            live += filter(None, [self._create(job, index) for index in wanted if index not in busy | done])
        status = {
            "active": len(live),
            "ready": sum(map(_ready, live)),
            "succeeded": len(done),
            "failed": len(failed),
            "conditions": conditions,
        }
        meta = job["metadata"]
        return self._store.patch_status(JOB, meta["namespace"], meta["name"], status, merge=False)

    def pods(self, job: Json) -> list[Json]:
        """Give the pods that *job* owns."""
        meta = job["metadata"]
        found = self._store.list(POD, meta["namespace"], labels=f"batch.kubernetes.io/job-name={meta['name']}")
        return [each for each in found if _owner(each) == meta["uid"]]

    def _waits(self, job: Json) -> bool:
        """Tell if a Job that is to fail is looked at again later."""
        uid, moment = job["metadata"]["uid"], time.monotonic()
        if self._later is None:
            return False
        if uid not in self._failing:
            self._failing[uid] = moment
            self._later(job, BATCH)
        if moment < self._failing[uid] + BATCH:
            return True
        del self._failing[uid]
        return False

    def _create(self, job: Json, index: int) -> Json | None:
        """Create a pod; where that is refused (a quota), tell so and try again later."""
        try:
            made = self._store.create(POD, job["metadata"]["namespace"], self._pod(job, index))
        except ApiError as error:
            self._store.event(job, "FailedCreate", f"Error creating: {error.message}", component="job-controller")
            if self._later:
                self._later(job, RETRY)
            return None
        text = f"Created pod: {made['metadata']['name']}"
        self._store.event(job, "SuccessfulCreate", text, "Normal", component="job-controller")
        return made

    def _delete(self, pods: list[Json]) -> None:
        for each in pods:
            self._store.delete(POD, each["metadata"]["namespace"], each["metadata"]["name"])


def _too_many_failures(job: Json, live: list[Json], failed: list[Json]) -> bool:
    """Count restarts in place and failed pods against the Job's ``backoffLimit``."""
    limit = job["spec"].get("backoffLimit", 6)
    if len(failed) > limit:
        return True
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    restarts: int = sum(
        status["restartCount"]
        for each in live
        for group in ("containerStatuses", "initContainerStatuses")
        for status in each.get("status", {}).get(group, [])
    )
    return restarts > 0 if limit == 0 else restarts >= limit


def _condition(kind: str, reason: str, message: str) -> Json:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now()}


def _owner(pod: Json) -> str:
    return next((ref["uid"] for ref in pod["metadata"].get("ownerReferences", []) if ref.get("controller")), "")


def _phase(pod: Json) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def _live(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and _phase(pod) not in ("Succeeded", "Failed")


def _ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _index(pod: Json) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, "0"))
