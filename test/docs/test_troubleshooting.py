"""The page on failures shows what a user really sees: each is made to happen, and its words are held against it."""

from __future__ import annotations

import getpass
import inspect
import json
import os
import re
import threading
from pathlib import Path

import pytest

import nemo_run as run
from nemo_run._kube.waiting import SYSTEM_CLOCK
from nemo_run.exceptions import NemoRunError
from nemo_run.testing import LocalKube, Pod, Respond
from nemo_run.testing.local import ENVIRONMENT

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/troubleshooting.md"

VARYING = [
    (r"^\[\d\d:\d\d:\d\d\] ", ""),  # when it was said
    (r"\btrain-[0-9a-f]{6}\b", "train-1a2b3c"),  # the random end of a TrainJob's name
    (r"(-node-0-0)-[a-z0-9]{5}\b", r"\1-x7k2p"),  # that of a pod
    (r"(-data-mover)-[0-9a-f]{6}\b", r"\1-4d5e6f"),  # that of a copy pod
    (r"\btrain_\d{10,}\b", "train_1767225600"),  # an experiment's id
    (r"http://127\.0\.0\.1:\d+(/[\w-]+)?", "https://kube.example:6443"),  # the server
    (r"\bcontext (localkube|test)\b", "context prod"),
    (r"/\S+/nemorun/", "~/.nemo_run/"),  # NEMORUN_HOME
    (rf"/nemo_run/{re.escape(getpass.getuser())}/", "/nemo_run/alice/"),  # the user
    (r"\.nemo-run-probe-[0-9a-f]+", ".nemo-run-probe-0f1e2d"),  # the file that is written to see whether that works
]
"""All that differs between two runs, or between this machine and a reader's, and what the page has instead."""


def normal(text):
    lines = text.strip().splitlines()
    for pattern, shown in VARYING:
        lines = [re.sub(pattern, shown, line) for line in lines]
    return lines


def blocks(page):
    """Give the page's blocks of output by the heading they stand under."""
    found = {}
    for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
        heading, _, text = section.partition("\n")
        found[heading] = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture(scope="module")
def one():
    with pytest.MonkeyPatch.context() as patch, LocalKube(images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        patch.setattr(SYSTEM_CLOCK, "pace", 10.0)
        yield kube


@pytest.fixture
def kube(one, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(one.kubeconfig))
    yield one
    one.rules = None


def executor(**changes):
    fields = {
        "namespace": "research",
        "image": "team/train:1",
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        "workdir_volume_mount": {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
    }
    return run.KubeflowExecutor(**{**fields, **changes})


def launched(script="sleep 60", *, until="", capsys, **changes):
    """Run a job to its end, or until it has said something; give all that was printed."""
    over = threading.Event()
    printed = []

    def cancel():
        while not over.wait(0.1):
            printed.append(capsys.readouterr().out)
            if until and re.search(until, "".join(printed)):
                run.Experiment.from_title("train").cancel("train")
                return

    watching = threading.Thread(target=cancel)
    watching.start()
    try:
        run.run(run.Script(inline=script), executor=executor(**changes), name="train", tail_logs=True)
    except NemoRunError:
        pass  # said in what is printed
    finally:
        over.set()
        watching.join()
    return "".join(printed) + capsys.readouterr().out


def said(text, pattern):
    """Give the lines that match, each once; not those of the status that is shown at the start."""
    return list(dict.fromkeys(line for line in normal(text) if re.search(pattern, line) and line[0] != "-"))


def image(kube, capsys):
    with kube.fault(Pod("train-*-node-*", "ImagePullBackOff")):
        text = launched(until=r"train: pod \S+: ImagePullBackOff", capsys=capsys)
    return [said(text, "ImagePullBackOff")]


def room(kube, capsys):
    with kube.fault(Pod("train-*-node-*", "Unschedulable")):
        waiting = launched(until=r"train: pod \S+: Unschedulable", capsys=capsys)
    with kube.fault(Respond(403, on="POST */trainjobs*", by="quota")):
        refused = launched(capsys=capsys)
    return [said(waiting, "Unschedulable"), said(refused, "quota")]


def claim(kube, capsys):
    volumes = [{"name": "work", "persistentVolumeClaim": {"claimName": "shard"}}]
    return [said(launched(capsys=capsys, volumes=volumes, data_mover_timeout=20), "shard")]


def mount(kube, capsys):
    with kube.fault(Pod("train-*-node-*", "FailedMount")):
        text = launched(until=r"train: pod \S+: .*FailedMount", capsys=capsys)
    return [said(text, "FailedMount")]


def memory(kube, capsys):
    with kube.fault(Pod("train-*-node-*", "OOMKilled")):
        return [said(launched(capsys=capsys), "FAILED")]


def code(kube, capsys):
    script = "echo 'ValueError: no such file: data.bin'; exit 1"
    return [said(launched(script, capsys=capsys), "ValueError|all lines|FAILED")]


def permission(kube, capsys):
    directory = kube.claim("shared", "research") / "team-b"
    directory.mkdir(mode=0o755)
    place = {"name": "work", "mountPath": "/nemo_run", "subPath": "team-b"}
    mover = {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}
    return [said(launched(capsys=capsys, workdir_volume_mount=place, data_mover=mover), "cannot write")]


def rights(kube, capsys):
    kube.rules = [
        {"apiGroups": ["trainer.kubeflow.org"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["*"]},
    ]
    return [said(launched(capsys=capsys), "rights")]


def security(kube, capsys):
    with kube.fault(Respond(403, on="POST */pods", by="PodSecurity")):
        return [said(launched(capsys=capsys), "PodSecurity")]


def credentials(kube, capsys):
    with kube.fault(Respond(401)):
        return [said(launched(capsys=capsys), "401")]


def unreachable(kube, capsys, monkeypatch):
    config = json.loads(kube.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    other = Path(os.environ["NEMORUN_HOME"]).parent / "kubeconfig"
    other.write_text(json.dumps(config))
    monkeypatch.setenv(ENVIRONMENT, str(other))
    return [said(launched(capsys=capsys), "Error")]


def field(kube, capsys, caplog):
    fields = {"spec_kwargs": {"ttlSecondsAfterFinished": 60}}
    launched("true", capsys=capsys, **fields)
    warnings = [f"WARNING  {text}" for text in caplog.messages if "left out" in text]
    strict = launched("true", capsys=capsys, strict=True, **fields)
    return [list(dict.fromkeys(warnings)), said(strict, "Error")]


FAILURES = {
    "An image cannot be pulled": image,
    "No room, or no quota": room,
    "The claim does not exist": claim,
    "A volume cannot be mounted": mount,
    "Out of memory": memory,
    "The program ends with an exit code": code,
    "No permission on the volume": permission,
    "A right is missing": rights,
    "PodSecurity refuses the copy pod": security,
    "The login has run out": credentials,
    "The server does not answer": unreachable,
    "Trainer does not know a field": field,
}


@pytest.mark.parametrize("heading", FAILURES)
def test_the_page_shows_what_comes_out(request, heading):
    if heading == "No permission on the volume" and os.getuid():
        pytest.skip("only root can give a directory to another user")
    failure = FAILURES[heading]
    given = {name: request.getfixturevalue(name) for name in inspect.signature(failure).parameters}
    assert [normal(block) for block in blocks(PAGE)[heading]] == failure(**given)


def test_every_failure_on_the_page_is_tried():
    assert [heading for heading, shown in blocks(PAGE).items() if shown] == list(FAILURES)


def test_nothing_but_what_varies_is_made_equal():
    """The page's own names are what the patterns put in."""
    for shown in blocks(PAGE).values():
        for block in shown:
            assert normal(block) == block.strip().splitlines()
