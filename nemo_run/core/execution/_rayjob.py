"""RayJob manifests, pure: an executor's fields, a layout and a command in, a new dict out."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.fields import POD_SPEC, known_fields
from nemo_run._kube.manifests.pods import PodShape, label_map, literal, pod_spec, prune, string_map
from nemo_run._kube.mounts import Json
from nemo_run._kube.names import LABEL_MAX, RAYJOB_MAX, stable_label
from nemo_run._kube.resources import RAYJOB
from nemo_run.core._masking import masked
from nemo_run.core.execution._ray import raycluster
from nemo_run.core.execution._raypods import mover_shape
from nemo_run.core.execution._secrets import secret_values
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.core.execution.kuberay import KubeRayExecutor

SUBMITTER_CONTAINER = "ray-job-submitter"
"""KubeRay's own name for it (KubeRay 1.7 job.go)."""
COMMAND_ANNOTATION = "nemo-run/command"
CODE_ANNOTATION = "nemo-run/code-dir"
CLUSTER_LABEL = "ray.io/cluster"
NODE_LABEL = "ray.io/node-type"
GROUP_LABEL = "ray.io/group"

COMMAND_SHOWN = 4096
"""Characters of the command that the annotation shows: all annotations together may have 256 KiB."""
ENTRYPOINT_MAX = 120_000
"""Bytes of one argument that Linux takes (131072), less what the submitter adds."""

_EXPANDED = {"$": "NEMO_RUN_DOLLAR", "`": "NEMO_RUN_BACKTICK"}
"""The characters that a shell looks for in double quotes, and variables of the submitter that hold one each."""
_SHORTENED = LABEL_MAX - len("-raycluster-abcde-head-svc")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_SUBMITTER_RESOURCES = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""As KubeRay has them for its own submitter (KubeRay 1.7 job.go)."""


@dataclass(frozen=True, kw_only=True)
class RayJobSpec:
    """What a RayJob is to be, beside what its executor says."""

    name: str
    command: str
    """Shell text, as `shell_text` gives it."""
    layout: WorkdirLayout | None = None
    synced: bool = False
    """Whether files are copied to the volume, so that the command lies in one of them."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime_env: str | None = None
    """YAML."""
    pre_ray_start_commands: Sequence[str] = ()
    cluster_name: str | None = None
    """An existing RayCluster, in place of one of the job's own."""
    secrets: Sequence[str] = ()
    """Values that the annotation must not show."""


def rayjob(executor: KubeRayExecutor, job: RayJobSpec) -> Json:
    """
    Give the RayJob's manifest.

    Raises:
        ConfigError: the fields contradict each other, or what Kubernetes or KubeRay can do.
    """
    annotations = {
        **string_map(executor.annotations, argument="annotations"),
        COMMAND_ANNOTATION: _shown(job),
        **({CODE_ANNOTATION: str(job.layout.code_dir)} if job.layout else {}),
        **job.annotations,
    }
    metadata = prune(
        {
            "name": job_label(job.name),
            "namespace": executor.namespace,
            "labels": {**label_map(executor.labels, argument="labels"), **job.labels},
            "annotations": annotations,
        }
    )
    spec = {
        "entrypoint": entrypoint(job),
        **_cluster(executor, job),
        **prune(
            {
                "runtimeEnvYAML": job.runtime_env and unexpanded(job.runtime_env),
                "activeDeadlineSeconds": executor.active_deadline_seconds,
                "preRunningDeadlineSeconds": executor.pre_running_deadline_seconds,
            }
        ),
        "submitterPodTemplate": submitter(executor, runtime_env=job.runtime_env),
    }
    return {"apiVersion": RAYJOB.api_version, "kind": RAYJOB.kind, "metadata": metadata, "spec": spec}


def _shown(job: RayJobSpec) -> str:
    """Give the command as anybody may see it, cut where a word ends: half a secret would not be known as one."""
    text = masked(job.command, secrets=job.secrets)
    if len(text) <= COMMAND_SHOWN:
        return text
    whole = text[:COMMAND_SHOWN].rsplit(maxsplit=1)
    return f"{whole[0] if len(whole) > 1 else ''} …".lstrip()


def job_label(name: str) -> str:
    """
    Give the name of a RayJob that is to be called *name*, shortened if KubeRay would refuse it.

    A shortened one is shorter than it might be: KubeRay up to 1.3 appends
    ``-raycluster-``, five letters and ``-head-svc``, and makes a Service of that.
    """
    label = stable_label(name, limit=RAYJOB_MAX)
    return label if label == name else stable_label(name, limit=_SHORTENED)


def _cluster(executor: KubeRayExecutor, job: RayJobSpec) -> Json:
    """Say where the job runs: on a cluster of its own, or one that is there and stays there (KubeRay validation.go)."""
    if job.cluster_name:
        for argument, given in (
            ("retries", executor.retries),
            ("ttl_seconds_after_finished", executor.ttl_seconds_after_finished),
            ("pre_ray_start_commands", list(job.pre_ray_start_commands)),
        ):
            if given:
                raise ConfigError(argument, given, f"RayCluster {job.cluster_name!r} is there already; leave it out")
        return {"clusterSelector": {CLUSTER_LABEL: job.cluster_name}}
    body = raycluster(executor, job.name, job.layout, pre_ray_start_commands=job.pre_ray_start_commands)
    ends = prune(
        {"backoffLimit": executor.retries or None, "ttlSecondsAfterFinished": executor.ttl_seconds_after_finished}
    )
    return {"rayClusterSpec": body["spec"], "shutdownAfterJobFinishes": True, **ends}


def unexpanded(runtime_env: str) -> str:
    """
    Give a runtime environment, which is YAML, such that Ray gets it as it is.

    KubeRay writes it as JSON and in double quotes into what the submitter's bash
    runs (``strconv.Quote`` in KubeRay 1.7 job.go), so that bash expands ``$`` and
    backticks, and before that the kubelet ``$(NAME)`` and ``$$``. A backslash of
    ours is doubled on the way and stops neither. What bash puts in for a variable
    it leaves alone: so each such character becomes one.
    """
    if not any(character in runtime_env for character in _EXPANDED):
        return runtime_env
    import yaml

    document = yaml.compose(runtime_env, Loader=yaml.SafeLoader)
    _protect(document, set())
    return str(yaml.serialize(document, Dumper=yaml.SafeDumper, allow_unicode=True))


def _protect(node: Any, done: set[int]) -> None:
    """Replace the characters in all texts below *node*, keys included, but those of an alias only once."""
    if id(node) in done:
        return
    done.add(id(node))
    if isinstance(node.value, str):
        node.value = _put_in(node.value)
    else:
        for each in node.value:
            for part in each if isinstance(each, tuple) else (each,):
                _protect(part, done)


def _put_in(text: str) -> str:
    return re.sub("[$`]", lambda match: f"${{{_EXPANDED[match[0]]}}}", text)


def runtime_env_secrets(runtime_env: str | None) -> list[str]:
    """Give the values of a runtime environment's variables whose names say that they are secret, in all their forms."""
    if not runtime_env:
        return []
    import yaml

    variables = (yaml.safe_load(runtime_env) or {}).get("env_vars")
    if not isinstance(variables, Mapping):
        return []
    said = [{"name": str(name), "value": str(value)} for name, value in variables.items() if value is not None]
    sent = [{**entry, "value": _put_in(entry["value"])} for entry in said]
    return secret_values([("runtime_env_yaml", said), ("runtime_env_yaml", sent)])


def submitter(executor: KubeRayExecutor, *, runtime_env: str | None = None) -> Json:
    """
    Give the template of the pod that submits the job.

    Without one KubeRay's own has neither pull secrets nor tolerations nor a
    service account; with one it adds no restart policy, and a Job needs it.

    Args:
        runtime_env: the job's runtime environment; the pod has the variables that `unexpanded` makes of it.

    Raises:
        ConfigError: ``submitter`` has a field that no pod spec has.
    """
    shape = mover_shape(executor)
    own = PodShape(
        tolerations=shape.tolerations,
        image_pull_secrets=shape.image_pull_secrets,
        service_account=shape.service_account,
        security_context=shape.security_context,
    )
    container = {"name": SUBMITTER_CONTAINER, "image": executor.image, "resources": _SUBMITTER_RESOURCES}
    theirs, _ = known_fields(executor.submitter, POD_SPEC, argument="submitter", strict=True)
    spec = pod_spec({"restartPolicy": "Never", **own.spec(), "containers": [container]}, theirs)
    held = [
        {"name": variable, "value": literal(character)}
        for character, variable in _EXPANDED.items()
        if character in (runtime_env or "")
    ]
    if held:
        first = spec["containers"][0]
        spec["containers"][0] = {**first, "env": [*(first.get("env") or ()), *held]}
    return {"spec": spec}


def shell_text(command: str | Sequence[str]) -> str:
    """
    Give *command* as shell text: text as it is, an argv list with each part quoted.

    Raises:
        ConfigError: there is none, or it holds what no process can be given.
    """
    if not isinstance(command, str | Sequence):
        raise ConfigError("command", command, "write shell text, or a list of arguments")
    text = command if isinstance(command, str) else shlex.join(str(part) for part in command)
    if not text.strip():
        raise ConfigError("command", command, "write what is to run")
    if "\0" in text:
        raise ConfigError("command", command, "remove the NUL character")
    return text


def runner_path(job: RayJobSpec) -> PurePosixPath:
    """Give where below the code directory the file lies that holds the command."""
    return PurePosixPath(".nemo_run") / f"{job_label(job.name)}.sh"


def runner_text(job: RayJobSpec) -> str:
    """
    Give the file that runs the command on the head.

    It starts in the Ray container's working directory, which is the code
    directory; a cluster that was there before may have another.
    """
    lines = ["#!/bin/bash"]
    if job.cluster_name and job.layout and job.synced:
        lines.append(f"cd {shlex.quote(str(job.layout.code_dir))} || exit 1")
    return "\n".join([*lines, job.command, ""])


def entrypoint(job: RayJobSpec) -> str:
    """
    Give the entrypoint, such that the command reaches the head as one unit and unchanged.

    KubeRay pastes it into the submitter's bash, and ``ray job submit`` joins the
    words again, up to Ray 2.43 in double quotes, in which bash expands again: so
    it holds no character that either would touch.

    Raises:
        ConfigError: the command is too long to travel in the manifest.
    """
    if job.layout is not None and job.synced:
        path = str(job.layout.code_dir / runner_path(job))
        if _PLAIN.fullmatch(path):
            return f"bash {path}"
        return _encoded(f"exec bash {shlex.quote(path)}\n")
    # The command does not get the rest of this text as its input.
    text = _carried(job.command)
    if len(text) > ENTRYPOINT_MAX:
        raise ConfigError(
            "command",
            f"{job.command[:60]}…",
            f"{len(job.command)} characters are too many to travel in the manifest; start with workdir=…, so that it is"
            " copied to the volume",
        )
    return text


def fits(command: str) -> bool:
    """Tell whether *command* is short enough to travel in the manifest."""
    return len(_carried(command)) <= ENTRYPOINT_MAX


def _carried(command: str) -> str:
    return _encoded(f"exec bash -c {shlex.quote(command)} </dev/null\n")


def _encoded(text: str) -> str:
    code = base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()
    return f"bash -c 'echo {code}|base64 -d|bash'"


def origins(executor: KubeRayExecutor, *, prefix: str = "spec") -> dict[str, str]:
    """Give what to call the fields that a user passed through, by the path that the API server names."""
    found: dict[str, str] = {}
    groups = enumerate(executor.worker_groups)
    places = [f"{prefix}.headGroupSpec", *(f"{prefix}.workerGroupSpecs[{number}]" for number, _ in groups)]
    for place in places:
        spec = f"{place}.template.spec"
        found |= {f"{spec}.{name}": f"spec_kwargs[{name!r}]" for name in _spelled(executor.spec_kwargs)}
        ray = f"{spec}.containers[0]"
        found |= {f"{ray}.{name}": f"container_kwargs[{name!r}]" for name in _spelled(executor.container_kwargs)}
    for number, group in enumerate(executor.worker_groups):
        spec = f"{prefix}.workerGroupSpecs[{number}].template.spec"
        found |= {f"{spec}.{name}": f"{group.group_name}.pod_spec[{name!r}]" for name in group.pod_spec}
    found |= {
        f"{prefix}.autoscalerOptions.{name}": f"autoscaler_options[{name!r}]"
        for name in executor.autoscaler_options or ()
    }
    return found


def _spelled(fields: Mapping[str, Any]) -> list[str]:
    """Give the names as Kubernetes spells them; those that we set ourselves are ours."""
    names = (re.sub(r"_([a-z])", lambda match: match[1].upper(), name) for name in fields)
    return [name for name in names if name not in ("containers", "volumes", "volumeMounts", "env", "name", "image")]
