"""Plays KubeRay's RayCluster controller: makes the head, its Service and the workers, and reports on them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from nemo_run._kube.resources import POD, RAYCLUSTER, Resource
from nemo_run.testing import _kuberay_pods as pods
from nemo_run.testing._errors import ApiError
from nemo_run.testing._kinds import SERVICE
from nemo_run.testing._kuberay_rules import cluster_problem, release
from nemo_run.testing._kuberay_status import Failure, desired, phase, settled, status
from nemo_run.testing._podstatus import now
from nemo_run.testing._store import Store, random_suffix

Json = dict[str, Any]
Later = Callable[[Resource, str, str, float], None]
"""Has an object looked at again after so many seconds."""

OPERATOR = "ray.io/kuberay-operator"
RETRY = 1.0
"""Seconds until a pod that was refused is tried again."""


class RayClusters:
    """Brings the RayClusters of a store forward, one step at each call."""

    def __init__(self, store: Store, *, version: str, later: Later) -> None:
        self._store = store
        self._version = version
        self._later = later

    def reconcile(self, namespace: str, name: str) -> None:
        """Do what one RayCluster needs now."""
        try:
            cluster = self._store.get(RAYCLUSTER, namespace, name)
        except ApiError:
            return
        if "deletionTimestamp" in cluster["metadata"] or cluster["spec"].get("managedBy", OPERATOR) != OPERATOR:
            return
        if (problem := cluster_problem(cluster, self._version)) is not None:
            reason, text = problem
            what = "metadata" if reason.endswith("Metadata") else "spec"
            self._tell(cluster, reason, f"The RayCluster {what} is invalid {namespace}/{name}: {text}")
            return
        cluster = pods.named(cluster, self._version)
        failure = None
        if cluster["spec"].get("suspend"):
            self._delete(cluster, self._pods(cluster), "Deleted")
        else:
            with contextlib.suppress(ApiError):
                self._store.create(SERVICE, namespace, pods.head_service(cluster))
            failure = self._head(cluster) or self._workers(cluster)
        if failure is not None:
            self._later(RAYCLUSTER, namespace, name, RETRY)
        self._report(cluster, failure)

    def _report(self, cluster: Json, failure: Failure | None) -> None:
        meta = cluster["metadata"]
        new = status(cluster, self._pods(cluster), failure)
        if not settled(cluster.get("status") or {}, new):
            new["lastUpdateTime"] = now()
            self._store.patch_status(RAYCLUSTER, meta["namespace"], meta["name"], new, merge=False)

    def _pods(self, cluster: Json, kind: str | None = None) -> list[Json]:
        meta = cluster["metadata"]
        labels = f"{pods.CLUSTER}={meta['name']}" + (f",{pods.TYPE}={kind}" if kind else "")
        found = self._store.list(POD, meta["namespace"], labels=labels)
        return [pod for pod in found if any(ref["uid"] == meta["uid"] for ref in _owners(pod))]

    def _head(self, cluster: Json) -> Failure | None:
        """Have one head; an ended one is replaced, once it is gone."""
        present = self._pods(cluster, "head")
        self._delete(cluster, [pod for pod in present if phase(pod) in ("Succeeded", "Failed")], "DeletedHeadPod")
        return None if present else self._create(cluster, pods.head_pod(cluster), "Head")

    def _workers(self, cluster: Json) -> Failure | None:
        """Have as many workers in each group as it wants."""
        everyone = self._pods(cluster, "worker")
        for group in cluster["spec"].get("workerGroupSpecs") or []:
            own = [pod for pod in everyone if pod["metadata"]["labels"][pods.GROUP] == group["groupName"]]
            named = (group.get("scaleStrategy") or {}).get("workersToDelete") or []
            going = [pod for pod in own if _leaves(pod) or pod["metadata"]["name"] in named]
            staying = [pod for pod in own if pod not in going]
            surplus = staying[desired(group) :]
            self._delete(cluster, [*going, *surplus], "DeletedWorkerPod")
            for slot in self._free_slots(group, staying):
                taken = {pod["metadata"]["annotations"][pods.NUMBER] for pod in self._pods(cluster, "worker")}
                number = next(number for number in range(1, len(taken) + 2) if str(number) not in taken)
                wanted = pods.worker_pod(cluster, group, number, slot)
                if (failure := self._create(cluster, wanted, "Worker")) is not None:
                    return failure
        return None

    def _free_slots(self, group: Json, staying: Sequence[Json]) -> list[tuple[int, int] | None]:
        """Give a slot for each worker that is missing; before KubeRay 1.6 workers have none."""
        missing = max(desired(group) - len(staying), 0)
        if release(self._version) < (1, 6):
            return [None] * missing
        slots = [divmod(number, group.get("numOfHosts", 1)) for number in range(desired(group))]
        free = [
            slot
            for slot in slots
            if not any(pods.slot_labels(group, slot).items() <= pod["metadata"]["labels"].items() for pod in staying)
        ]
        return list(free[:missing])

    def _create(self, cluster: Json, pod: Json, kind: str) -> Failure | None:
        namespace, stem = cluster["metadata"]["namespace"], pod["metadata"].pop("generateName")
        name = pod["metadata"]["name"] = stem + random_suffix()
        try:
            made = self._store.create(POD, namespace, pod)
        except ApiError as error:
            # The same words for each try, or each would be news that leads to the next one.
            why = str(error).replace(name, stem)
            self._tell(
                cluster, f"FailedToCreate{kind}Pod", f"Failed to create {kind.lower()} Pod {namespace}/{stem}, {why}"
            )
            return f"FailedCreate{kind}Pod", why
        text = f"Created {kind.lower()} Pod {namespace}/{made['metadata']['name']}"
        self._tell(cluster, f"Created{kind}Pod", text, "Normal")
        return None

    def _delete(self, cluster: Json, unwanted: Sequence[Json], reason: str) -> None:
        for pod in unwanted:
            meta = pod["metadata"]
            if "deletionTimestamp" not in meta:
                self._store.delete(POD, meta["namespace"], meta["name"])
                self._tell(cluster, reason, f"Deleted Pod {meta['namespace']}/{meta['name']}", "Normal")

    def _tell(self, cluster: Json, reason: str, message: str, type: str = "Warning") -> None:
        self._store.event(cluster, reason, message, type, component="raycluster-controller")


def _owners(pod: Json) -> list[Json]:
    found: list[Json] = pod["metadata"].get("ownerReferences") or []
    return found


def _leaves(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"] or phase(pod) in ("Succeeded", "Failed")
