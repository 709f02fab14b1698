"""RayJobs in and out of a cluster: submitted whole or not at all, asked how they stand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.pods import prune
from nemo_run._kube.mounts import claim_of
from nemo_run._kube.resources import RAYCLUSTER, RAYJOB
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.core._masking import masked
from nemo_run.core.execution import _creation
from nemo_run.core.execution._endings import Endings, note, noted
from nemo_run.core.execution._raystate import JobPhase, job_endings, job_phase, readiness
from nemo_run.exceptions import ConfigError, KubeError, NotFound, Rejected
from nemo_run.run.ray import _clusters, _objects

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_NEWER = {
    "spec.preRunningDeadlineSeconds": ("pre_running_deadline_seconds", "1.6"),
}
"""Fields of ours that older releases of KubeRay do not know."""


def submit(
    api: KubeApi,
    body: Json,
    origins: Mapping[str, object],
    *,
    before: Callable[[], None],
    clock: Clock = SYSTEM_CLOCK,
    **how: Any,
) -> Json:
    """
    Create the RayJob that *body* says, and give it as stored.

    The server is asked first whether it would take it; then comes *before*,
    which copies files; then the RayJob. Whatever fails or is interrupted on the
    way, none is left behind.

    Raises:
        Conflict: another one has the name; it is left alone.
        KubeError: the server refused.
    """
    body = _objects.signed(body)
    _create(api, body, origins, dry_run=True, **how)
    before()
    with _objects.undone_on_failure(api, RAYJOB, body, clock):
        return _create(api, body, origins, **how)


def _create(api: KubeApi, body: Json, origins: Mapping[str, object], **how: Any) -> Json:
    hint = "stop it, or give this one another name"
    try:
        return _creation.create(api, RAYJOB, body, origins, state=lambda job: str(job_phase(job)), hint=hint, **how)
    except NotFound as error:
        raise _objects.installed(api, RAYJOB, error) from error
    except Rejected as error:
        if error.status == 404:
            raise _objects.installed(api, RAYJOB, error) from error
        for field, (argument, release) in _NEWER.items():
            if f'unknown field "{field}"' in error.message:
                raise ConfigError(
                    argument,
                    body["spec"][field.rpartition(".")[2]],
                    f"it needs KubeRay {release} or later on the server",
                ) from error
        raise


def check_cluster(api: KubeApi, namespace: str, name: str, layout: WorkdirLayout | None) -> None:
    """
    Make sure that the RayCluster *name* is there, and has the code's volume mounted.

    Raises:
        NotFound: it is not there.
        ConfigError: its head does not see what is copied to the volume.
    """
    cluster = api.get(RAYCLUSTER, namespace, name)
    if layout is None:
        return
    pod = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    claims = {volume["name"]: claim_of(volume) for volume in pod.get("volumes") or ()}
    for mount in pod["containers"][0].get("volumeMounts") or ():
        same_place = prune(_place(mount)) == prune(_place(layout.mount))
        if same_place and claims.get(mount["name"]) == claim_of(layout.volume):
            return
    raise ConfigError(
        "cluster_name",
        name,
        f"its head does not mount the workdir's volume as {dict(layout.mount)!r}; start the cluster from an executor"
        " with that workdir_volume_mount",
    )


def _place(mount: Mapping[str, Any]) -> Json:
    return {"mountPath": str(mount.get("mountPath") or "").rstrip("/"), "subPath": mount.get("subPath")}


def look(api: KubeApi, namespace: str, name: str) -> JobPhase:
    """
    Give where the RayJob is in its life and, if it failed, of what as far as its pods say.

    Raises:
        NotFound: it is not there.
    """
    job = api.get(RAYJOB, namespace, name)
    phase = job_phase(job)
    if job.get("status"):
        return replace(phase, endings=_endings_of(api, namespace, name, phase)) if phase.state == "FAILED" else phase
    # KubeRay up to 1.4 tells of an invalid RayJob by an event alone.
    text = _objects.refused(job, _objects.events_of(api, RAYJOB, namespace, name))
    if not text:
        return phase
    reason, _, message = text.partition(": ")
    return JobPhase("FAILED", True, phase.job_status, "ValidationFailed", reason, message)


def witness(api: KubeApi, namespace: str, last: Callable[[], JobPhase | None]) -> Endings:
    """
    Note how the containers of a RayJob end for as long as the ``with`` block lasts.

    The cluster may be gone as soon as the job has failed, and each retry has another one.

    Args:
        last: gives where the job was when somebody last looked.
    """

    def labels() -> str:
        phase = last()
        return _clusters.labels_of(phase.cluster) if phase and phase.cluster else ""

    return Endings(api, namespace, labels, job_endings)


def _endings_of(api: KubeApi, namespace: str, name: str, phase: JobPhase) -> str:
    """Say which container of which pod ended how, now or when somebody last looked; nothing where nobody saw it."""
    if not phase.cluster:
        return ""
    labels = _clusters.labels_of(phase.cluster)
    try:
        note(api, namespace, labels, _clusters.pods_of(api, namespace, phase.cluster), job_endings)
    except KubeError as error:
        logger.info("cannot look which containers of RayJob %s failed: %s", name, error)
    # A cluster that was there before has pods that ended before.
    return noted(api, namespace, labels, since=phase.started)


def waits_for(api: KubeApi, namespace: str, name: str, phase: JobPhase) -> str:
    """Say what a RayJob that does not run yet waits for, as far as anybody says."""
    if phase.ended or phase.state == "RUNNING":
        return ""
    try:
        if not phase.cluster:
            newest = [event for event in _objects.events_of(api, RAYJOB, namespace, name) if event["type"] == "Warning"]
            return f"{newest[-1].get('reason')}: {newest[-1].get('message')}" if newest else ""
        cluster = api.get(RAYCLUSTER, namespace, phase.cluster)
        seen = readiness(cluster, _clusters.pods_of(api, namespace, phase.cluster))
        return "" if seen.ready else str(seen)
    except KubeError as error:
        logger.info("cannot tell what RayJob %s waits for: %s", name, error)
        return ""


def runtime_env_text(given: Any, *, is_file: Callable[[str], bool], read: Callable[[str], str]) -> str | None:
    """
    Give a runtime environment as YAML: *given* is a path, YAML text, or a dict.

    Raises:
        ConfigError: it is no mapping.
    """
    if given is None or given == "" or given == {}:
        return None
    try:
        if isinstance(given, Mapping):
            text = yaml.safe_dump(dict(given), sort_keys=False, allow_unicode=True)
        else:
            text = read(str(given)) if "\n" not in str(given) and is_file(str(given)) else str(given)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError("runtime_env_yaml", masked(given), masked(f"it is no YAML: {error}")) from None
    if not isinstance(document, Mapping):
        raise ConfigError("runtime_env_yaml", masked(given), "there is no such file, and as YAML it is no mapping")
    return text
