"""Ray jobs on LocalKube for tests: ``from raying import …``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nemo_run._kube.resources import POD
from nemo_run.core.execution.kuberay import KubeRayExecutor
from nemo_run.testing import LocalKube

WORK = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}


@contextmanager
def ray_kube(version: str = "1.7") -> Iterator[LocalKube]:
    """Run a LocalKube with KubeRay and the claim ``shared``."""
    with LocalKube(kuberay=version, images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        yield kube


def workdir_executor(**fields: Any) -> KubeRayExecutor:
    """Give an executor whose workdir is on the claim ``shared``."""
    return KubeRayExecutor(**{"volumes": [WORK], "workdir_volume_mount": MOUNT, **fields})


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Make a directory with *files*."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def listing(root: Path) -> dict[str, str]:
    """Give the files below *root*, without our own."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and ".nemo_run" not in path.parts)
    return {str(path.relative_to(root)): path.read_text() for path in found}


def created(kube: LocalKube, plural: str) -> list[str]:
    """Give the statuses with which creates of *plural* were answered."""
    return [r.status for r in kube.requests if r.method == "POST" and r.path.endswith(f"/{plural}")]


def movers(kube: LocalKube) -> list[str]:
    """Give the copy pods that there are."""
    pods = kube.do(lambda store: store.list(POD, "default"))
    return [pod["metadata"]["name"] for pod in pods if "data-mover" in pod["metadata"]["name"]]
