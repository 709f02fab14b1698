"""Readiness probes: a pod is ready once its command succeeds, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodes import Working, working

PROBE = {"readinessProbe": {"exec": {"command": ["sh", "-c", "test -e /work/up"]}}}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Working]:
    with working(tmp_path) as node:
        yield node


def mounted(**container: Any) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "work", "mountPath": "/work"}], **container}


def ready(node: Working, name: str) -> bool:
    (status,) = node.get(name)["status"]["containerStatuses"]
    return bool(status["ready"])


def test_a_container_is_ready_once_its_probe_succeeds(node):
    node.run_pod(
        "p",
        "echo up; while test ! -e /work/go; do sleep 0.1; done; touch /work/up; exec sleep 600",
        container=mounted(**PROBE),
    )
    node.phase("p", "Running")
    node.until(lambda: node.log("p"), lambda log: log == b"up\n")
    assert not ready(node, "p")
    (node.claim / "go").touch()
    node.until(lambda: ready(node, "p"))


def test_a_container_that_starts_again_has_to_become_ready_again(node):
    (node.claim / "up").touch()
    script = "while test -e /work/up; do sleep 0.1; done; exit 1"
    node.run_pod("p", script, container=mounted(**PROBE), restartPolicy="Always")
    node.until(lambda: node.get("p").get("status", {}).get("containerStatuses") and ready(node, "p"))
    (node.claim / "up").unlink()
    node.until(lambda: node.get("p")["status"]["containerStatuses"][0]["restartCount"], lambda count: count > 0)
    assert not ready(node, "p")


def test_a_probe_whose_command_is_missing_never_succeeds(node):
    probe = {"readinessProbe": {"exec": {"command": ["no-such-command"]}}}
    node.run_pod("p", "echo up; sleep 2", container=mounted(**probe))
    node.until(lambda: node.log("p") if node.get("p").get("status", {}).get("phase") == "Running" else b"")
    assert not ready(node, "p")
    assert node.finished("p")["status"]["phase"] == "Succeeded"
