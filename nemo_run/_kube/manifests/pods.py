"""Parts of pods that every builder needs, and merging of what a user wrote into them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nemo_run._kube.manifests.env import literal, literal_env, merge_env
from nemo_run._kube.mounts import Json, merged_volumes
from nemo_run._kube.names import LABEL_MAX, label_value
from nemo_run.exceptions import ConfigError

__all__ = [
    "PodShape",
    "json_merge",
    "label_map",
    "literal",
    "literal_env",
    "merge_env",
    "merge_named",
    "pod_spec",
    "prune",
    "pull_secrets",
    "resources",
    "string_map",
]

_NAMED_LISTS = ("containers", "initContainers", "imagePullSecrets")


@dataclass(frozen=True)
class PodShape:
    """Where a pod may run and as whom: what a copy pod takes over from the workload it copies for."""

    tolerations: Sequence[Mapping[str, Any]] = ()
    affinity: Mapping[str, Any] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    image_pull_secrets: Sequence[str | Mapping[str, Any]] = ()
    """Names of secrets, or references as a pod spec has them."""
    service_account: str | None = None
    security_context: Mapping[str, Any] = field(default_factory=dict)
    """The pod's, not a container's."""

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> PodShape:
        """Read the shape off a pod spec as Kubernetes writes it."""
        return cls().updated(spec)

    def updated(self, spec: Mapping[str, Any]) -> PodShape:
        """Give a shape in which what the pod spec *spec* says replaces what was said."""
        spec = copy.deepcopy(dict(spec))
        said: Json = {
            "tolerations": spec.get("tolerations"),
            "affinity": spec.get("affinity"),
            "node_selector": spec.get("nodeSelector"),
            "image_pull_secrets": [_secret_name(entry) for entry in spec.get("imagePullSecrets") or ()],
            "service_account": spec.get("serviceAccountName"),
            "security_context": spec.get("securityContext"),
        }
        return replace(self, **prune(said))

    def spec(self) -> Json:
        """Give the fields of a pod spec that say this."""
        return prune(
            {
                "tolerations": [dict(entry) for entry in self.tolerations],
                "affinity": dict(self.affinity),
                "nodeSelector": dict(self.node_selector),
                "imagePullSecrets": pull_secrets(self.image_pull_secrets),
                "serviceAccountName": self.service_account,
                "securityContext": dict(self.security_context),
            }
        )


def pull_secrets(entries: Iterable[Any], *, argument: str = "imagePullSecrets") -> list[Json]:
    """
    Give references to pull secrets, for names of secrets and for references alike.

    Raises:
        ConfigError: an entry is neither.
    """
    return [{"name": _secret_name(entry, argument)} for entry in entries]


def _secret_name(entry: Any, argument: str = "imagePullSecrets") -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else entry
    if not isinstance(name, str) or not name:
        raise ConfigError(argument, entry, "each entry is {'name': <secret>} or the secret's name")
    return name


def prune(fields: Mapping[str, Any]) -> Json:
    """Give a new dict without the fields that say nothing (None, empty text, list or dict); 0 and False stay."""
    return {key: copy.deepcopy(value) for key, value in fields.items() if value not in (None, "", [], {}, ())}


def json_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """Give *base* with *patch* merged over it as RFC 7386 says: None removes, dicts merge, all else replaces."""
    merged = copy.deepcopy(dict(base))
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            below = merged.get(key)
            merged[key] = json_merge(below if isinstance(below, Mapping) else {}, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def merge_named(base: Iterable[Mapping[str, Any]], patch: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Give the entries of *base*, each with the entry of the same ``name`` in *patch* merged over it, then the rest."""
    merged = {entry["name"]: copy.deepcopy(dict(entry)) for entry in base}
    for entry in patch:
        merged[entry["name"]] = json_merge(merged.get(entry["name"], {}), entry)
    return list(merged.values())


def pod_spec(base: Mapping[str, Any], *patches: Mapping[str, Any]) -> Json:
    """
    Give the pod spec *base* with what a user wrote merged over it; None removes.

    Containers, volumes and pull secrets are joined by name, since a list that
    replaces ours would drop the container that does the work.

    Raises:
        ConfigError: an entry of such a list has no name, two volumes share one, or the containers are to be removed.
    """
    spec = copy.deepcopy(dict(base))
    for patch in patches:
        if patch.get("containers", ()) is None:
            raise ConfigError("containers", None, "the container that does the work cannot be removed")
        named = {key: patch[key] for key in _NAMED_LISTS if patch.get(key) is not None}
        volumes = patch.get("volumes") or ()
        joined = {*named, "volumes"} if volumes else set(named)
        spec = json_merge(spec, {key: value for key, value in patch.items() if key not in joined})
        for key, entries in named.items():
            spec[key] = merge_named(spec.get(key, ()), (_named_entry(key, entry) for entry in entries))
        if volumes:
            spec["volumes"] = merged_volumes([*spec.get("volumes", ()), *volumes])
    return spec


def _named_entry(key: str, entry: Any) -> Mapping[str, Any]:
    if key == "imagePullSecrets":
        return {"name": _secret_name(entry)}
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ConfigError(key, entry, "each entry needs a 'name'")
    return entry


def resources(
    *,
    cpu_requests: Any = None,
    memory_requests: Any = None,
    cpu_limits: Any = None,
    memory_limits: Any = None,
    gpus: int | None = None,
    gpu_resource: str = "nvidia.com/gpu",
    extra_requests: Mapping[str, Any] | None = None,
    extra_limits: Mapping[str, Any] | None = None,
) -> Json:
    """Give a container's resources, all of them text; GPUs are asked for and limited alike, as Kubernetes wants."""
    accelerators = {gpu_resource: gpus or None}
    asked = {"cpu": cpu_requests, "memory": memory_requests, **accelerators, **(extra_requests or {})}
    limits = {"cpu": cpu_limits, "memory": memory_limits, **accelerators, **(extra_limits or {})}
    return prune({"requests": _quantities(asked), "limits": _quantities(limits)})


def _quantities(amounts: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items() if amount not in (None, "")}


def string_map(values: Mapping[str, Any], *, argument: str) -> dict[str, str]:
    """
    Give labels, annotations or the like with text values: numbers and booleans are written out, None is left out.

    Raises:
        ConfigError: a value that is no scalar.
    """
    return {key: _text(value, f"{argument}[{key!r}]") for key, value in values.items() if value is not None}


def label_map(labels: Mapping[str, Any], *, argument: str) -> dict[str, str]:
    """
    Give labels with text values, as `string_map` does.

    Raises:
        ConfigError: a value that Kubernetes refuses as a label's.
    """
    texts = string_map(labels, argument=argument)
    for key, text in texts.items():
        if (allowed := label_value(text)) != text:
            raise ConfigError(
                f"{argument}[{key!r}]",
                text,
                f"a label's value has at most {LABEL_MAX} letters, digits, '-', '_' and '.', and begins and ends with"
                f" a letter or digit; write {allowed!r}, or make it an annotation",
            )
    return texts


def _text(value: Any, argument: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise ConfigError(argument, value, "write a text; Kubernetes takes nothing else here")
    return str(value)
