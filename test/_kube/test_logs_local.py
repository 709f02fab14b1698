"""Following pods that really run, on LocalKube."""

from __future__ import annotations

import time

import pytest

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.demux import LogLine
from nemo_run._kube.logs import LogFollower
from nemo_run._kube.resources import POD
from nemo_run.testing import Cut, LocalKube, Respond

SOON = 60.0


@pytest.fixture
def api(kube: LocalKube) -> KubeApi:
    return connect()


def start(api: KubeApi, name: str, script: str, *, restart: str = "Never", node: int = 0, sidecar: str = "") -> None:
    container = {"name": "node", "image": "i", "command": ["sh", "-c", script]}
    injected = {"name": "istio-proxy", "image": "i", "command": ["sh", "-c", sidecar]}
    api.create(
        POD,
        "default",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {"job": "x"},
                "annotations": {"batch.kubernetes.io/job-completion-index": str(node)},
            },
            "spec": {
                "restartPolicy": restart,
                "terminationGracePeriodSeconds": 0,
                "containers": [injected, container] if sidecar else [container],
            },
        },
    )


def follow(api: KubeApi) -> tuple[list[LogLine], list[str]]:
    """Follow until each pod has ended."""
    lines: list[LogLine] = []
    states: list[str] = []
    deadline = time.monotonic() + SOON

    def finished() -> bool:
        assert time.monotonic() < deadline, (lines, states)
        pods = api.list(POD, "default", labels="job=x")
        return bool(pods) and all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in pods)

    LogFollower(
        api,
        "default",
        selector="job=x",
        container="node",
        write=lines.append,
        on_state=states.append,
        finished=finished,
        interval=0.1,
    ).run()
    return lines, states


def texts(lines: list[LogLine], pod: str) -> list[str]:
    return [line.text for line in lines if line.pod == pod]


def test_each_line_of_each_pod_once_and_in_order(api):
    for node in range(3):
        start(api, f"p{node}", f"for i in $(seq 200); do echo {node}-$i; done; sleep 0.3; printf end", node=node)
    lines, _ = follow(api)
    for node in range(3):
        assert texts(lines, f"p{node}") == [*(f"{node}-{number}" for number in range(1, 201)), "end"]
    assert {(line.pod, line.node_index) for line in lines} == {(f"p{node}", node) for node in range(3)}
    assert all(line.at for line in lines)


def test_connections_that_break_lose_and_double_nothing(kube, api):
    with kube.fault(
        Cut("log", after_bytes=3000, times=1),
        Respond(503, on="GET */log", times=2),
        Respond(429, on="GET */pods", times=1, retry_after=0.2),
    ):
        start(api, "p", "for i in $(seq 300); do echo line $i; [ $((i % 50)) = 0 ] && sleep 0.1; done; sleep 0.3")
        lines, _ = follow(api)
    assert texts(lines, "p") == [f"line {number}" for number in range(1, 301)]


def test_a_container_that_is_restarted_is_read_on(api):
    start(api, "p", "echo first; sleep 0.2; exit 3", restart="OnFailure")
    lines: list[LogLine] = []
    states: list[str] = []
    deadline = time.monotonic() + SOON

    def finished() -> bool:
        assert time.monotonic() < deadline, (lines, states)
        return "pod p: container node was restarted (restart 1)" in states and len(lines) >= 2

    LogFollower(
        api, "default", selector="job=x", container="node", write=lines.append, on_state=states.append,
        finished=finished, interval=0.1, linger=1,
    ).run()  # fmt: skip
    api.delete(POD, "default", "p", grace_seconds=0)
    assert len({line.at for line in lines}) == len(lines) >= 2
    assert {line.text for line in lines} == {"first"}
    assert "pod p: container node was restarted (restart 1)" in states


def test_a_bad_byte_is_shown_as_such(api):
    start(api, "p", r"printf 'ok\n\344\n\377\376\nend\n'")
    lines, _ = follow(api)
    assert texts(lines, "p") == ["ok", "\ufffd", "\ufffd\ufffd", "end"]


def test_an_injected_sidecar_is_not_read(api):
    start(api, "a", "echo from the job", sidecar="echo from the proxy; sleep 1")
    lines, _ = follow(api)
    assert [line.text for line in lines] == ["from the job"]
