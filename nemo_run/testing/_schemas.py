"""The operators' schemas, read from the files that ship with the package."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from nemo_run._kube.resources import (
    CLUSTER_TRAINING_RUNTIME,
    POD,
    RAYCLUSTER,
    RAYJOB,
    TRAINING_RUNTIME,
    TRAINJOB,
    Resource,
)

Json = dict[str, Any]

TRAINER = {
    "2.0": ("v2.0.1", "v2.1.0"),
    "2.1": ("v2.1.0", "v2.1.0"),
    "2.2": ("v2.2.1", "v2.3.0"),
    "2.3": ("v2.3.0", "v2.3.0"),
}
"""By release: which files hold TrainJob's schema, and which the runtimes' (they hardly differ between releases)."""

KUBERAY = {"1.3": "v1.3.2", "1.5": "v1.5.2", "1.7": "v1.7.0"}

_TEMPLATE = ("spec", "template", "spec", "replicatedJobs", "[]", "template", "spec", "template", "spec")


def schemas(trainer: str, kuberay: str | None) -> Mapping[Resource, Json]:
    """
    Give the schema of each kind that is checked against one, core Pods included.

    Raises:
        ValueError: there are no schemas of such a release.
    """
    if trainer not in TRAINER:
        raise ValueError(f"trainer={trainer!r}: one of {', '.join(TRAINER)}")
    if kuberay is not None and kuberay not in KUBERAY:
        raise ValueError(f"kuberay={kuberay!r}: one of {', '.join(KUBERAY)}, or None")
    trainjobs, runtimes = TRAINER[trainer]
    runtime = _read(f"trainer_{runtimes}_clustertrainingruntimes")
    found = {
        TRAINJOB: _read(f"trainer_{trainjobs}_trainjobs"),
        CLUSTER_TRAINING_RUNTIME: runtime,
        TRAINING_RUNTIME: runtime,
        POD: _pod(runtime),
    }
    if kuberay is not None:
        found[RAYCLUSTER] = _read(f"kuberay_{KUBERAY[kuberay]}_rayclusters")
        found[RAYJOB] = _read(f"kuberay_{KUBERAY[kuberay]}_rayjobs")
    return found


@cache
def _read(name: str) -> Json:
    packed = (files("nemo_run.testing") / "schemas" / f"{name}.json.gz").read_bytes()
    schema: Json = json.loads(gzip.decompress(packed))
    return schema


def _pod(runtime: Json) -> Json:
    """Give a Pod's schema: its spec is the pod template's inside a runtime."""
    spec = runtime
    for step in _TEMPLATE:
        spec = spec["items"] if step == "[]" else spec["properties"][step]
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return {"type": "object", "properties": {**names, "spec": spec, "status": status}}
