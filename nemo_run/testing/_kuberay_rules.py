"""What KubeRay itself refuses: not the API server, which has stored the object by then, but the operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from nemo_run.testing._metadata import dns_1035_faults

Json = dict[str, Any]
Problem = tuple[str, str]
"""An Event's reason, and what is wrong."""

LONGEST_CLUSTER, LONGEST_JOB = 53, 47
_RESOURCES = ("num-cpus", "num-gpus", "memory", "resources")


def release(version: str) -> tuple[int, ...]:
    """Make a release's number comparable."""
    return tuple(int(part) for part in version.split("."))


def cluster_problem(cluster: Json, version: str) -> Problem | None:
    """Give what is wrong with a RayCluster, None if nothing is."""
    if text := next(_name_faults("RayCluster", cluster, LONGEST_CLUSTER, version), None):
        return "InvalidRayClusterMetadata", text
    if text := next(_cluster_faults(cluster["spec"]), None):
        return "InvalidRayClusterSpec", text
    return None


def job_problem(job: Json, version: str) -> Problem | None:
    """Give what is wrong with a RayJob, None if nothing is."""
    if text := next(_name_faults("RayJob", job, LONGEST_JOB, version), None):
        return "InvalidRayJobMetadata", f"The RayJob metadata is invalid: {text}"
    if text := next(_job_faults(job["spec"]), None):
        return "InvalidRayJobSpec", f"The RayJob spec is invalid: {text}"
    return None


def _name_faults(kind: str, obj: Json, longest: int, version: str) -> Iterator[str]:
    name = obj["metadata"]["name"]
    if release(version) < (1, 4):
        return
    if len(name) > longest:
        yield f"{kind} name should be no more than {longest} characters"
    for fault in dns_1035_faults(name):
        yield f"{kind} name should be a valid DNS1035 label: [{fault}]"


def _cluster_faults(spec: Json) -> Iterator[str]:
    head = spec["headGroupSpec"]
    if not head["template"].get("spec", {}).get("containers"):
        yield "headGroupSpec should have at least one container"
    yield from _group_faults("Head", head)
    for group in spec.get("workerGroupSpecs") or []:
        name = group["groupName"]
        if not group["template"].get("spec", {}).get("containers"):
            yield "workerGroupSpec should have at least one container"
        low, high = group.get("minReplicas", 0), group.get("maxReplicas", 2**31 - 1)
        if low < 0 or high < 0:
            yield f"worker group {name} has negative minReplicas or maxReplicas"
        if low > high:
            yield f"worker group {name} has minReplicas {low} greater than maxReplicas {high}"
        yield from _group_faults(name, group)


def _group_faults(name: str, group: Json) -> Iterator[str]:
    params = group.get("rayStartParams") or {}
    if group.get("resources") and any(params.get(key) for key in _RESOURCES):
        both = "resource fields should not be set in both rayStartParams and Resources"
        yield f"{both} for {name} group; please use only one"
    if "labels" in params:
        why = "please use the top-level Labels field instead"
        yield f"rayStartParams['labels'] is not supported for {name} group; {why}"


def _job_faults(spec: Json) -> Iterator[str]:
    selector, shutdown = spec.get("clusterSelector"), spec.get("shutdownAfterJobFinishes")
    mode, backoff = spec.get("submissionMode", "K8sJobMode"), spec.get("backoffLimit") or 0
    if spec.get("suspend") and not shutdown:
        yield "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended"
    if (spec.get("ttlSecondsAfterFinished") or 0) < 0:
        yield "TTLSecondsAfterFinished must be a non-negative integer"
    if spec.get("ttlSecondsAfterFinished") and not shutdown:
        yield "a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished"
    if spec.get("suspend") and selector:
        yield "the ClusterSelector mode doesn't support the suspend operation"
    if not spec.get("rayClusterSpec") and not selector:
        yield "one of RayClusterSpec or ClusterSelector must be set"
    if selector and not selector.get("ray.io/cluster"):
        yield "cluster name in ClusterSelector should not be empty"
    if selector and mode == "SidecarMode":
        yield "ClusterSelector is not supported in SidecarMode"
    if backoff and (selector or mode == "InteractiveMode"):
        yield f"BackoffLimit is incompatible with {'ClusterSelector' if selector else mode}"
    if mode == "SidecarMode":
        yield from _sidecar_faults(spec)
    if spec.get("rayClusterSpec"):
        yield from _cluster_faults(spec["rayClusterSpec"])
    try:
        if not isinstance(yaml.safe_load(spec.get("runtimeEnvYAML") or "{}"), dict):
            yield "failed to unmarshal RuntimeEnvYAML: it is no mapping"
    except yaml.YAMLError as error:
        yield f"failed to unmarshal RuntimeEnvYAML: {str(error).splitlines()[0]}"
    for key in ("activeDeadlineSeconds", "preRunningDeadlineSeconds"):
        if spec.get(key) is not None and spec[key] <= 0:
            yield f"{key} must be a positive integer"
    if backoff < 0:
        yield "backoffLimit must be a positive integer"


def _sidecar_faults(spec: Json) -> Iterator[str]:
    if spec.get("submitterPodTemplate"):
        yield "Currently, SidecarMode doesn't support SubmitterPodTemplate"
    if spec.get("submitterConfig"):
        yield "Currently, SidecarMode doesn't support SubmitterConfig"
    head = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    if head.get("restartPolicy", "Never") != "Never":
        yield "restartPolicy for head Pod should be Never or unset when using SidecarMode"
