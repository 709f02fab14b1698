"""The pods and the Service that KubeRay makes of a RayCluster."""

from __future__ import annotations

import math
from typing import Any

from nemo_run._kube.resources import POD, RAYCLUSTER
from nemo_run.testing._jobset import owner
from nemo_run.testing._kinds import SERVICE
from nemo_run.testing._kuberay_rules import release
from nemo_run.testing._networks import NAMES
from nemo_run.testing._podrules import quantity
from nemo_run.testing._store import copied

Json = dict[str, Any]

CLUSTER, TYPE, GROUP = "ray.io/cluster", "ray.io/node-type", "ray.io/group"
ORIGIN, ORIGIN_KIND = "ray.io/originated-from-cr-name", "ray.io/originated-from-crd"
OVERWRITE = "ray.io/overwrite-container-cmd"
NUMBER = "local-kube/node-number"
"""Tells workers apart: they have one network, so that each needs ports of its own."""
VERSION = "LOCAL_KUBE_RAY_VERSION"
DASHBOARD_PORT = 8265

_STEM = 50
_PORTS = {"client": 10001, "gcs-server": 6379, "dashboard": DASHBOARD_PORT, "metrics": 8080, "serve": 8000}
_AGENT_PORT, _METRICS_PORT = 52365, 8080
_WORKER_METRICS, _WORKER_PORTS, _PORTS_EACH = 53_000, 20_000, 200
_SHARED = ("image", "imagePullPolicy", "env", "volumeMounts", "securityContext")
"""What the init container of a worker has from the Ray container."""
_WAIT = (
    'until (exec 3<>"/dev/tcp/$FQ_RAY_IP/6379") 2>/dev/null; '
    "do echo 'Waiting for GCS to be ready.'; sleep 0.2; done; echo 'GCS is ready.'"
)


def head_pod(cluster: Json) -> Json:
    """Give the head's pod."""
    group = cluster["spec"]["headGroupSpec"]
    pod = _pod(cluster, group, "head", "headgroup", f"{cluster['metadata']['name'][:_STEM]}-head-")
    names = [service_name(cluster)]
    labels = cluster["metadata"].get("labels") or {}
    if labels.get(ORIGIN_KIND) == "RayJob":
        names.append(f"{labels[ORIGIN]}-head-svc")
    pod["metadata"]["annotations"][NAMES] = ",".join(names)
    container = pod["spec"]["containers"][0]
    params = {"dashboard-host": "0.0.0.0", **_params(group, number=0)}  # noqa: S104 - KubeRay's own
    _start(cluster, container, f"ray start --head {_flags(params)}")
    own = [("RAY_ADDRESS", "127.0.0.1:6379")]
    container["env"] = _env(cluster, container, own)
    dashboard = int(params.get("dashboard-port", DASHBOARD_PORT))
    _probe(container, params, {dashboard: "/api/gcs_healthz"})
    if cluster["spec"].get("enableInTreeAutoscaling"):
        pod["spec"]["serviceAccountName"] = cluster["metadata"]["name"]
        pod["spec"]["containers"].append(_autoscaler(cluster, container))
    return pod


def worker_pod(cluster: Json, group: Json, number: int, slot: tuple[int, int] | None = None) -> Json:
    """
    Give a pod of a worker group.

    Args:
        number: no other pod's of this cluster, from 1 on.
        slot: which replica's it is, and which of that one's hosts; KubeRay 1.6 and later tell it in labels.
    """
    stem = f"{cluster['metadata']['name']}-{group['groupName']}"[:_STEM]
    pod = _pod(cluster, group, "worker", group["groupName"], f"{stem}-worker-")
    pod["metadata"]["annotations"][NUMBER] = str(number)
    if slot is not None:
        pod["metadata"]["labels"] |= slot_labels(group, slot)
    container = pod["spec"]["containers"][0]
    name = _full_name(cluster)
    params = {"address": f"{name}:6379", **_params(group, number=number)}
    _start(cluster, container, f"ray start {_flags(params)}")
    own = [("FQ_RAY_IP", name), ("RAY_IP", service_name(cluster)), ("RAY_ADDRESS", f"{name}:6379")]
    container["env"] = _env(cluster, container, own)
    _probe(container, params, {})
    wait = {
        "name": "wait-gcs-ready",
        "command": ["/bin/bash", "-c", "--"],
        "args": [_WAIT],
        "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}},
        **{key: copied(container[key]) for key in _SHARED if key in container},
    }
    pod["spec"]["initContainers"] = [*(pod["spec"].get("initContainers") or []), wait]
    return pod


def slot_labels(group: Json, slot: tuple[int, int]) -> dict[str, str]:
    """Give the labels that tell a worker's replica and host."""
    replica, host = slot
    labels = {"ray.io/worker-group-replica-index": str(replica)}
    if group.get("numOfHosts", 1) > 1:
        name = f"{group['groupName']}-{replica}"
        labels |= {"ray.io/worker-group-replica-name": name, "ray.io/replica-host-index": str(host)}
    return labels


def head_service(cluster: Json) -> Json:
    """Give the Service in front of the head."""
    meta = cluster["metadata"]
    own = (cluster["spec"]["headGroupSpec"].get("headService") or {}).get("metadata") or {}
    labels = _labels(cluster, "head", "headgroup")
    selector = {CLUSTER: meta["name"], TYPE: "head"}
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": {
            "name": service_name(cluster),
            "labels": {**labels, **(own.get("labels") or {})},
            "annotations": own.get("annotations") or {},
            "ownerReferences": [owner(cluster, RAYCLUSTER.api_version, RAYCLUSTER.kind)],
        },
        "spec": {
            "type": cluster["spec"]["headGroupSpec"].get("serviceType") or "ClusterIP",
            "clusterIP": "None",
            "selector": selector,
            "ports": [
                {"name": name, "port": port, "targetPort": port, "protocol": "TCP", "appProtocol": "tcp"}
                for name, port in ports(cluster).items()
            ],
        },
    }


def service_name(cluster: Json) -> str:
    """Give the name of the Service in front of the head."""
    own = (cluster["spec"]["headGroupSpec"].get("headService") or {}).get("metadata") or {}
    return str(own.get("name") or f"{cluster['metadata']['name']}-head-svc")


def named(cluster: Json, version: str) -> Json:
    """
    Give *cluster* with the name that its head's Service has from KubeRay of this *version*.

    Up to 1.3 a long one loses its beginning (CheckName in KubeRay 1.3 util.go); later ones refuse long clusters.
    """
    name = service_name(cluster)
    own = (cluster["spec"]["headGroupSpec"].get("headService") or {}).get("metadata") or {}
    if release(version) >= (1, 4) or own.get("name"):
        return cluster
    kept = name[-_STEM:]
    if not kept[0].isalpha():
        kept = f"r{kept[1:]}"
    cluster = copied(cluster)
    cluster["spec"]["headGroupSpec"]["headService"] = {"metadata": {**own, "name": kept}}
    return cluster


def ports(cluster: Json) -> dict[str, int]:
    """Give the Service's ports: those that the head lists or, if it lists none, KubeRay's; and the metrics'."""
    listed = ray_container(cluster).get("ports") or []
    found = {port.get("name", ""): int(port["containerPort"]) for port in listed} if listed else dict(_PORTS)
    return {**found, "metrics": found.get("metrics", _PORTS["metrics"])}


def dashboard_url(cluster: Json) -> str | None:
    """Give the dashboard's address in the cluster; None if no port of the head has its name."""
    port = ports(cluster).get("dashboard")
    return None if port is None else f"{_full_name(cluster)}:{port}"


def ray_container(cluster: Json) -> Json:
    """Give the head's container in which Ray runs: the first."""
    found: Json = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    return found


def submitted_from(cluster: Json, container: Json) -> Json:
    """Give *container* as one whose ``ray`` is of the cluster's version."""
    version = cluster["spec"].get("rayVersion") or ""
    return {**container, "env": [*(container.get("env") or []), {"name": VERSION, "value": version}]}


def _full_name(cluster: Json) -> str:
    return f"{service_name(cluster)}.{cluster['metadata']['namespace']}.svc.cluster.local"


def _pod(cluster: Json, group: Json, kind: str, name: str, prefix: str) -> Json:
    template = copied(group["template"])
    meta = template.get("metadata") or {}
    volumes = template["spec"].setdefault("volumes", [])
    container = template["spec"]["containers"][0]
    if all(mount["mountPath"] != "/dev/shm" for mount in container.get("volumeMounts") or []):  # noqa: S108
        volumes.append({"name": "shared-mem", "emptyDir": {"medium": "Memory"}})
        mount = {"name": "shared-mem", "mountPath": "/dev/shm"}  # noqa: S108
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    if all(port.get("name") != "metrics" for port in container.get("ports") or []):
        metrics = {"name": "metrics", "containerPort": _METRICS_PORT, "protocol": "TCP"}
        container["ports"] = [*(container.get("ports") or []), metrics]
    return {
        "apiVersion": POD.api_version,
        "kind": POD.kind,
        "metadata": {
            "generateName": prefix,
            "labels": {
                **_labels(cluster, kind, name),
                **(meta.get("labels") or {}),
                **(group.get("labels") or {}),
                CLUSTER: cluster["metadata"]["name"],
                TYPE: kind,
                GROUP: name,
            },
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [owner(cluster, RAYCLUSTER.api_version, RAYCLUSTER.kind)],
        },
        "spec": template["spec"],
    }


def _labels(cluster: Json, kind: str, group: str) -> dict[str, str]:
    name = cluster["metadata"]["name"]
    return {
        CLUSTER: name,
        TYPE: kind,
        GROUP: group,
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{name}-{kind}"[-63:],
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }


def _params(group: Json, *, number: int) -> dict[str, str]:
    """
    Complete a group's ``rayStartParams`` for the head (0) or a worker.

    The pods of a cluster have one network here, so that a worker needs what no one else has: an address, on
    which drivers tell their own node from others, and ports, which have to lie outside of the head's range.
    """
    resources = group["template"]["spec"]["containers"][0].get("resources") or {}
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found = {
        "metrics-export-port": str(_WORKER_METRICS + number if number else _METRICS_PORT),
        "block": "true",
        "dashboard-agent-listen-port": str(_AGENT_PORT + number),
    }
    if number:
        first = _WORKER_PORTS + number * _PORTS_EACH
        found |= {
            "node-ip-address": f"127.0.0.{number + 1}",
            "min-worker-port": str(first),
            "max-worker-port": str(first + _PORTS_EACH - 1),
        }
    if cpu := limits.get("cpu", requests.get("cpu")):
        found["num-cpus"] = str(math.ceil(quantity(cpu)))
    if memory := limits.get("memory"):
        found["memory"] = str(int(quantity(memory)))
    if gpus := sum(int(quantity(amount)) for name, amount in limits.items() if name.endswith("gpu")):
        found["num-gpus"] = str(gpus)
    return {**found, **(group.get("rayStartParams") or {})}


def _flags(params: dict[str, str]) -> str:
    words = []
    for name, value in params.items():
        if value.lower() == "true" and name not in ("include-dashboard", "log-color"):
            words.append(f" --{name} ")
        elif value.lower() != "false" or name in ("include-dashboard", "log-color"):
            words.append(f" --{name}={value} ")
    return "".join(words)


def _start(cluster: Json, container: Json, start: str) -> None:
    """Have the container run its own command, and then Ray."""
    command = f"ulimit -n 65536; {start}"
    container["env"] = [*(container.get("env") or []), {"name": "KUBERAY_GEN_RAY_START_CMD", "value": start}]
    own = "".join(f" {word} " for word in (*(container.get("command") or []), *(container.get("args") or [])))
    overwritten = (cluster["metadata"].get("annotations") or {}).get(OVERWRITE) == "true"
    if overwritten or "ray start" in own:
        return
    container["command"] = ["/bin/bash", "-c", "--"]
    container["args"] = [f"{own} && {command}" if own else command]


def _env(cluster: Json, container: Json, own: list[tuple[str, str]]) -> list[Json]:
    """Give the container's environment with KubeRay's own, which nothing of the user's gives way to."""
    env: list[Json] = list(container.get("env") or [])
    known = {entry["name"] for entry in env}
    values = [
        ("RAY_CLUSTER_NAMESPACE", cluster["metadata"]["namespace"]),
        *own,
        ("RAY_PORT", "6379"),
        ("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
        (VERSION, cluster["spec"].get("rayVersion") or ""),
    ]
    fields = [
        ("RAY_CLUSTER_NAME", f"metadata.labels['{CLUSTER}']"),
        ("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        ("RAY_NODE_TYPE_NAME", f"metadata.labels['{GROUP}']"),
    ]
    env += [{"name": name, "value": value} for name, value in values if name not in known]
    env += [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields if name not in known
    ]
    return env


def _probe(container: Json, params: dict[str, str], more: dict[int, str]) -> None:
    """Have the pod count as ready once Ray answers, unless the user has a probe."""
    wanted = {int(params["dashboard-agent-listen-port"]): "/api/local_raylet_healthz", **more}
    request = r"printf 'GET %s HTTP/1.0\r\n\r\n' {path} >&3 && grep -q success <&3"
    looks = [f"exec 3<>/dev/tcp/127.0.0.1/{port} && {request.format(path=path)}" for port, path in wanted.items()]
    command = ["bash", "-c", " && ".join(looks)]
    container.setdefault("readinessProbe", {"exec": {"command": command}, "periodSeconds": 5, "failureThreshold": 10})


def _autoscaler(cluster: Json, ray: Json) -> Json:
    options = cluster["spec"].get("autoscalerOptions") or {}
    meta = cluster["metadata"]
    words = f"ray kuberay-autoscaler --cluster-name {meta['name']} --cluster-namespace {meta['namespace']}"
    return {
        "name": "autoscaler",
        "image": options.get("image") or ray["image"],
        "command": ["/bin/bash", "-c", "--"],
        "args": [words],
        "env": copied(options.get("env") or []),
        "volumeMounts": copied(options.get("volumeMounts") or []),
        "resources": options.get("resources")
        or {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}},
    }
