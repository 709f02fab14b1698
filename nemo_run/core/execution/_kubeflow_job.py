"""From a KubeflowExecutor's fields to what is sent: layout, environment, launch script, manifest. All of it pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from nemo_run._kube.layout import WorkdirLayout, merged_mounts, merged_volumes
from nemo_run._kube.manifests.pods import literal, merge_named, pull_secrets, resources, string_map
from nemo_run._kube.names import label_value
from nemo_run.core.execution import _env, _ownership, _passthrough, _secrets, _trainjob
from nemo_run.core.execution._checks import check_kubeflow
from nemo_run.core.execution._script import ARGUMENT_MAX, Workdir, check_start, is_utf8, launch_script, size_of
from nemo_run.core.execution._workdir import JOB_SUBPATH
from nemo_run.core.execution.base import current_user
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.core.execution._passthrough import Dialect, Json, Origin, Placed
    from nemo_run.core.execution.kubeflow import KubeflowExecutor


@dataclass(frozen=True)
class Built:
    """A manifest, where its pass-through fields came from, and what the user should be told about them."""

    manifest: Json
    own: Json
    """The manifest without what was passed through."""
    origins: dict[str, Origin]
    """By the path that the API server would name."""
    notes: tuple[str, ...]


def layout(executor: KubeflowExecutor, local_dir: str | None = None) -> WorkdirLayout | None:
    """Work out where on which volume the job's code lies; None without a workdir."""
    check_kubeflow(executor)
    local = local_dir or executor.workdir_local_path
    return WorkdirLayout.resolve(
        volumes=executor.volumes or (),
        volume_mounts=executor.volume_mounts or (),
        workdir_volume_mount=executor.workdir_volume_mount,
        code_subpath=executor.code_subpath,
        default_subpath=JOB_SUBPATH,
        values={
            "user": current_user(),
            "experiment_id": executor.experiment_id,
            "job_name": executor.job_name or None,
            "workdir": Path(local).absolute().name if local else None,
        },
        workdir_pvc=executor.workdir_pvc,
        workdir_pvc_path=executor.workdir_pvc_path,
    )


def environment(executor: KubeflowExecutor, *, passed: bool = True) -> _env.Environment:
    """Merge the executor's variables, the task's, ``env_list``, and (with *passed*) those passed through by name."""
    layers = [*_own_env(executor), *(_passed_env(executor) if passed else ())]
    return _env.environment(layers, reserved=_env.RESERVED if "torch" in executor.runtime_ref else ())


def _own_env(executor: KubeflowExecutor) -> list[_env.Layer]:
    return [
        ("env_vars", executor.env_vars),
        ("Script.env", executor._task_env),
        ("env_list", executor.env_list),
    ]


def _passed_env(executor: KubeflowExecutor) -> list[_env.Layer]:
    trainer = (executor.spec_kwargs or {}).get("trainer")
    return [
        ("spec_kwargs['trainer']['env']", trainer.get("env") if isinstance(trainer, Mapping) else None),
        ("container_kwargs['env']", (executor.container_kwargs or {}).get("env")),
    ]


def script(executor: KubeflowExecutor, command: Sequence[str], *, max_retries: int, sent: frozenset[str]) -> str:
    """Give the text of ``launch.sh``; *sent* is what lies below the code directory."""
    env = environment(executor)
    exports = env.exports
    check_start(command, env.variables())
    if (place := layout(executor)) is None:
        return _carried(executor, command, exports, max_retries)
    workdir = Workdir(
        code_dir=place.code_dir,
        mount_paths=[PurePosixPath(mount["mountPath"]) for mount in place.mounts(executor.volume_mounts or ())],
        sent=sent,
        local=_local_names(executor.workdir_local_path),
    )
    return launch_script(command, exports=exports, max_retries=max_retries, workdir=workdir)


def _carried(
    executor: KubeflowExecutor, command: Sequence[str], exports: Sequence[_env.Export], max_retries: int
) -> str:
    """Give the text of a launch script that one argument of the container holds, as there is no workdir."""
    files = executor._task_files
    for text in (*command, *files.values()):
        if not is_utf8(text):
            hint = (
                "holds bytes that are not UTF-8, which no manifest can; set workdir_volume_mount, so that it is copied"
            )
            raise ConfigError("task", f"{text[:60]!a}", hint)
    # Before the launch script, which says of one argument what is true of all.
    _check_size(command, sum(map(size_of, (*command, *files.values()))))
    text = launch_script(command, exports=exports, max_retries=max_retries, files=files)
    _check_size(command, size_of(text))
    return text


def _check_size(command: Sequence[str], size: int) -> None:
    if size > ARGUMENT_MAX:
        raise ConfigError(
            "task",
            f"{' '.join(command)[:60]}…",
            f"without a workdir it travels inside the manifest, where {size} bytes are too many (Linux takes"
            f" {ARGUMENT_MAX}); set workdir_volume_mount, so that it is copied to the volume",
        )


def built(executor: KubeflowExecutor, name: str, command: Sequence[str], dialect: Dialect) -> Built:
    """
    Give the TrainJob *name* that runs *command* on each node.

    Raises:
        ConfigError: a field is wrong, or contradicts another.
    """
    extra = _passthrough.placed(
        dialect,
        {
            "spec_kwargs": executor.spec_kwargs,
            "container_kwargs": executor.container_kwargs,
            "pod_spec_overrides": executor.pod_spec_overrides,
        },
    )
    extra.trainer.pop("env", None)
    origins = {_trainjob.path_of(origin, dialect): origin for origin in extra.origins}
    notes = tuple(extra.notes)
    whole = _trainjob.manifest(_trainjob_of(executor, name, command, environment(executor), extra), dialect)
    if not origins:
        return Built(whole, whole, origins, notes)
    own = _trainjob_of(executor, name, command, environment(executor, passed=False), _passthrough.Placed())
    return Built(whole, _trainjob.manifest(own, dialect), origins, notes)


def _trainjob_of(
    executor: KubeflowExecutor, name: str, command: Sequence[str], env: _env.Environment, extra: Placed
) -> _trainjob.TrainJob:
    check_start((), env.variables())
    place = layout(executor)
    mounts = [*(executor.volume_mounts or ()), *_taken_mounts(extra, executor.container_name)]
    volumes = merge_named(merged_volumes(executor.volumes or ()), extra.pod.pop("volumes", None) or ())
    return _trainjob.TrainJob(
        name=name,
        namespace=executor.namespace,
        labels={**_labels(executor.labels or {}, "labels"), **own_labels(executor)},
        annotations=string_map(executor.annotations or {}, argument="annotations"),
        runtime=executor.runtime_ref,
        trainer={
            "numNodes": executor.nnodes(),
            "numProcPerNode": executor.nproc_per_node(),
            "image": executor.image,
            "command": _command(executor, place, env, command),
            "env": env.container,
            "resourcesPerNode": _resources(executor),
        },
        pod={
            "volumes": place.volumes(volumes) if place else merged_volumes(volumes),
            "imagePullSecrets": pull_secrets(executor.image_pull_secrets or ()),
            "tolerations": executor.tolerations,
            "affinity": executor.affinity,
        },
        mounts=place.mounts(mounts) if place else merged_mounts(mounts),
        pod_labels=_labels(executor.pod_labels or {}, "pod_labels"),
        pod_annotations=string_map(executor.pod_annotations or {}, argument="pod_annotations"),
        container=executor.container_name,
        placed=extra,
    )


def own_labels(executor: KubeflowExecutor) -> dict[str, str]:
    """Give the labels that find this executor's jobs again."""
    return _ownership.own_labels(executor.experiment_id, executor.job_name)


def secret_values(executor: KubeflowExecutor) -> list[str]:
    """Give the values of variables whose names say that they are secret."""
    return _secrets.secret_values([*_own_env(executor), *_passed_env(executor)])


def _labels(labels: dict[str, Any], argument: str) -> dict[str, str]:
    texts = string_map(labels, argument=argument)
    for key, value in texts.items():
        if label_value(value) != value:
            raise ConfigError(
                f"{argument}[{key!r}]",
                value,
                "a label's value has at most 63 letters, digits, '-', '_', '.', with a letter or digit at both ends;"
                f" write for example {label_value(value)!r}, or use annotations",
            )
    return texts


def _command(
    executor: KubeflowExecutor, place: WorkdirLayout | None, env: _env.Environment, command: Sequence[str]
) -> list[str]:
    """Give the container's command: what runs the synced launch script, else one that carries it along."""
    if place and len(command) == 2 and command[1] == str(place.launch_script):
        return [literal(part) for part in command]
    text = _carried(executor, command, env.exports, executor.retries)
    return ["/bin/bash", "-c", literal(text), "launch.sh"]


def _resources(executor: KubeflowExecutor) -> Json:
    return resources(
        cpu_requests=executor.cpu_requests,
        memory_requests=executor.memory_requests,
        cpu_limits=executor.cpu_limits,
        memory_limits=executor.memory_limits,
        gpus=executor.gpus_per_node,
        gpu_resource=executor.gpu_resource,
        extra_requests=executor.extra_resource_requests,
        extra_limits=executor.extra_resource_limits,
    )


def _taken_mounts(extra: Placed, container: str) -> list[Json]:
    """Take the training container's mounts out of *extra*, to be merged with all others; check those of others."""
    mounts = list(extra.container.pop("volumeMounts", None) or ())
    for kind in ("containers", "initContainers"):
        others = []
        for entry in extra.pod.get(kind) or ():
            if isinstance(entry, Mapping) and (given := entry.get("volumeMounts")):
                if kind == "containers" and entry.get("name") == container:
                    mounts += given
                    entry = {key: value for key, value in entry.items() if key != "volumeMounts"}
                else:
                    argument = f"pod_spec_overrides[{kind!r}]"
                    entry = {**entry, "volumeMounts": merged_mounts(given, argument=argument)}
            others.append(entry)
        if others:
            extra.pod[kind] = others
    return mounts


def _local_names(local: str | None) -> list[str]:
    """Give what the user may call the local directory in arguments."""
    if not local:
        return []
    names = {local.rstrip("/"), str(Path(local).absolute())}
    return sorted(name for name in names if name not in ("", ".", "/"))
