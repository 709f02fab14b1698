"""The JobSet that Trainer makes of a TrainJob and its runtime, with the Jobs and pods of that."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run.testing._admission import PATCHES
from nemo_run.testing._kinds import JOB, JOBSET
from nemo_run.testing._podrules import quantity
from nemo_run.testing._store import copied
from nemo_run.testing._strategic import merged

Json = dict[str, Any]

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
INDEX = "batch.kubernetes.io/job-completion-index"
GROUP = "jobset.sigs.k8s.io"
PORT = 29500
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def jobset(trainjob: Json, runtime: Json, *, version: str) -> Json:
    """Give the JobSet of *trainjob*, as Trainer of this *version* (``"2.3"``) builds it."""
    meta, spec = trainjob["metadata"], trainjob["spec"]
    template = copied(runtime["spec"]["template"])
    template = _patched(template, spec.get(PATCHES.get(version, "runtimePatches")) or [], version)
    body = template["spec"]
    policy = runtime["spec"].get("mlPolicy") or {}
    trainer = spec.get("trainer")
    nodes = (trainer or {}).get("numNodes") or policy.get("numNodes") or 1
    for job in body["replicatedJobs"]:
        job.setdefault("replicas", 1)
        inner = job["template"].setdefault("spec", {})
        if job["template"].get("metadata", {}).get("labels", {}).get(STEP) == "trainer":
            inner.update(parallelism=nodes, completions=nodes)
            if trainer is not None:
                containers = inner["template"]["spec"]["containers"]
                inner["template"]["spec"]["containers"] = [
                    _trained(each, trainer, policy, meta["name"], nodes, version) if each["name"] == "node" else each
                    for each in containers
                ]
        inner.setdefault("parallelism", 1)
        inner.setdefault("completions", inner["parallelism"])
        inner.setdefault("completionMode", "Indexed")
        inner.setdefault("backoffLimit", 6)
        inner["template"]["spec"].setdefault("restartPolicy", "OnFailure")
    own = template.get("metadata") or {}
    return {
        "apiVersion": JOBSET.api_version,
        "kind": JOBSET.kind,
        "metadata": {
            "name": meta["name"],
            "labels": {**(runtime["metadata"].get("labels") or {}), **(own.get("labels") or {})},
            "annotations": own.get("annotations") or {},
            "ownerReferences": [owner(trainjob, TRAINJOB.api_version, TRAINJOB.kind)],
        },
        "spec": {**body, "suspend": bool(spec.get("suspend"))},
    }


def jobs(jobset: Json) -> Iterator[Json]:
    """Give the Jobs of *jobset*, each with its pod template labelled as JobSet does."""
    name, spec = jobset["metadata"]["name"], jobset["spec"]
    total = sum(job["replicas"] for job in spec["replicatedJobs"])
    number = 0
    for job in spec["replicatedJobs"]:
        for index in range(job["replicas"]):
            own = f"{name}-{job['name']}-{index}"
            labels = _labels(jobset, job, index=index, number=number, total=total, name=own)
            body = copied(job["template"]["spec"])
            pod = body["template"]
            meta = pod.get("metadata") or {}
            pod["metadata"] = {
                "labels": {**(meta.get("labels") or {}), **labels},
                "annotations": {**(meta.get("annotations") or {}), **labels},
            }
            pod["spec"].setdefault("subdomain", (spec.get("network") or {}).get("subdomain") or name)
            outer = job["template"].get("metadata") or {}
            yield {
                "apiVersion": JOB.api_version,
                "kind": JOB.kind,
                "metadata": {
                    "name": own,
                    "labels": {**(outer.get("labels") or {}), **labels},
                    "annotations": {**(outer.get("annotations") or {}), **labels},
                    "ownerReferences": [owner(jobset, JOBSET.api_version, JOBSET.kind)],
                },
                "spec": {**body, "suspend": spec["suspend"]},
            }
            number += 1


def pod(job: Json, index: int) -> Json:
    """Give a new pod of *job* for its completion *index*."""
    name = job["metadata"]["name"]
    template = copied(job["spec"]["template"])
    meta = template["metadata"]
    own = {
        "batch.kubernetes.io/job-name": name,
        "job-name": name,
        "batch.kubernetes.io/controller-uid": job["metadata"].get("uid", ""),
        "controller-uid": job["metadata"].get("uid", ""),
        INDEX: str(index),
    }
    host = f"{name}-{index}"
    number = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
    }
    for container in (*(template["spec"].get("initContainers") or []), *template["spec"]["containers"]):
        container["env"] = [*(container.get("env") or []), number]
    suffix = "".join(random.choices(_SUFFIX, k=5))  # noqa: S311 - a name, no secret
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "name": f"{host}-{suffix}",
            "labels": {**meta["labels"], **own},
            "annotations": {**meta["annotations"], INDEX: str(index)},
            "ownerReferences": [owner(job, JOB.api_version, JOB.kind)],
        },
        "spec": {**template["spec"], "hostname": host},
    }


def longest_name(jobset: Json) -> str:
    """Give a name as long as the longest that a pod of *jobset* gets."""
    names = [
        f"{jobset['metadata']['name']}-{job['name']}-{job['replicas'] - 1}"
        f"-{job['template']['spec']['completions'] - 1}-abcde"
        for job in jobset["spec"]["replicatedJobs"]
    ]
    return max(names, key=len)


def owner(obj: Json, api_version: str, kind: str) -> Json:
    """Give the reference by which *obj* owns another object."""
    meta = obj["metadata"]
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _labels(jobset: Json, job: Json, *, index: int, number: int, total: int, name: str) -> dict[str, str]:
    meta = jobset["metadata"]
    key = hashlib.sha1(f"{meta['namespace']}/{name}".encode(), usedforsecurity=False).hexdigest()
    values = {
        "jobset-name": meta["name"],
        "jobset-uid": meta["uid"],
        "replicatedjob-name": job["name"],
        "replicatedjob-replicas": job["replicas"],
        "global-replicas": total,
        "job-index": index,
        "job-key": key,
        "job-global-index": number,
        "group-name": job.get("groupName", "default"),
        "group-replicas": total,
        "job-group-index": number,
        "restart-attempt": (jobset.get("status") or {}).get("restarts", 0),
    }
    return {f"{GROUP}/{label}": str(value) for label, value in values.items()}


def _patched(template: Json, patches: Sequence[Json], version: str) -> Json:
    """Merge a TrainJob's patches over the runtime's JobSet template, in order."""
    for patch in patches:
        if version not in PATCHES:
            template = merged(template, patch.get("trainingRuntimeSpec", {}).get("template", {}))
            continue
        over = {"spec": _without_targets(patch)} if version == "2.0" else _without_targets(patch)
        targets = {target["name"] for target in patch.get("targetJobs", [])}
        for job in template["spec"]["replicatedJobs"]:
            if job["name"] in targets:
                job["template"]["spec"]["template"] = merged(job["template"]["spec"]["template"], over)
    return template


def _without_targets(patch: Mapping[str, Any]) -> Json:
    return {key: value for key, value in patch.items() if key != "targetJobs"}


def _trained(container: Json, trainer: Json, policy: Json, name: str, nodes: int, version: str) -> Json:
    """Give the training container with what ``spec.trainer`` says, and torch's environment in a torch runtime."""
    result = {**container, **{key: trainer[key] for key in ("image", "command", "args") if trainer.get(key)}}
    if asked := trainer.get("resourcesPerNode"):
        before = container.get("resources") or {}
        result["resources"] = merged(before, asked) if version == "2.3" else asked
    env = {each["name"]: each for each in (*(container.get("env") or []), *(trainer.get("env") or []))}
    if "torch" in policy:
        env |= {each["name"]: each for each in _torch(result, trainer, policy["torch"] or {}, name, nodes)}
    if env:
        result["env"] = list(env.values())
    return result


def _torch(container: Json, trainer: Json, policy: Json, name: str, nodes: int) -> Iterator[Json]:
    yield {"name": "PET_NNODES", "value": str(nodes)}
    yield {"name": "PET_NPROC_PER_NODE", "value": _processes(container, trainer, policy)}
    field = {"fieldPath": f"metadata.annotations['{INDEX}']"}
    yield {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": field}}
    if container.get("command") != ["tune", "run"]:
        yield {"name": "PET_MASTER_ADDR", "value": f"{name}-node-0-0.{name}"}
        yield {"name": "PET_MASTER_PORT", "value": str(PORT)}


def _processes(container: Json, trainer: Json, policy: Json) -> str:
    asked = trainer.get("numProcPerNode") or policy.get("numProcPerNode") or "auto"
    if asked != "auto":
        return str(asked)
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    if any("gpu" in resource for resource in amounts):
        return "auto"
    return str(max(1, math.ceil(quantity(amounts.get("cpu", 1)))))
