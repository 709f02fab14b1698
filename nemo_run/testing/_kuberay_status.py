"""The status that KubeRay gives a RayCluster, worked out from its pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nemo_run.testing._kuberay_pods import TYPE, ports, service_name
from nemo_run.testing._podrules import quantity
from nemo_run.testing._podstatus import now

Json = dict[str, Any]
Failure = tuple[str, str]
"""Why a pod could not be made: the condition's reason and message."""

_MOST = 2**31 - 1


def desired(group: Json) -> int:
    """Give how many pods a worker group is to have."""
    if group.get("suspend"):
        return 0
    low, high = group.get("minReplicas", 0), group.get("maxReplicas", _MOST)
    return int(min(max(group.get("replicas", 0), low), high) * group.get("numOfHosts", 1))


def status(cluster: Json, pods: Sequence[Json], failure: Failure | None) -> Json:
    """Give the status of *cluster* now; what it said before may stay."""
    before: Json = cluster.get("status") or {}
    groups = cluster["spec"].get("workerGroupSpecs") or []
    heads = [pod for pod in pods if pod["metadata"]["labels"][TYPE] == "head"]
    workers = [pod for pod in pods if pod["metadata"]["labels"][TYPE] == "worker"]
    wanted = sum(map(desired, groups))
    suspended = bool(cluster["spec"].get("suspend"))
    ready = len(heads) == 1 and len(workers) == wanted and all(map(is_ready, pods))
    own = {each["type"]: each for each in before.get("conditions") or []}
    result: Json = {
        **{key: value for key, value in before.items() if key in ("state", "stateTransitionTimes")},
        "observedGeneration": cluster["metadata"]["generation"],
        "readyWorkerReplicas": sum(map(is_ready, workers)),
        "availableWorkerReplicas": sum(phase(pod) == "Running" for pod in workers),
        "desiredWorkerReplicas": wanted,
        "minWorkerReplicas": sum(group.get("minReplicas", 0) * group.get("numOfHosts", 1) for group in groups),
        "maxWorkerReplicas": min(
            sum(group.get("maxReplicas", _MOST) * group.get("numOfHosts", 1) for group in groups), _MOST
        ),
        **_resources(cluster),
        "endpoints": {name: str(port) for name, port in ports(cluster).items()},
        "head": _head(cluster, heads),
    }
    if suspended and not pods:
        _enter(result, "suspended")
    elif ready and not suspended:
        _enter(result, "ready")
    elif before.get("state") == "suspended" and not suspended:
        result.pop("state")
    result["conditions"] = _conditions(own, heads, ready=ready, suspended=suspended, gone=not pods, failure=failure)
    return {key: value for key, value in result.items() if value not in ({}, None)}


def settled(before: Json, after: Json) -> bool:
    """Tell if two statuses differ in nothing but when they were written."""
    return {**before, "lastUpdateTime": ""} == {**after, "lastUpdateTime": ""}


def is_ready(pod: Json) -> bool:
    """Tell if a pod runs and is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return phase(pod) == "Running" and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def phase(pod: Json) -> str:
    """Give a pod's phase."""
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _enter(status: Json, state: str) -> None:
    if status.get("state") != state:
        status["stateTransitionTimes"] = {**status.get("stateTransitionTimes", {}), state: now()}
    status["state"] = state


def _head(cluster: Json, heads: Sequence[Json]) -> Json:
    found: Json = {"serviceName": service_name(cluster)}
    if heads:
        address = (heads[0].get("status") or {}).get("podIP", "")
        found |= {"podName": heads[0]["metadata"]["name"], "podIP": address, "serviceIP": address}
    return {key: value for key, value in found.items() if value}


def _resources(cluster: Json) -> Json:
    groups = [(1, cluster["spec"]["headGroupSpec"])]
    groups += [(desired(group), group) for group in cluster["spec"].get("workerGroupSpecs") or []]
    totals = {"cpu": 0, "memory": 0, "gpu": 0}
    for count, group in groups:
        for container in group["template"]["spec"]["containers"]:
            resources = container.get("resources") or {}
            amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
            for name, amount in amounts.items():
                key = "gpu" if name.endswith("gpu") else name
                if key in totals:
                    totals[key] += count * int(quantity(amount))
    return {
        "desiredCPU": str(totals["cpu"]),
        "desiredMemory": str(totals["memory"]),
        "desiredGPU": str(totals["gpu"]),
        "desiredTPU": "0",
    }


def _conditions(
    before: dict[str, Json],
    heads: Sequence[Json],
    *,
    ready: bool,
    suspended: bool,
    gone: bool,
    failure: Failure | None,
) -> list[Json]:
    found = {"HeadPodReady": _head_ready(heads)}
    provisioned = before.get("RayClusterProvisioned", {}).get("status") == "True" and not suspended
    if ready or provisioned:
        message = "All Ray Pods are ready for the first time"
        found["RayClusterProvisioned"] = _condition("True", "AllPodRunningAndReadyFirstTime", message)
    elif not suspended:
        message = "RayCluster Pods are being provisioned for first time"
        found["RayClusterProvisioned"] = _condition("False", "RayClusterPodsProvisioning", message)
    if failure is not None:
        found["ReplicaFailure"] = _condition("True", *failure)
    if suspended or "RayClusterSuspended" in before:
        found["RayClusterSuspending"] = _flag("RayClusterSuspending", suspended and not gone)
        found["RayClusterSuspended"] = _flag("RayClusterSuspended", suspended and gone)
    return [_dated(kind, condition, before.get(kind, {})) for kind, condition in found.items()]


def _head_ready(heads: Sequence[Json]) -> Json:
    if not heads:
        return _condition("False", "HeadPodNotFound", "Head Pod not found")
    if is_ready(heads[0]):
        return _condition("True", "HeadPodRunningAndReady", "")
    status = heads[0].get("status") or {}
    for container in (*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])):
        for kind in ("waiting", "terminated"):
            state = container["state"].get(kind)
            if state and not (kind == "terminated" and state["exitCode"] == 0):
                return _condition("False", state["reason"], f"{container['name']}: {state.get('message', '')}")
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return _condition("False", condition.get("reason", "Unknown"), condition.get("message", ""))
        if condition["type"] == "Ready":
            return _condition("False", condition.get("reason", "Unknown"), condition.get("message", ""))
    return _condition("False", "Unknown", "")


def _flag(kind: str, value: bool) -> Json:
    return _condition("True" if value else "False", kind, "")


def _condition(status: str, reason: str, message: str) -> Json:
    return {"status": status, "reason": reason, "message": message}


def _dated(kind: str, condition: Json, before: Json) -> Json:
    since = before["lastTransitionTime"] if before.get("status") == condition["status"] else now()
    return {"type": kind, "lastTransitionTime": since, **condition}
