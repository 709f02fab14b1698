"""
Everything that can go wrong, at every step of a job on Kubeflow Trainer: what comes of it stands in one table.

After each cell the same holds: nothing is left of what failed, and asked again the job's real state is given.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.faulty import FAULTS, SAYS, Front, Point, cells, struck

import nemo_run as run
from nemo_run._kube.resources import EVENT, POD, TRAINJOB
from nemo_run._kube.waiting import SILENCE, SYSTEM_CLOCK
from nemo_run.exceptions import (
    Conflict,
    KubeError,
    NemoRunError,
    NotAuthorized,
    NotFound,
    Rejected,
    ServerError,
    TransferError,
    Unreachable,
)
from nemo_run.run.job import AppState
from nemo_run.testing import LocalKube

LINES = [f"line {number} {'.' * 100}" for number in range(40)]
CODE = "print('x')\n" * 20_000
WORK = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "work", "mountPath": "/nemo_run"}
HELD = {"managedBy": "kueue.x-k8s.io/multikueue", "suspend": False}
"""A job that nobody here brings forward: it has no status and no pods."""

#                dry run | copy pod | probe | out | back | create | status | events | log open | log | cancel | delete
TABLE = """
401             | A  | A  | A  | A  | A  | A  | kept | said | A  | ok | told | told
403 rights      | A  | A  | A  | A  | A  | A  | kept | said | A  | ok | told | told
403 PodSecurity | -p | R  | -p | -p | -p | -p | -p   | -p   | -p | -p | -p   | -p
403 quota       | R  | R  | -q | -q | -q | R  | -q   | -q   | -q | -q | -q   | -q
403 webhook     | R  | R  | R  | R  | R  | R  | -w   | -w   | -w | -w | -w   | told
404             | R  | R  | R  | R  | R  | R  | kept | said | ok | ok | told | told
404 gone        | N  | N  | N  | N  | N  | N  | -g   | -g   | ok | ok | -g   | -g
409 ours        | ok | ok | -n | -n | -n | ok | -n   | -n   | -n | -n | -n   | ok
409 foreign     | ok | C  | -n | -n | -n | C  | -n   | -n   | -n | -n | -n   | ok
410             | S  | S  | ok | ok | ok | S? | kept | said | ok | ok | told | told
422             | R  | R  | R  | R  | R  | R  | kept | said | ok | ok | told | told
429             | ok | ok | ok | ok | ok | ok | ok   | ok   | ok | ok | ok   | ok
500             | ok | ok | ok | ok | ok | ok | ok   | ok   | ok | ok | ok   | ok
503             | ok | ok | ok | ok | ok | ok | ok   | ok   | ok | ok | ok   | ok
503 for long    | S  | S  | T  | T  | T  | S? | kept | said | -l | -l | told | told
reset           | ok | ok | ok | ok | ok | ok | ok   | ok   | ok | ok | ok   | ok
TLS             | U  | U  | ok | ok | ok | U? | kept | said | ok | ok | told | told
slow            | ok | ok | ok | ok | ok | ok | ok   | ok   | ok | ok | ok   | ok
silent          | ok | ok | ok | ok | ok | ok | ok   | ok   | ok | ok | ok   | ok
"""

ERRORS = {
    "A": NotAuthorized,
    "R": Rejected,
    "N": NotFound,
    "C": Conflict,
    "S": ServerError,
    "U": Unreachable,
    "T": TransferError,
}
"""With a ``?`` nobody can tell whether the job was created: its record stays until it can be told."""

OUTCOMES = {
    "ok": "what was asked for is done, once",
    "kept": "the state seen last stands, and a warning says why",
    "said": "the state is right; a line says that reasons are not shown",
    "told": "the error is shown, and nothing has changed",
}

NOT_APPLICABLE = {
    "-p": "PodSecurity looks at pods that are created",
    "-q": "a quota counts what is created",
    "-w": "no webhook is asked about reads",
    "-g": "what is not found is gone, and that is no fault",
    "-n": "nothing that has a name is created or deleted",
    "-l": "who follows a log waits for as long as it takes",
}


@pytest.fixture(scope="module")
def kube() -> Iterator[LocalKube]:
    with pytest.MonkeyPatch.context() as patch, LocalKube(images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        patch.setattr(SYSTEM_CLOCK, "pace", 10.0)
        yield kube


@pytest.fixture(scope="module")
def front(kube: LocalKube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with Front(kube, tmp_path_factory.mktemp("front")) as front:
        yield front


@pytest.fixture(scope="module")
def talker(kube: LocalKube) -> str:
    """The name of a job in the namespace ``logs`` that has ended and wrote `LINES`."""
    executor = run.KubeflowExecutor(image="python:3.12", namespace="logs")
    name, _ = executor.launch("talker", ["printf", "%s\\n", *LINES])
    list(executor.fetch_logs(name, stream=True))
    return name


@dataclass
class Cell:
    """One fault at one step, in a namespace and with directories of its own."""

    kube: LocalKube
    namespace: str
    home: Path
    results: Path
    talker: str = ""
    name: str = "train"
    given: Any = None
    """What the step gave back."""

    def executor(self, **fields: Any) -> run.KubeflowExecutor:
        return run.KubeflowExecutor(image="python:3.12", namespace=self.namespace, **fields)

    def with_workdir(self) -> run.KubeflowExecutor:
        local = self.home.parent / "local"
        local.mkdir(exist_ok=True)
        (local / "code.py").write_text(CODE)
        return self.executor(
            volumes=[WORK], workdir_volume_mount=MOUNT, workdir_local_path=str(local), spec_kwargs={"suspend": True}
        )

    def launch(self, executor: run.KubeflowExecutor) -> None:
        run.run(run.Script(inline="true"), executor=executor, name=self.name, detach=True)

    def experiment(self) -> run.Experiment:
        return run.Experiment.from_title(self.name)

    def status(self) -> Any:
        (facts,) = self.experiment().status(return_dict=True).values()
        return facts["status"]

    def jobs(self) -> list[dict[str, Any]]:
        return self.kube.do(lambda store: store.list(TRAINJOB, self.namespace))

    def pods(self) -> list[dict[str, Any]]:
        return self.kube.do(lambda store: store.list(POD, self.namespace))

    def records(self) -> dict[str, Any]:
        path = self.home / ".kubeflow_jobs.json"
        return json.loads(path.read_text()) if path.exists() else {}


@dataclass(frozen=True)
class Step:
    """What is done, where that meets the cluster, and what holds once it worked."""

    point: Point
    act: Callable[[Cell], Any]
    worked: Callable[[Cell], Any]
    prepare: Callable[[Cell], Any] = lambda cell: None


def launched(cell: Cell) -> None:
    (job,) = cell.jobs()
    (record,) = cell.records().values()
    assert record["uid"] == job["metadata"]["uid"]


def sent(cell: Cell) -> None:
    launched(cell)
    (file,) = cell.kube.claim("shared", cell.namespace).rglob("code.py")
    assert file.read_text() == CODE


def put_results(cell: Cell) -> None:
    cell.given = cell.with_workdir()
    cell.given.assign("exp_1", str(cell.home.parent / "exp"), "train", "train")
    place = cell.kube.claim("shared", cell.namespace) / Path(cell.given.code_dir).relative_to("/nemo_run")
    (place / "out").mkdir(parents=True)
    (place / "out" / "result.bin").write_bytes(b"\0" * 200_000)
    cell.results.mkdir()
    (cell.results / "mine.txt").write_text("mine")


def got_results(cell: Cell) -> None:
    assert (cell.results / "out" / "result.bin").read_bytes() == b"\0" * 200_000


def cancelled(cell: Cell) -> None:
    assert [job for job in cell.jobs() if is_ours(job)] == []
    assert cell.status() == AppState.CANCELLED


def read(cell: Cell) -> None:
    cell.given = list(run.KubeflowExecutor(namespace="logs").fetch_logs(cell.talker, stream=True))


def all_lines(cell: Cell) -> None:
    assert cell.given == LINES


def launch_with_workdir(cell: Cell) -> None:
    cell.launch(cell.with_workdir())


def launch_held(cell: Cell) -> None:
    cell.launch(cell.executor(spec_kwargs=HELD))
    (job,) = cell.jobs()
    cell.kube.do(lambda store: store.event(job, "TrainJobResourcesCreationFailed", "no room"))


def ask(cell: Cell) -> None:
    cell.given = cell.status()


def cancel(cell: Cell) -> None:
    cell.experiment().cancel("train")


def right_state(cell: Cell) -> None:
    assert cell.given == AppState.SUBMITTED


def right_reason(cell: Cell) -> None:
    right_state(cell)
    (record,) = cell.records().values()
    assert "no room" in record["reason"]


STEPS = {
    "dry run": Step(Point("POST */trainjobs?*dryRun=All*", TRAINJOB), launch_with_workdir, sent),
    "copy pod": Step(Point("POST */pods?*", POD), launch_with_workdir, sent),
    "probe": Step(Point("GET */exec?*nemo-run-probe*", POD, "exec"), launch_with_workdir, sent),
    "out": Step(Point("GET */exec?*head -c*", POD, "exec", skip=1, breaks_after=50_000), launch_with_workdir, sent),
    "back": Step(
        Point("GET */exec?*tar*", POD, "exec", breaks_after=50_000),
        lambda cell: cell.given.pull_results("train", str(cell.results)),
        got_results,
        put_results,
    ),
    "create": Step(
        Point("POST */trainjobs?fieldValidation=Strict", TRAINJOB),
        lambda cell: cell.launch(cell.executor(spec_kwargs=HELD)),
        launched,
    ),
    "status": Step(Point("GET */trainjobs*", TRAINJOB), ask, right_state, launch_held),
    "events": Step(Point("GET */events*", EVENT), ask, right_reason, launch_held),
    "log open": Step(Point("GET */log?*", POD), read, all_lines),
    "log": Step(Point("GET */log?*", POD, "log", breaks_after=2_000), read, all_lines),
    "cancel": Step(Point("GET */trainjobs/*", TRAINJOB), cancel, cancelled, launch_held),
    "delete": Step(Point("DELETE */trainjobs/*", TRAINJOB), cancel, cancelled, launch_held),
}

CELLS = cells(TABLE, list(STEPS))
APPLICABLE = {cell: outcome for cell, outcome in CELLS.items() if outcome not in NOT_APPLICABLE}


def test_the_table_says_what_is_to_come_of_every_fault_at_every_step() -> None:
    assert set(CELLS) == {(fault, step) for fault in FAULTS for step in STEPS}
    assert {outcome.rstrip("?") for outcome in APPLICABLE.values()} <= set(OUTCOMES) | set(ERRORS)
    assert (len(CELLS), len(APPLICABLE)) == (228, 181)


@pytest.fixture
def cell(kube: LocalKube, talker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cell:
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(kube.kubeconfig))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return Cell(kube, "", tmp_path / "nemorun", tmp_path / "results", talker)


@pytest.mark.parametrize(("fault", "step"), APPLICABLE, ids=[" at ".join(each) for each in APPLICABLE])
def test_fault(
    cell: Cell,
    front: Front,
    fault: str,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    work, outcome = STEPS[step], APPLICABLE[fault, step]
    cell.namespace = "logs" if work.act is read else f"{step}-{fault}".replace(" ", "-").lower()
    if fault == "TLS":
        monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(front.kubeconfig))
    work.prepare(cell)
    if fault == "silent":
        for kind in vars(SILENCE):
            monkeypatch.setattr(SILENCE, kind, 0.5)
    capsys.readouterr()
    with caplog.at_level(logging.INFO, "nemo_run"):
        error = failed(cell, work, fault, front)
    said = told(capsys, caplog)
    check_outcome(cell, work, outcome.rstrip("?"), error, SAYS.get(fault, ""), said)
    assert fault != "503 for long" or "trying again in" not in said
    check_rest(cell, work, unsure=outcome.endswith("?"))


def failed(cell: Cell, work: Step, fault: str, front: Front) -> NemoRunError | None:
    with struck(cell.kube, fault, work.point, namespace=cell.namespace, front=front):
        try:
            work.act(cell)
        except NemoRunError as error:
            return error
    return None


def told(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> str:
    lines = [record.getMessage() for record in caplog.records]
    return " ".join([*capsys.readouterr().out.split(), *lines])


def check_outcome(cell: Cell, work: Step, outcome: str, error: NemoRunError | None, says: str, told: str) -> None:
    assert isinstance(error, ERRORS.get(outcome, type(None))), error
    if isinstance(error, KubeError):
        assert error.server.startswith("http")
        assert "" not in (error.context, error.namespace)
    if error is not None:
        assert says in str(error)
    elif outcome == "ok":
        work.worked(cell)
    else:
        assert says in told
        if outcome in ("kept", "said"):
            right_state(cell)


def check_rest(cell: Cell, work: Step, *, unsure: bool) -> None:
    """Nothing is left over, nothing is half there, and the state is the real one."""
    assert [pod for pod in cell.pods() if is_ours(pod) and "data-mover" in pod["metadata"]["name"]] == []
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    assert [path for path in cell.home.parent.rglob("*") if re.search(r"spool|probe|\.tmp", path.name)] == []
    if work.act is read:
        return
    if cell.results.exists():
        assert (cell.results / "mine.txt").read_text() == "mine"
        assert sorted(path.name for path in cell.results.rglob("*")) in (
            ["mine.txt"],
            ["mine.txt", "out", "result.bin"],
        )
        return
    ours = [job for job in cell.jobs() if is_ours(job)]
    state, records = cell.status(), list(cell.records().values())
    if ours:
        assert state in (AppState.SUBMITTED, AppState.PENDING)
        assert [record["uid"] for record in records] == [job["metadata"]["uid"] for job in ours]
    elif records:
        assert state == (AppState.UNSUBMITTED if unsure else AppState.CANCELLED)
        assert work.act is cancel or unsure
    else:
        assert state == AppState.UNSUBMITTED


def is_ours(thing: dict[str, Any]) -> bool:
    return (thing["metadata"].get("labels") or {}).get("not") != "ours"
