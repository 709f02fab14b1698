"""What the fields of a Kubernetes executor may hold, as far as that can be told without a cluster; no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from nemo_run._kube.manifests.pods import pull_secrets
from nemo_run._kube.names import check_namespace
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from nemo_run.core.execution.kubeflow import KubeflowExecutor

_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_QUANTITY = re.compile(rf"[+-]?{_NUMBER}([KMGTPE]i|[numkMGTPE]|[eE][+-]?{_NUMBER})?")
"""As the CRDs of Kubeflow Trainer and KubeRay have it (apimachinery ``resource.Quantity``)."""

_LISTS = ("volumes", "volume_mounts", "tolerations", "env_list")
_MAPPINGS = (
    "labels",
    "annotations",
    "pod_labels",
    "pod_annotations",
    "affinity",
    "env_vars",
    "extra_resource_requests",
    "extra_resource_limits",
    "pod_spec_overrides",
    "spec_kwargs",
    "container_kwargs",
    "data_mover",
)


def check_kubeflow(executor: KubeflowExecutor) -> None:
    """
    Check the fields that need no cluster to be seen to be wrong.

    Raises:
        ConfigError: names the field.
    """
    if not isinstance(executor.runtime_ref, str) or not executor.runtime_ref:
        raise ConfigError("runtime_ref", executor.runtime_ref, "write the name of a ClusterTrainingRuntime")
    check_namespace(executor.namespace)
    check_count("num_nodes", executor.num_nodes, least=1)
    if executor.nprocs_per_node is not None:
        check_count("nprocs_per_node", executor.nprocs_per_node, least=1)
    if executor.gpus_per_node is not None:
        check_count("gpus_per_node", executor.gpus_per_node, least=0)
    for field in ("cpu_requests", "memory_requests", "cpu_limits", "memory_limits"):
        check_quantity(field, getattr(executor, field))
    _check_all(executor, _LISTS, check_entries)
    _check_all(executor, _MAPPINGS, check_mapping)
    _check_all(executor, ("image_pull_secrets",), check_pull_secrets)
    for field in ("extra_resource_requests", "extra_resource_limits"):
        for name, amount in (getattr(executor, field) or {}).items():
            check_quantity(f"{field}[{name!r}]", amount)


def _check_all(executor: KubeflowExecutor, fields: tuple[str, ...], check: Callable[[str, Any], None]) -> None:
    for field in fields:
        # NeMo-Run takes None for nothing.
        if (value := getattr(executor, field)) is not None:
            check(field, value)


def check_count(argument: str, value: Any, *, least: int) -> None:
    """
    Check that *value* is an int of at least *least*.

    Raises:
        ConfigError: it is not.
    """
    # bool is an int, and nobody means it.
    if isinstance(value, bool) or not isinstance(value, int):
        hint = f", without quotes: {argument}={value}" if isinstance(value, str) and value.isdecimal() else ""
        raise ConfigError(argument, value, f"write a whole number{hint}")
    if value < least:
        raise ConfigError(argument, value, f"write {least} or more")


def check_quantity(argument: str, value: Any) -> None:
    """
    Check that *value* is an amount as Kubernetes writes it, a number, or nothing.

    Raises:
        ConfigError: it is not.
    """
    if value is None or value == "":
        return
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not _QUANTITY.fullmatch(str(value)):
        raise ConfigError(argument, value, "write an amount such as '8', '500m', '16Gi' or '16G'")


def check_entries(argument: str, value: Any) -> None:
    """
    Check that *value* is a list of dicts.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, (list, tuple)):
        raise ConfigError(argument, _shown(argument, value), "write a list, with one dict for each entry: [{…}, {…}]")
    for entry in value:
        if not isinstance(entry, Mapping):
            raise ConfigError(argument, _shown(argument, entry), "each entry of this list is a dict")


def check_pull_secrets(argument: str, value: Any) -> None:
    """
    Check that *value* is a list of secrets' names, or of references to secrets.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, (list, tuple)):
        raise ConfigError(argument, value, "write a list of names: ['…']")
    pull_secrets(value, argument=argument)


def check_mapping(argument: str, value: Any) -> None:
    """
    Check that *value* is a dict.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(argument, _shown(argument, value), "write a dict: {…: …}")


def _shown(argument: str, value: Any) -> Any:
    """Give what a message may show of a value: of an environment, which may hold secrets, its type."""
    return type(value).__name__ if argument.startswith("env") else value
