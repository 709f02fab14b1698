"""What KubeRay makes for a RayJob: its cluster, a Service, and what submits its entrypoint."""

from __future__ import annotations

from typing import Any

from nemo_run._kube.resources import POD, RAYCLUSTER, RAYJOB, Resource
from nemo_run.testing import _kuberay_pods as pods
from nemo_run.testing import _kuberay_submitter as submitter
from nemo_run.testing._errors import ApiError
from nemo_run.testing._jobs import JobController
from nemo_run.testing._jobset import owner
from nemo_run.testing._kinds import JOB, SERVICE
from nemo_run.testing._kuberay_cluster import RETRY, Later
from nemo_run.testing._kuberay_dashboard import Dashboard, Dashboards
from nemo_run.testing._kuberay_rules import release
from nemo_run.testing._store import Store

Json = dict[str, Any]


class Owned:
    """Makes and finds what belongs to a RayJob; what is refused is told in an Event and tried again."""

    def __init__(self, store: Store, dashboards: Dashboards, *, version: str, later: Later) -> None:
        self._store = store
        self._dashboards = dashboards
        self._version = version
        self._release = release(version)
        self._later = later
        self._jobs = JobController(store, pod=submitter.pod)

    def cluster(self, job: Json) -> Json | None:
        """Give the RayJob's cluster, made if it is missing; None if it cannot be."""
        meta, spec, name = job["metadata"], job["spec"], job["status"]["rayClusterName"]
        found = self.find(RAYCLUSTER, meta["namespace"], name)
        if found is not None or spec.get("clusterSelector"):
            if found is None:
                self._later(RAYJOB, meta["namespace"], meta["name"], RETRY)
            return found and pods.named(found, self._version)
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
            text = f"Failed to create RayCluster {meta['namespace']}/{name}: {error}"
            self.tell(job, "FailedToCreateRayCluster", text)
            self._later(RAYJOB, meta["namespace"], meta["name"], RETRY)
            return None
        self.tell(job, "CreatedRayCluster", f"Created RayCluster {meta['namespace']}/{name}", "Normal")
        return pods.named(made, self._version)

    def service(self, job: Json, cluster: Json) -> None:
        """Have the Service that is named after the RayJob."""
        name = f"{job['metadata']['name']}-head-svc"
        if self._release < (1, 5) or self.find(SERVICE, job["metadata"]["namespace"], name) is not None:
            return
        service = pods.head_service(cluster)
        labels = {pods.ORIGIN: job["metadata"]["name"], pods.ORIGIN_KIND: RAYJOB.kind, pods.TYPE: "head"}
        service["metadata"] = {
            "name": name,
            "labels": labels,
            "ownerReferences": [owner(job, RAYJOB.api_version, RAYJOB.kind)],
        }
        self._store.create(SERVICE, job["metadata"]["namespace"], service)

    def submit(self, job: Json, cluster: Json) -> bool:
        """Have the batch Job that submits; tell if there is one."""
        meta = job["metadata"]
        if self.find(JOB, meta["namespace"], meta["name"]) is not None:
            return True
        try:
            wanted = submitter.job(job, cluster)
            self._store.create(POD, meta["namespace"], submitter.pod(wanted, 0), dry_run=True)
            self._store.create(JOB, meta["namespace"], wanted)
        except ApiError as error:
            text = f"Failed to create new Kubernetes Job {place(job)}: {error}"
            self.tell(job, "FailedToCreateRayJobSubmitter", text)
            self._later(RAYJOB, meta["namespace"], meta["name"], RETRY)
            return False
        self.tell(job, "CreatedRayJobSubmitter", f"Created Kubernetes Job {place(job)}", "Normal")
        self.submitter(job)
        return True

    def submitter(self, job: Json) -> Json | None:
        """Bring the RayJob's batch Job forward, and give it."""
        found = self.find(JOB, job["metadata"]["namespace"], job["metadata"]["name"])
        if found is None or job["metadata"]["uid"] not in (
            ref["uid"] for ref in found["metadata"].get("ownerReferences", [])
        ):
            return None
        return self._jobs.reconcile(found)

    def dashboard(self, job: Json, cluster: Json) -> Dashboard | None:
        """Give the line to the cluster's head; None without a head, or one whose dashboard has a port."""
        head, port = self.head(job), pods.ports(cluster).get("dashboard")
        if head is None or port is None:
            return None
        return self._dashboards.find(head, port, (job["metadata"]["namespace"], job["metadata"]["name"]))

    def head(self, job: Json) -> Json | None:
        """Give the head's pod, unless it is going."""
        labels = f"{pods.CLUSTER}={job['status'].get('rayClusterName', '')},{pods.TYPE}=head"
        found = self._store.list(POD, job["metadata"]["namespace"], labels=labels)
        return next((pod for pod in found if "deletionTimestamp" not in pod["metadata"]), None)

    def find(self, kind: Resource, namespace: str, name: str) -> Json | None:
        """Give an object, None if there is none of this name."""
        try:
            return self._store.get(kind, namespace, name)
        except ApiError:
            return None

    def tell(self, job: Json, reason: str, message: str, type: str = "Warning") -> None:
        """Tell an Event about the RayJob."""
        self._store.event(job, reason, message, type, component="rayjob-controller")


def place(job: Json) -> str:
    """Give where an object is, as messages say it."""
    return f"{job['metadata']['namespace']}/{job['metadata']['name']}"
