"""The copy pod: it mounts the workdir as the workload does, and waits for tar over exec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.pods import PodShape, json_merge, pod_spec, prune
from nemo_run._kube.mounts import Json
from nemo_run._kube.resources import POD

MOVER_CONTAINER = "mover"

LIFETIME_SECONDS = 3600
"""How long a copy pod may live beyond the time it has to start, should nobody be left to delete it."""

_NO_SIDECAR_LABELS = {"sidecar.istio.io/inject": "false"}
_NO_SIDECAR_ANNOTATIONS = {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"}

_RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}


def mover_pod(
    name: str,
    *,
    namespace: str,
    image: str,
    layout: WorkdirLayout,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    shape: PodShape | None = None,
    overrides: Mapping[str, Any] | None = None,
    timeout: int = 600,
    restricted: bool = False,
) -> Json:
    """
    Give the copy pod's manifest.

    A sidecar would keep the pod from ending and sees none of the traffic, so
    none is let in.

    Args:
        timeout: seconds that the pod has to start.
        overrides: merged over the pod's spec; None removes.
        restricted: satisfy PodSecurity's "restricted" level, where *overrides* leave it.
    """
    spec = _spec(image, layout, shape or PodShape(), timeout)
    spec = pod_spec(_restricted(spec) if restricted else spec, overrides or {})
    # An alarm clock longer than the pod's own deadline: the deadline names itself as the reason, an exit does not.
    spec["containers"][0].setdefault("command", _idle(spec.get("activeDeadlineSeconds")))
    metadata: Json = {
        "name": name,
        "namespace": namespace,
        "labels": {**(labels or {}), **_NO_SIDECAR_LABELS},
        "annotations": {**(annotations or {}), **_NO_SIDECAR_ANNOTATIONS},
    }
    return {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": metadata, "spec": spec}


def _spec(image: str, layout: WorkdirLayout, shape: PodShape, timeout: int) -> Json:
    container: Json = {
        "name": MOVER_CONTAINER,
        "image": image,
        "resources": _RESOURCES,
        "volumeMounts": [layout.mover_mount],
    }
    return prune(
        {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "activeDeadlineSeconds": timeout + LIFETIME_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            **shape.spec(),
            "containers": [container],
            "volumes": [dict(layout.volume)],
        }
    )


def _idle(deadline: Any) -> list[str]:
    seconds = deadline if isinstance(deadline, int) else 7 * 86400
    # sh as PID 1 ignores TERM unless it traps it; a plain sleep takes the whole grace period to delete.
    return ["sh", "-c", f"trap 'exit 0' TERM; sleep {seconds + 60} & wait"]


def _restricted(spec: Json) -> Json:
    """Give *spec* as PodSecurity's "restricted" level wants it, keeping the workload's user where that is not root."""
    context = spec.get("securityContext", {})
    container = json_merge(
        spec["containers"][0],
        {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}},
    )
    patch = {
        "runAsNonRoot": True,
        "runAsUser": context.get("runAsUser") or 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {**json_merge(spec, {"securityContext": patch}), "containers": [container]}
