"""Plays Kubeflow Trainer and JobSet: turns TrainJobs into JobSets, Jobs and pods, and reports on them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import Sequence
from typing import Any

from nemo_run._kube.resources import CLUSTER_TRAINING_RUNTIME, POD, TRAINING_RUNTIME, TRAINJOB
from nemo_run.testing import _jobset
from nemo_run.testing._errors import ApiError
from nemo_run.testing._faults import Faults
from nemo_run.testing._jobs import JobController, finished
from nemo_run.testing._kinds import JOB, JOBSET
from nemo_run.testing._podstatus import now
from nemo_run.testing._store import Event, Store

Json = dict[str, Any]
Key = tuple[str, str]

_LONGEST_NAME = 63
_AWAY = 0.05
"""Seconds between two looks whether the controller is there again."""
_RUNTIMES = {kind.kind: kind for kind in (CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME)}


class TrainerController:
    """Brings the TrainJobs of a store forward whenever they, or their pods, change."""

    def __init__(self, store: Store, *, version: str = "2.3", faults: Faults | None = None) -> None:
        self._store = store
        self._faults = faults or Faults()
        self._version = version
        self._jobs = JobController(store, later=self._look_later)
        self._due: asyncio.Queue[Key] = asyncio.Queue()
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        subscription = self._store.subscribe()
        listener = asyncio.create_task(self._listen(subscription))
        try:
            while True:
                keys = {await self._due.get()}
                while self._faults.down():
                    await asyncio.sleep(_AWAY)
                while not self._due.empty():
                    keys.add(self._due.get_nowait())
                for key in sorted(keys):
                    self.reconcile(*key)
        finally:
            subscription.close()
            listener.cancel()
            for timer in self._timers.values():
                timer.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    def reconcile(self, namespace: str, name: str) -> None:
        """Do what one TrainJob needs now."""
        try:
            trainjob = self._store.get(TRAINJOB, namespace, name)
        except ApiError:
            return
        if "deletionTimestamp" in trainjob["metadata"] or _ended(trainjob) or _foreign(trainjob):
            return
        trainjob = self._note_suspension(trainjob)
        if self._expired(trainjob):
            self._conclude(trainjob, "Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline")
            self._store.delete(JOBSET, namespace, name)
            return
        jobset = self._jobset(trainjob)
        jobs = self._child_jobs(jobset) if jobset else None
        if jobset and jobs is not None:
            self._judge(trainjob, jobset, [self._jobs.reconcile(job) for job in jobs])

    def _look_later(self, job: Json, seconds: float) -> None:
        meta = job["metadata"]
        key = (meta["namespace"], meta["labels"][f"{_jobset.GROUP}/jobset-name"])
        asyncio.get_running_loop().call_later(seconds + 0.01, self._due.put_nowait, key)

    async def _listen(self, events: Any) -> None:
        async for event in events:
            if (key := _concerned(event)) is not None:
                self._due.put_nowait(key)

    def _jobset(self, trainjob: Json) -> Json | None:
        """Give the TrainJob's JobSet, made or brought up to date; None if it cannot be."""
        namespace, name = trainjob["metadata"]["namespace"], trainjob["metadata"]["name"]
        ref = trainjob["spec"]["runtimeRef"]
        try:
            kind = _RUNTIMES[ref.get("kind", CLUSTER_TRAINING_RUNTIME.kind)]
            runtime = self._store.get(kind, namespace, ref["name"])
            wanted = _jobset.jobset(trainjob, runtime, version=self._version)
            with contextlib.suppress(ApiError):
                stored = self._store.get(JOBSET, namespace, name)
                if stored["spec"] == wanted["spec"] or not (stored["spec"]["suspend"] or wanted["spec"]["suspend"]):
                    return stored
                return self._store.update(JOBSET, {**stored, "spec": wanted["spec"]})
            _check_name(wanted)
            return self._store.create(JOBSET, namespace, wanted)
        except ApiError as error:
            self._event(trainjob, "TrainJobResourcesCreationFailed", f"Failed to create resources: {error}")
            return None

    def _child_jobs(self, jobset: Json) -> list[Json] | None:
        """Give the JobSet's Jobs, made where they are missing; None if one cannot be made (yet)."""
        meta = jobset["metadata"]
        jobs = []
        for wanted in _jobset.jobs(jobset):
            try:
                stored = self._store.get(JOB, meta["namespace"], wanted["metadata"]["name"])
            except ApiError:
                if self._leaving(jobset):
                    return None
                if (made := self._create_job(jobset, wanted)) is None:
                    return None
                jobs.append(made)
                continue
            if stored["spec"] != wanted["spec"]:
                stored = self._store.update(JOB, {**stored, "spec": wanted["spec"]})
            jobs.append(stored)
        return jobs

    def _create_job(self, jobset: Json, job: Json) -> Json | None:
        namespace, name = jobset["metadata"]["namespace"], job["metadata"]["name"]
        try:
            self._store.create(POD, namespace, _jobset.pod(job, 0), dry_run=True)
            return self._store.create(JOB, namespace, job)
        except ApiError as error:
            text = error.message.partition(" is invalid: ")[2] or error.message
            why = f'Job.batch "{name}" is invalid: {text.replace("spec.", "spec.template.spec.")}'
            self._event(jobset, "JobCreationFailed", f'job "{name}" creation failed with error: {why}')
            return None

    def _leaving(self, jobset: Json) -> bool:
        """Tell if pods of a former attempt still have to go."""
        labels = f"{_jobset.GROUP}/jobset-uid={jobset['metadata']['uid']}"
        pods = self._store.list(POD, jobset["metadata"]["namespace"], labels=labels)
        return any("deletionTimestamp" in pod["metadata"] for pod in pods)

    def _judge(self, trainjob: Json, jobset: Json, jobs: Sequence[Json]) -> None:
        """Write the status of JobSet and TrainJob as their Jobs have it, and end what has ended."""
        namespace, name = trainjob["metadata"]["namespace"], trainjob["metadata"]["name"]
        counts = [_counts(replicated["name"], jobs) for replicated in jobset["spec"]["replicatedJobs"]]
        self._store.patch_status(JOBSET, namespace, name, {"replicatedJobsStatus": counts})
        if self._version != "2.0":
            self._store.patch_status(TRAINJOB, namespace, name, {"jobsStatus": counts})
        failed = [job for job in jobs if finished(job) == "Failed"]
        if failed and self._restarts_left(jobset):
            restarts = (jobset.get("status") or {}).get("restarts", 0) + 1
            self._store.patch_status(JOBSET, namespace, name, {"restarts": restarts})
            self._delete(jobs)
            self._due.put_nowait((namespace, name))
        elif failed:
            first = failed[0]["metadata"]["name"]
            message = f"jobset failed due to one or more job failures (first failed job: {first})"
            self._conclude(trainjob, "Failed", "FailedJobs", message)
            self._delete([job for job in jobs if not finished(job)])
        elif _succeeded(jobset, jobs):
            self._conclude(trainjob, "Complete", "AllJobsCompleted", "jobset completed successfully")
            self._delete([job for job in jobs if not finished(job)])

    def _restarts_left(self, jobset: Json) -> bool:
        most = int((jobset["spec"].get("failurePolicy") or {}).get("maxRestarts", 0))
        return int((jobset.get("status") or {}).get("restarts", 0)) < most

    def _delete(self, jobs: Sequence[Json]) -> None:
        for job in jobs:
            self._store.delete(JOB, job["metadata"]["namespace"], job["metadata"]["name"])

    def _note_suspension(self, trainjob: Json) -> Json:
        held = next((each for each in _conditions(trainjob) if each["type"] == "Suspended"), None)
        if trainjob["spec"].get("suspend"):
            return self._condition(trainjob, "Suspended", "True", "Suspended", "TrainJob is suspended")
        if held is not None and held["status"] == "True":
            return self._condition(trainjob, "Suspended", "False", "Resumed", "TrainJob is resumed")
        return trainjob

    def _expired(self, trainjob: Json) -> bool:
        """Tell if the TrainJob's deadline is over; else look again when it is."""
        limit = trainjob["spec"].get("activeDeadlineSeconds")
        if limit is None or trainjob["spec"].get("suspend"):
            return False
        resumed = [each for each in _conditions(trainjob) if each["type"] == "Suspended"]
        since = resumed[0]["lastTransitionTime"] if resumed else trainjob["metadata"]["creationTimestamp"]
        start = datetime.datetime.fromisoformat(since.replace("Z", "+00:00"))
        left = limit - (datetime.datetime.now(datetime.timezone.utc) - start).total_seconds()
        if left <= 0:
            return True
        key = (trainjob["metadata"]["namespace"], trainjob["metadata"]["name"])
        if key in self._timers:
            self._timers[key].cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(left, self._due.put_nowait, key)
        return False

    def _conclude(self, trainjob: Json, kind: str, reason: str, message: str) -> None:
        meta = trainjob["metadata"]
        if reason != "DeadlineExceeded":
            state = "Completed" if kind == "Complete" else kind
            self._store.patch_status(JOBSET, meta["namespace"], meta["name"], {"terminalState": state})
            self._clean_up_later(meta["namespace"], meta["name"])
        self._condition(self._store.get(TRAINJOB, meta["namespace"], meta["name"]), kind, "True", reason, message)

    def _clean_up_later(self, namespace: str, name: str) -> None:
        """Delete an ended JobSet, its pods with it, when the runtime says so; the TrainJob stays."""
        limit = self._store.get(JOBSET, namespace, name)["spec"].get("ttlSecondsAfterFinished")

        def clean_up() -> None:
            with contextlib.suppress(ApiError):
                self._store.delete(JOBSET, namespace, name)

        if limit is not None:
            self._timers[namespace, name] = asyncio.get_running_loop().call_later(limit, clean_up)

    def _condition(self, trainjob: Json, kind: str, status: str, reason: str, message: str) -> Json:
        before = {each["type"]: each for each in _conditions(trainjob)}
        old = before.get(kind, {})
        since = old["lastTransitionTime"] if old.get("status") == status else now()
        before[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        }
        meta = trainjob["metadata"]
        return self._store.patch_status(
            TRAINJOB, meta["namespace"], meta["name"], {"conditions": list(before.values())}
        )

    def _event(self, obj: Json, reason: str, message: str) -> None:
        """Tell an Event about *obj*, once."""
        self._store.event(obj, reason, message, component="trainer")


def _concerned(event: Event) -> Key | None:
    """Give the TrainJob that a change concerns."""
    meta = event.object["metadata"]
    if event.kind == TRAINJOB:
        return meta["namespace"], meta["name"]
    if event.kind == POD and (name := (meta.get("labels") or {}).get(f"{_jobset.GROUP}/jobset-name")):
        return meta["namespace"], name
    return None


def _conditions(trainjob: Json) -> list[Json]:
    found: list[Json] = (trainjob.get("status") or {}).get("conditions") or []
    return found


def _ended(trainjob: Json) -> bool:
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in _conditions(trainjob))


def _foreign(trainjob: Json) -> bool:
    """Tell if another controller (MultiKueue) has it."""
    own = "trainer.kubeflow.org/trainjob-controller"
    return bool(trainjob["spec"].get("managedBy", own) != own)


def _check_name(jobset: Json) -> None:
    """
    Return if its pods can be named.

    Raises:
        ApiError: JobSet's webhook would refuse it.
    """
    if len(_jobset.longest_name(jobset)) > _LONGEST_NAME:
        what = 'admission webhook "vjobset.kb.io" denied the request'
        raise ApiError(403, "Forbidden", f"{what}: JobSet name is too long, pod names generated from it exceed 63")


def _counts(name: str, jobs: Sequence[Json]) -> Json:
    """Count the Jobs of one replicated job as JobSet does."""
    own = [job for job in jobs if job["metadata"]["labels"][f"{_jobset.GROUP}/replicatedjob-name"] == name]
    going = [job for job in own if not finished(job)]
    return {
        "name": name,
        "ready": sum(
            job["status"]["ready"] + job["status"]["succeeded"] >= job["spec"]["parallelism"] for job in going
        ),
        "succeeded": sum(finished(job) == "Complete" for job in own),
        "failed": sum(finished(job) == "Failed" for job in own),
        "active": sum(job["status"]["active"] > 0 for job in going),
        "suspended": sum(bool(job["spec"].get("suspend")) for job in going),
    }


def _succeeded(jobset: Json, jobs: Sequence[Json]) -> bool:
    """Tell if the Jobs that count have succeeded."""
    policy = jobset["spec"].get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or [job["name"] for job in jobset["spec"]["replicatedJobs"]]
    label = f"{_jobset.GROUP}/replicatedjob-name"
    done = [finished(job) == "Complete" for job in jobs if job["metadata"]["labels"][label] in targets]
    return any(done) if policy.get("operator") == "Any" else bool(done) and all(done)
