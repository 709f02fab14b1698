"""Following pods that really run, on LocalKube."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.demux import GAP, LogLine
from nemo_run._kube.logs import LogFollower
from nemo_run._kube.podwatch import PodWatch
from nemo_run._kube.resources import POD
from nemo_run._kube.waiting import poll_until
from nemo_run.testing import Cut, LocalKube, Respond

SOON = 60.0


@pytest.fixture(scope="module")
def kube() -> Iterator[LocalKube]:
    with LocalKube(claims=["shared"]) as kube:
        yield kube


@pytest.fixture
def api(kube: LocalKube) -> Iterator[KubeApi]:
    """Give the door to a cluster without pods."""
    api = connect(kubeconfig=kube.kubeconfig)
    yield api
    for pod in api.list(POD, "default"):
        api.delete(POD, "default", pod["metadata"]["name"], grace_seconds=0)
    poll_until(lambda: api.list(POD, "default"), lambda pods: not pods, what="no pods", timeout=SOON, interval=0.02)
    for file in kube.claim("shared").iterdir():
        file.unlink()


def start(api: KubeApi, name: str, script: str, *, restart: str = "Never", node: int = 0, sidecar: str = "") -> None:
    """Start a pod that runs *script*, the claim at ``/data``."""
    container = {
        "name": "node",
        "image": "i",
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
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
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}],
                "containers": [injected, container] if sidecar else [container],
            },
        },
    )


def follow(api: KubeApi, seen: Callable[[LogLine], None] = bool) -> tuple[list[LogLine], list[str]]:
    """Follow until each pod has ended; tell *seen* of each line."""
    lines: list[LogLine] = []
    states: list[str] = []
    deadline = time.monotonic() + SOON

    def write(line: LogLine) -> None:
        lines.append(line)
        seen(line)

    def finished() -> bool:
        assert time.monotonic() < deadline, (lines[-20:], states)
        pods = api.list(POD, "default", labels="job=x")
        return bool(pods) and all(pod["status"].get("phase") in ("Succeeded", "Failed") for pod in pods)

    LogFollower(
        api,
        "default",
        selector="job=x",
        container="node",
        write=write,
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


def test_twelve_pods_are_read_from_their_first_lines_by_one_who_comes_late(kube, api):
    """More lines than a client shows by default, of more pods than kubectl follows at a time."""
    for node in range(12):
        start(api, f"p{node}", f"seq 50; touch /data/{node}; until test -e /data/go; do sleep 0.1; done", node=node)
    claim = kube.claim("shared")
    poll_until(lambda: len(list(claim.iterdir())), (12).__eq__, what="files of pods", timeout=SOON, interval=0.05)
    left = {f"p{node}" for node in range(12)}

    def seen(line: LogLine) -> None:
        if line.text == "50":
            left.discard(line.pod)
        if not left:
            (claim / "go").touch()

    lines, _ = follow(api, seen)
    for node in range(12):
        assert texts(lines, f"p{node}") == [str(number) for number in range(1, 51)]


def test_ten_thousand_lines_of_each_of_two_pods_over_broken_connections(kube, api):
    before = len(kube.requests)
    said = "iteration %.0f | loss 1.234567E+00 | elapsed time per iteration (ms): 1234.5"
    for node in range(2):
        start(api, f"p{node}", f"seq -f '{said}' 5000; sleep 0.5; seq -f '{said}' 5001 10000", node=node)
    with kube.fault(Cut("log", after_bytes=400_000, times=2)):
        lines, _ = follow(api)
    for node in range(2):
        assert texts(lines, f"p{node}") == [said.replace("%.0f", str(number)) for number in range(1, 10_001)]
    opened = [request for request in kube.requests[before:] if request.path.endswith("/log")]
    assert len(opened) >= 4


def test_what_was_rotated_away_while_the_connection_was_broken_is_named(kube, api):
    start(api, "p", "seq 3; until test -e /data/go; do sleep 0.1; done; seq 4 99; touch /data/rotate; "
          "while test -e /data/rotate; do sleep 0.1; done; seq 100 102")  # fmt: skip
    claim = kube.claim("shared")

    with ExitStack() as faults:
        faults.enter_context(kube.fault(Cut("log", after_bytes=200, times=1)))
        away = faults.enter_context(ExitStack())

        def seen(line: LogLine) -> None:
            if line.text == "3":
                away.enter_context(kube.fault(Respond(503, on="GET */log")))
                (claim / "go").touch()
                poll_until((claim / "rotate").exists, bool, what="the line before", timeout=SOON, interval=0.05)
                rotate(kube, api.get(POD, "default", "p"))
                (claim / "rotate").unlink()
                away.close()

        lines, _ = follow(api, seen)
    read = [line.text for line in lines]
    (gap,) = (number for number, line in enumerate(lines) if line.gap)
    assert read[gap] == f"{GAP} pod p, attempt 1"
    wrote = [str(number) for number in range(1, 103)]
    assert (read[:gap], read[gap + 1 :]) == (wrote[:gap], wrote[gap + 1 - len(read) :])
    assert gap >= 3
    assert read[-3:] == wrote[-3:]


def rotate(kube: LocalKube, pod: dict) -> None:
    """Take from a pod's log what it has so far, as the kubelet does with one that has grown too long."""
    os.truncate(kube.home / "pods" / pod["metadata"]["uid"] / "logs" / "node" / "0.log", 0)


def test_an_injected_sidecar_is_not_read(api):
    start(api, "a", "echo from the job", sidecar="echo from the proxy; sleep 1")
    lines, _ = follow(api)
    assert [line.text for line in lines] == ["from the job"]


def test_what_the_watch_has_told_is_not_waited_for_at_the_end(api):
    """A list tells of the same pods in other words: the kind once for all of them."""
    told: list[dict] = []
    watch = PodWatch(
        api, "default", "job=x", changed=lambda pod, gone: told.append(pod), failed=told.append, interval=0.1
    )
    start(api, "p", "true")
    try:
        watch.start()
        poll_until(lambda: [pod["status"].get("phase") for pod in told], lambda phases: "Succeeded" in phases,
                   what="the pod's end", timeout=SOON, interval=0.02)  # fmt: skip
        (now,) = poll_until(lambda: api.list(POD, "default"), lambda pods: version(pods) == version(told[-1:]),
                            what="the last word", timeout=SOON, interval=0.02)  # fmt: skip
        before = len(told)
        watch.catch_up(0, interval=0.1)
        assert told[before:] == []
        assert now.keys() < told[-1].keys()
    finally:
        watch.close()
        watch.join(SOON)


def version(pods: list[dict]) -> list[str]:
    return [pod["metadata"]["resourceVersion"] for pod in pods]
