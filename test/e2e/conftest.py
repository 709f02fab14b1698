"""
Jobs that really run: on LocalKube always, and with ``--kubeconfig FILE`` on the cluster that it names.

A real cluster needs Kubeflow Trainer, the namespace ``--namespace``, in it the claim ``shared``, and for
``--image`` one that has python and bash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import nemo_run as run
from nemo_run.testing import LocalKube

CODE = Path(__file__).parent / "code"
VOLUMES = [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}]


@dataclass
class Outcome:
    """What is left of a job when it has ended."""

    status: str
    directory: Path
    log: str

    @property
    def probes(self) -> list[dict[str, Any]]:
        """What each process of the job said of itself."""
        return [json.loads(line.split("PROBE ", 1)[1]) for line in self.log.splitlines() if "PROBE " in line]

    @property
    def probe(self) -> dict[str, Any]:
        (only,) = self.probes
        return only


@dataclass
class Cluster:
    """Where the jobs of a test run."""

    defaults: dict[str, Any]
    kube: LocalKube | None = None
    claim: Path | None = None
    titles: list[str] = field(default_factory=list)

    def executor(self, **fields: Any) -> run.KubeflowExecutor:
        mount = {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}
        packager = run.PatternPackager(include_pattern=str(CODE / "probe.py"), relative_path=str(CODE))
        given = {"volumes": VOLUMES, "workdir_volume_mount": mount, "packager": packager, **fields}
        return run.KubeflowExecutor(**self.defaults, **given)

    def run(self, executor: run.KubeflowExecutor, script: run.Script | None = None, name: str = "probe") -> Outcome:
        """Run a job to its end through the public entrance, and read what it left."""
        title = f"{name}-{uuid4().hex[:6]}"
        self.titles.append(title)
        script = script or run.Script(path="probe.py", entrypoint="python")
        run.run(script, executor=executor, name=title)
        (record,) = run.Experiment.from_title(title).status(return_dict=True).values()
        directory = Path(record["local_dir"])
        log = directory / "log-allranks_0.out"
        return Outcome(str(record["status"]), directory, log.read_text() if log.exists() else "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "every_dialect" in metafunc.fixturenames:
        metafunc.parametrize("trainer", ["2.1", "2.2", "2.3"])


@pytest.fixture
def trainer() -> str:
    return "2.3"


@pytest.fixture
def every_dialect(trainer: str) -> str:
    """Run the test once for each release of Kubeflow Trainer."""
    return trainer


@pytest.fixture
def cluster(request: pytest.FixtureRequest, trainer: str) -> Iterator[Cluster]:
    if path := request.config.getoption("--kubeconfig"):
        option = request.config.getoption
        yield Cluster({"kubeconfig": path, "namespace": option("--namespace"), "image": option("--image")})
        return
    with LocalKube(trainer=trainer, images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        namespace = f"e2e-{uuid4().hex[:6]}"
        yield Cluster({"namespace": namespace, "image": "python:3.12"}, kube, kube.claim("shared", namespace))


@pytest.fixture
def local(cluster: Cluster) -> Cluster:
    """A cluster whose volumes and requests the test may look at."""
    if cluster.kube is None:
        pytest.skip("looks at LocalKube itself")
    return cluster
