"""What submits a RayJob's entrypoint: a batch Job of one pod, or a container beside the head."""

from __future__ import annotations

import json
from typing import Any

import yaml

from nemo_run._kube.resources import POD, RAYJOB
from nemo_run.testing._errors import FieldError, invalid
from nemo_run.testing._jobset import owner
from nemo_run.testing._kinds import JOB
from nemo_run.testing._kuberay_pods import CLUSTER, ORIGIN, ORIGIN_KIND, ports, ray_container, submitted_from
from nemo_run.testing._networks import NETWORK
from nemo_run.testing._store import copied, random_suffix

Json = dict[str, Any]

CONTAINER = "ray-job-submitter"
_RESOURCES = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def job(rayjob: Json, cluster: Json) -> Json:
    """
    Give the batch Job that submits *rayjob* to *cluster*.

    Raises:
        ApiError: the API server would refuse it, as its pods would be restarted for ever.
    """
    spec, meta = rayjob["spec"], rayjob["metadata"]
    template = copied(spec.get("submitterPodTemplate") or {"spec": {"containers": [], "restartPolicy": "Never"}})
    pod = template["spec"]
    if not pod["containers"]:
        pod["containers"] = [_default(cluster)]
    container = pod["containers"][0] = submitted_from(cluster, pod["containers"][0])
    address = rayjob["status"]["dashboardURL"]
    if not container.get("command"):
        container["command"] = ["/bin/bash", "-ce", "--"]
        container["args"] = [script(rayjob, f"http://{address}", retried=True)]
    container["env"] += _environment(rayjob, address)
    if pod.get("restartPolicy", "Always") not in ("Never", "OnFailure"):
        allowed = 'Required value: valid values: "OnFailure", "Never"'
        raise invalid(JOB, meta["name"], [FieldError("spec.template.spec.restartPolicy", allowed)])
    labels = {ORIGIN: meta["name"], ORIGIN_KIND: RAYJOB.kind, "app.kubernetes.io/created-by": "kuberay-operator"}
    own = template.setdefault("metadata", {})
    own["labels"] = {**(own.get("labels") or {}), **labels}
    network = {NETWORK: f"{CLUSTER}={cluster['metadata']['name']}"}
    own["annotations"] = {**(own.get("annotations") or {}), **network}
    backoff = (spec.get("submitterConfig") or {}).get("backoffLimit", 2)
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": meta["name"],
            "labels": labels,
            "ownerReferences": [owner(rayjob, RAYJOB.api_version, RAYJOB.kind)],
        },
        "spec": {
            "backoffLimit": backoff,
            "completions": 1,
            "parallelism": 1,
            "completionMode": "NonIndexed",
            "template": template,
        },
    }


def pod(job: Json, index: int) -> Json:
    """Give a new pod of *job*; it has no *index*, but there is only one at a time."""
    name = job["metadata"]["name"]
    template = copied(job["spec"]["template"])
    uid = job["metadata"].get("uid", "")
    labels = {
        "batch.kubernetes.io/job-name": name,
        "job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "controller-uid": uid,
    }
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "name": f"{name}-{random_suffix()}",
            "labels": {**template["metadata"]["labels"], **labels},
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [owner(job, JOB.api_version, JOB.kind)],
        },
        "spec": template["spec"],
    }


def sidecar(rayjob: Json, cluster: Json) -> Json:
    """Give *cluster* with a submitter beside the head, whose pod is not restarted then."""
    cluster = copied(cluster)
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    port = ports(cluster).get("dashboard", 8265)
    address = f"http://127.0.0.1:{port}"
    container = submitted_from(cluster, _default(cluster))
    container["command"] = ["/bin/bash", "-ce", "--"]
    container["args"] = [script(rayjob, address, retried=False)]
    container["env"] += _environment(rayjob, address)
    head["containers"].append(container)
    head["restartPolicy"] = "Never"
    return cluster


def script(rayjob: Json, address: str, *, retried: bool) -> str:
    """
    Give what the submitter's shell runs, with the entrypoint pasted in as it is.

    Args:
        retried: look whether an earlier try has submitted the job already, and only follow it then.
    """
    spec, name = rayjob["spec"], rayjob["status"]["jobId"]
    host, _, port = address.removeprefix("http://").rpartition(":")
    words = ["until", f'(exec 3<>"/dev/tcp/{host}/{port}")', "2>/dev/null", ";", "do"]
    words += ["echo", f'"Waiting for Ray Dashboard GCS to become healthy at {address} ..."', ";"]
    words += ["sleep", "0.5", ";", "done", ";"]
    if retried:
        words += ["if", "!", "ray", "job", "status", "--address", address, name, ">/dev/null", "2>&1", ";", "then"]
    words += ["ray", "job", "submit", "--address", address, *(["--no-wait"] if retried else [])]
    if runtime_env := environment(rayjob):
        words += ["--runtime-env-json", _quoted(json.dumps(runtime_env, separators=(",", ":"), sort_keys=True))]
    if metadata := spec.get("metadata"):
        words += ["--metadata-json", _quoted(json.dumps(metadata, separators=(",", ":"), sort_keys=True))]
    words += ["--submission-id", name]
    for key in ("entrypointNumCpus", "entrypointNumGpus"):
        if spec.get(key):
            words += [f"--entrypoint-num-{key[-4:].lower()}", f"{spec[key]:f}"]
    if spec.get("entrypointResources"):
        words += ["--entrypoint-resources", _quoted(spec["entrypointResources"])]
    words += ["--", spec.get("entrypoint", "").strip(), ";"]
    if retried:
        words += ["fi", ";", "ray", "job", "logs", "--address", address, "--follow", name]
    return " ".join(words)


def environment(rayjob: Json) -> Json:
    """Give the runtime environment that ``runtimeEnvYAML`` asks for."""
    found: Json = yaml.safe_load(rayjob["spec"].get("runtimeEnvYAML") or "{}") or {}
    return found


def _default(cluster: Json) -> Json:
    return {"name": CONTAINER, "image": ray_container(cluster).get("image", ""), "resources": copied(_RESOURCES)}


def _environment(rayjob: Json, address: str) -> list[Json]:
    return [
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "RAY_DASHBOARD_ADDRESS", "value": address},
        {"name": "RAY_JOB_SUBMISSION_ID", "value": rayjob["status"]["jobId"]},
    ]


def _quoted(text: str) -> str:
    """Put *text* in double quotes as Go does; the shell still expands ``$`` and backticks in it."""
    return json.dumps(text, ensure_ascii=False)
