"""LocalKube's API server held against the recorded answers of a real one (Kubernetes 1.36)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nemo_run.testing._cluster import Cluster
from nemo_run.testing._loop import LoopThread

CONTRACT = Path(__file__).resolve().parents[3] / "shared" / "contract"
RECORDED = CONTRACT / "apiserver-1.36.json"

DIFFERENCES = {
    "version": "says that it is no real server: gitVersion v1.36.2+localkube",
    "discovery core": "its own address",
    "node": "nodes are stored as they are: no defaults, no taint; there is only the kubelet's own",
    "watch rv=1 old CR": "the recorded server had just compacted custom resources; LocalKube does so on demand",
    "watch sendInitialEvents": "the recorded server ran on an etcd too old for it; LocalKube sends the initial events",
    "list old rv exact": "no past states are kept: a list is always of the present",
}
"""Where LocalKube answers otherwise, and why; everything else must be the same."""

_PER_RUN = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "lastTransitionTime",
    "managedFields",
    "continue",
)
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GENERATED = re.compile(r"\bg-[a-z0-9]{5}\b")

recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
needs_contract = pytest.mark.skipif(not recorded, reason=f"{CONTRACT} is not there")


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a cluster without a node answers to the recorded requests."""
    out = tmp_path_factory.mktemp("contract") / "answers.json"
    cluster, loop = Cluster(kuberay="1.7"), LoopThread("contract")
    try:
        loop.run(cluster.server.start())
        command = [
            sys.executable,
            str(CONTRACT / "replay.py"),
            f"http://{cluster.server.address}",
            cluster.token,
            str(out),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
        loop.run(cluster.server.stop())
    finally:
        loop.close()
    answers: dict[str, Any] = json.loads(out.read_text())
    return answers


def comparable(value: Any) -> Any:
    """Give *value* without what is new in each run."""
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items() if key not in _PER_RUN}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return _GENERATED.sub("g-xxxxx", _UID.sub("uid", value)) if isinstance(value, str) else value


def answered(entry: Any) -> Any:
    """Give what an entry says of the answer: a watch's events, or status, type, warning and body."""
    if isinstance(entry, list):
        return comparable(entry)
    return [entry["status"], entry["ctype"], entry["warn"], comparable(entry["body"])]


@needs_contract
@pytest.mark.parametrize("name", sorted(set(recorded) - set(DIFFERENCES)))
def test_answers_as_a_real_server(replayed: dict[str, Any], name: str) -> None:
    assert answered(replayed[name]) == answered(recorded[name])


@needs_contract
@pytest.mark.parametrize("name", sorted(DIFFERENCES))
def test_each_difference_is_one(replayed: dict[str, Any], name: str) -> None:
    """A difference that is gone is taken off the table."""
    assert answered(replayed[name]) != answered(recorded[name])
