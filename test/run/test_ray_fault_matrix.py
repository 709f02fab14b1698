"""
Everything that can go wrong, at every step of work on KubeRay: what comes of it stands in one table.

After each cell the same holds: no copy pod, no half-made job or cluster and no temporary file is left,
nobody else's object was touched, and asked again the real state is given.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.faulty import SAYS, Front, Point, cells, struck
from raying import WORK, workdir_executor

from nemo_run._kube.api import connect
from nemo_run._kube.resources import EVENT, POD, RAYCLUSTER, RAYJOB
from nemo_run._kube.waiting import SILENCE, SYSTEM_CLOCK
from nemo_run.core.execution.kuberay import KubeRayExecutor
from nemo_run.exceptions import (
    Conflict,
    NotAuthorized,
    NotFound,
    Rejected,
    ServerError,
    TransferError,
    Unreachable,
)
from nemo_run.run.ray.kuberay import KubeRayCluster, KubeRayJob
from nemo_run.testing import LocalKube, Pod

LINES = [f"line {number} {'.' * 100}" for number in range(40)]
CODE = "print('x')\n" * 20_000
HELD = "kueue.x-k8s.io/multikueue"
"""Who manages an object that nobody here brings forward: it gets no status and no pods."""

OUTCOMES: dict[str, type[Exception]] = {
    "A": NotAuthorized,
    "C": Conflict,
    "N": NotFound,
    "R": Rejected,
    "S": ServerError,
    "T": TransferError,
    "U": Unreachable,
}
"""Errors by their letter. ``ok``: it worked; ``gap``: it did, and says what it has not; ``gone``: nothing was to do."""

# What is refused for an object's sake is no answer to those who only look; their cells stay empty.
TABLE = """
401             | A  | A  | A  | A  | A  | A  | A  | ok | A   | ok  | A    | A
403 rights      | A  | A  | A  | A  | A  | A  | A  | ok | A   | ok  | A    | A
403 PodSecurity | R  | R  |    |    | R  | R  |    |    |     |     |      |
403 quota       | R  | R  |    |    | R  | R  |    |    |     |     |      |
403 webhook     | R  | R  | R  | R  | R  | R  |    |    |     |     | R    | R
404             | N  | R  | R  | R  | N  | N  | R  | ok | ok  | ok  | R    | R
404 gone        |    | N  | N  | N  |    |    | N  | ok | ok  | ok  | gone | N
409 ours        | ok | ok |    |    | ok | ok |    |    |     |     | ok   |
409 foreign     |    | C  |    |    | C  |    |    |    |     |     |      |
410             | S  | S  | ok | ok | S  | S  | S  | ok | ok  | ok  | S    | S
422             | R  | R  | R  | R  | R  | R  |    |    |     |     | R    |
429             | ok | ok | ok | ok | ok | ok | ok | ok | ok  | ok  | ok   | ok
500             | ok | ok | ok | ok | ok | ok | ok | ok | ok  | ok  | ok   | ok
503             | ok | ok | ok | ok | ok | ok | ok | ok | ok  | ok  | ok   | ok
503 for long    | S  | S  | T  | T  | S  | S  | S  | ok | gap | gap | S    | S
reset           | ok | ok | ok | ok | ok | ok | ok | ok | ok  | ok  | ok   | ok
TLS             | U  | U  | ok | ok | U  | U  | U  | ok | ok  | ok  | U    | U
slow            | ok | ok | ok | ok | ok | ok | ok | ok | ok  | ok  | ok   | ok
silent          | ok | ok | ok | ok | ok | ok | ok | ok | ok  | ok  | ok   | ok
"""


@dataclass
class Cell:
    """One fault at one step, in a namespace of its own."""

    kube: LocalKube
    namespace: str
    code: Path
    given: Any = None
    """What the step gave back."""

    @property
    def job(self) -> KubeRayJob:
        volumes = [{**WORK, "persistentVolumeClaim": {"claimName": "shared"}}]
        return KubeRayJob(name="m", executor=workdir_executor(namespace=self.namespace, volumes=volumes))

    @property
    def cluster(self) -> KubeRayCluster:
        executor = KubeRayExecutor(namespace=self.namespace, spec_kwargs={"managedBy": HELD})
        return KubeRayCluster(name="m", executor=executor)

    def every(self, kind: Any) -> list[dict[str, Any]]:
        return self.kube.do(lambda store: store.list(kind, self.namespace))

    def of(self, kind: Any) -> list[dict[str, Any]]:
        """Give the objects that there are and that are not somebody else's."""
        return [obj for obj in self.every(kind) if obj["metadata"].get("labels", {}).get("not") != "ours"]


@dataclass(frozen=True)
class Step:
    """What is done, where that meets the cluster, and what holds once it worked."""

    point: Point
    act: Callable[[Cell], Any]
    worked: Callable[[Cell], Any]
    prepare: Callable[[Cell], Any] = lambda cell: None
    starts: bool = False
    """Whether nothing may be there if it failed."""


def start(cell: Cell) -> None:
    cell.job.start(command="true", workdir=str(cell.code))


def submit(cell: Cell) -> None:
    cell.job.start(command="true")


def sent(cell: Cell) -> None:
    (file,) = cell.kube.claim("shared", cell.namespace).rglob("code.py")
    assert file.read_text() == CODE
    created(cell)


def created(cell: Cell) -> None:
    assert len(cell.of(RAYJOB)) == 1


def clustered(cell: Cell) -> None:
    assert len(cell.of(RAYCLUSTER)) == 1


def hold(cell: Cell) -> None:
    """Have a job without a status; an event says what it waits for."""
    job = cell.job
    with contextlib.redirect_stdout(io.StringIO()):
        body = job.start(command="true", dryrun=True)
    body["spec"]["managedBy"] = HELD
    stored = connect().create(RAYJOB, cell.namespace, body)
    cell.kube.do(lambda store: store.event(stored, "FailedToCreateRayCluster", "no room"))


def ask(cell: Cell) -> None:
    cell.given = cell.job.status(display=True)


def told(cell: Cell) -> None:
    assert cell.given == cell.job.status(display=False)


def follow(cell: Cell) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        live_job().logs(follow=True, timeout=3600)
    cell.given = out.getvalue()


def all_lines(cell: Cell) -> None:
    assert [line for line in cell.given.splitlines() if line.startswith("line ")] == LINES


def stopped(cell: Cell) -> None:
    assert cell.of(RAYJOB) == []


def live_job() -> KubeRayJob:
    return KubeRayJob(name="live", executor=KubeRayExecutor(namespace="live"))


def live_cluster() -> KubeRayCluster:
    return KubeRayCluster(name="live", executor=KubeRayExecutor(namespace="live"))


def forward(cell: Cell) -> None:
    way = live_cluster().port_forward(0, 8265)
    try:
        cell.given = asked(way.port)
    finally:
        way.stop_forwarding()


def asked(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/jobs/", timeout=60) as answer:
        return json.loads(answer.read())


def reached(cell: Cell) -> None:
    assert cell.given == []


STEPS = {
    "dry run": Step(Point("POST */rayjobs?*dryRun=All*", RAYJOB), submit, created, starts=True),
    "copy pod": Step(Point("POST */pods?*", POD), start, sent, starts=True),
    "probe": Step(Point("GET */exec?*nemo-run-probe*", POD, "exec"), start, sent, starts=True),
    "transfer": Step(
        Point("GET */exec?*mkdir -p*", POD, "exec", skip=1, breaks_after=50_000), start, sent, starts=True
    ),
    "create": Step(
        Point("POST */rayjobs?fieldValidation=Strict", RAYJOB),
        submit,
        created,
        starts=True,
    ),
    "cluster": Step(
        Point("POST */rayclusters?fieldValidation=Strict", RAYCLUSTER),
        lambda cell: cell.cluster.create(),
        clustered,
        starts=True,
    ),
    "status": Step(Point("GET */rayjobs/*", RAYJOB), ask, told, hold),
    "events": Step(Point("GET */events?*", EVENT), ask, told, hold),
    "log open": Step(Point("GET */log?*", POD), follow, all_lines),
    "log": Step(Point("GET */log?*", POD, "log", breaks_after=2_000), follow, all_lines),
    "stop": Step(Point("DELETE */rayjobs/*", RAYJOB), lambda cell: cell.job.stop(), stopped, hold),
    "forward": Step(Point("GET */portforward?*", POD), forward, reached),
}
EXPECTED = {cell: outcome for cell, outcome in cells(TABLE, list(STEPS)).items() if outcome}
LIVE = ("log open", "log", "forward")


@pytest.fixture(scope="module")
def kube() -> Iterator[LocalKube]:
    """A cluster with a RayCluster that runs and a job that has ended and wrote `LINES`; no other head starts."""
    with (
        pytest.MonkeyPatch.context() as patch,
        LocalKube(kuberay="1.7", images={"alpine*": "busybox"}, claims=["shared"]) as kube,
    ):
        live_cluster().create()
        job = live_job()
        job.start(command=["printf", "%s\\n", *LINES])
        with contextlib.redirect_stdout(io.StringIO()):
            job.follow_logs_until_completion(poll_interval=1, delete_on_finish=False)
        live_cluster().wait_until_running(timeout=3600)
        patch.setattr(SYSTEM_CLOCK, "pace", 10.0)
        with kube.fault(Pod("ray.io/node-type=head", "Unschedulable")):
            yield kube


@pytest.fixture(scope="module")
def front(kube: LocalKube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with Front(kube, tmp_path_factory.mktemp("front")) as front:
        yield front


@pytest.fixture
def cell(request, kube, tmp_path, monkeypatch) -> Cell:
    """A namespace, a directory of code and one for temporary files."""
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(kube.kubeconfig))
    temporary, code = tmp_path / "tmp", tmp_path / "code"
    for directory in (temporary, code):
        directory.mkdir()
    (code / "code.py").write_text(CODE)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    step = request.node.callspec.params["step"]
    namespace = "live" if step in LIVE else f"n{next(_NUMBERS)}"
    kube.namespace(namespace)
    return Cell(kube, namespace, code)


_NUMBERS = itertools.count()


@pytest.mark.parametrize(("fault", "step"), EXPECTED)
def test_what_comes_of_it(cell, front, tmp_path, monkeypatch, fault, step):
    do, outcome = STEPS[step], EXPECTED[fault, step]
    do.prepare(cell)
    with monkeypatch.context() as patch:
        if fault == "TLS":
            patch.setenv("NEMO_RUN_LOCAL_KUBE", str(front.kubeconfig))
        if fault == "silent":
            for name in ("answer", "handshake", "log", "command"):
                patch.setattr(SILENCE, name, 1.0)
        with struck(cell.kube, fault, do.point, namespace=cell.namespace, front=front):
            if kind := OUTCOMES.get(outcome):
                with pytest.raises(kind) as raised:
                    do.act(cell)
                if not (kind is NotFound and fault.startswith("404")):
                    assert SAYS[fault].removeprefix("another one ") in str(raised.value)
            else:
                do.act(cell)
    if outcome == "ok":
        do.worked(cell)
    elif outcome == "gap":
        assert "lines may be missing" in cell.given
    elif do.starts:
        assert (cell.of(RAYJOB), cell.of(RAYCLUSTER)) == ([], [])
    if fault == "409 foreign":
        foreign = [POD, RAYJOB] if step == "copy pod" else [RAYJOB]
        assert len([obj for kind in foreign for obj in cell.every(kind)]) == 1
    assert [pod for pod in cell.of(POD) if "data-mover" in pod["metadata"]["name"]] == []
    assert [path.name for path in (tmp_path / "tmp").iterdir() if not path.name.startswith("nemo_run-")] == []
