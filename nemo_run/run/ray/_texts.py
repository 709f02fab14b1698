"""What a user is told about Ray clusters and jobs, in words; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nemo_run.core.execution._raystate import JobPhase


def cluster_text(namespace: str, name: str, status: Mapping[str, Any], mounts: Iterable[str]) -> str:
    """Give how a RayCluster stands, and what can be done with it."""
    head = status.get("head") or {}
    facts = {
        "Namespace": namespace,
        "Name": name,
        "State": status.get("state") or "not ready",
        "Head IP": head.get("serviceIP") or "none yet",
        "Workers": f"{status.get('readyWorkerReplicas') or 0} of {status.get('desiredWorkerReplicas') or 0} ready",
        "Volumes at": ", ".join(mounts) or "none",
    }
    commands = (
        f"kubectl get rayclusters {name} -n {namespace}",
        f"kubectl get pods -n {namespace} -l ray.io/cluster={name}",
        f"kubectl port-forward -n {namespace} service/{head.get('serviceName') or f'{name}-head-svc'} 8265:8265",
        f"kubectl delete rayclusters {name} -n {namespace}",
    )
    return _text("Ray cluster (KubeRay)", facts, commands)


def job_text(namespace: str, name: str, phase: JobPhase, *, code_dir: str, waits_for: str) -> str:
    """Give how a RayJob stands, and what can be done with it."""
    facts = {
        "Namespace": namespace,
        "Name": name,
        "Job status": phase.job_status,
        "Deployment status": phase.deployment,
        "Reason": ": ".join(part for part in (phase.reason, phase.full_message) if part),
        "Waits for": waits_for,
        "Ray cluster": phase.cluster,
        "Code": code_dir,
    }
    commands = [
        f"kubectl logs -f -n {namespace} -l job-name={name} --tail=-1",
        f"kubectl get rayjob {name} -n {namespace}",
    ]
    if phase.cluster:
        commands.append(f"kubectl get pods -n {namespace} -l ray.io/cluster={phase.cluster}")
    return _text("Ray job (KubeRay)", facts, commands)


def _text(title: str, facts: Mapping[str, str], commands: Iterable[str]) -> str:
    shown = {label: value for label, value in facts.items() if value}
    width = max(map(len, shown))
    lines = [title, *(f"  {label + ':':<{width + 1}} {value}" for label, value in shown.items())]
    return "\n".join([*lines, "  Useful commands:", *(f"    {command}" for command in commands)])
