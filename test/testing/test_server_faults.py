"""Faults: refusals, delays, cuts."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from typing import Any

import pytest
from serving import PODS, Serving, pod, serving

from nemo_run.testing import Cut, Delay, Pod, Respond
from nemo_run.testing._faults import Faults

Json = dict[str, Any]


@pytest.fixture
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running


def test_a_refusal_strikes_so_often_and_no_more(server: Serving) -> None:
    with server.cluster.faults.active(Respond(503, on="POST */pods", times=2, retry_after=1.5)):
        answers = [server.ask("POST", PODS, pod("p")) for _ in range(3)]
        assert server.ask("GET", PODS).status == 200
    assert [answer.status for answer in answers] == [503, 503, 201]
    assert answers[0].headers["Retry-After"] == "1.5"
    assert answers[0].body["reason"] == "ServiceUnavailable"
    assert [request.status for request in server.cluster.server.requests] == [503, 503, 201, 200]


def test_a_refusal_ends_with_its_block(server: Serving) -> None:
    with server.cluster.faults.active(Respond(500)):
        assert server.ask("GET", PODS).status == 500
    assert server.ask("GET", PODS).status == 200


def test_an_answer_can_be_lost_after_the_deed(server: Serving) -> None:
    with server.cluster.faults.active(Respond(504, on="POST *", times=1, carried_out=True)):
        assert server.ask("POST", PODS, pod("p")).status == 504
    assert server.ask("POST", PODS, pod("p")).status == 409


@pytest.mark.parametrize(
    ("fault", "body"),
    [
        (Respond(502, body="<html>bad gateway</html>"), "<html>bad gateway</html>"),
        (Respond(400, body={"a": 1}), {"a": 1}),
        (
            Respond(403, message="pods are forbidden: exceeded quota"),
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "pods are forbidden: exceeded quota",
                "reason": "Forbidden",
                "code": 403,
            },
        ),
    ],
    ids=["text", "json", "status"],
)
def test_what_a_refusal_says(server: Serving, fault: Respond, body: Any) -> None:
    with server.cluster.faults.active(fault):
        answer = server.ask("GET", PODS)
    assert (answer.status, answer.body) == (fault.status, body)


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (
            "rights",
            'pods is forbidden: User "localkube" cannot create resource "pods" in API group "" in the namespace',
        ),
        ("quota", 'pods "p" is forbidden: exceeded quota: team, requested: pods=1, used: pods=10, limited: pods=10'),
        ("PodSecurity", 'pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilege'),
        ("webhook", 'admission webhook "validate.policies.example.com" denied the request: '),
    ],
)
def test_who_refuses_has_words_of_its_own(server: Serving, by: Any, says: str) -> None:
    with server.cluster.faults.active(Respond(403, on="POST */pods", by=by)):
        answer = server.ask("POST", PODS, pod("p"))
    assert (answer.status, answer.body["reason"], answer.body["message"][: len(says)]) == (403, "Forbidden", says)


def test_a_fault_can_wait_for_the_request_that_is_meant(server: Serving) -> None:
    with server.cluster.faults.active(Respond(500, on="GET */pods?*limit=1*", skip=1, times=1)):
        answers = [server.ask("GET", PODS, limit=1).status for _ in range(3)]
        assert server.ask("GET", PODS, limit=2).status == 200
    assert answers == [200, 500, 200]


def test_the_innermost_fault_strikes_first(server: Serving) -> None:
    faults = server.cluster.faults
    with faults.active(Respond(500)), faults.active(Respond(503, times=1)):
        assert [server.ask("GET", PODS).status for _ in range(2)] == [503, 500]


def test_a_delay_is_waited_for(server: Serving) -> None:
    with server.cluster.faults.active(Delay(0.2, on="GET */pods", times=1)):
        begun = time.monotonic()
        server.ask("GET", PODS)
        assert time.monotonic() - begun >= 0.2


def test_a_request_can_be_cut_before_its_answer(server: Serving) -> None:
    with (
        server.cluster.faults.active(Cut("POST */pods", carried_out=True)),
        pytest.raises((ConnectionError, http.client.RemoteDisconnected)),
    ):
        server.ask("POST", PODS, pod("p"))
    assert server.ask("GET", f"{PODS}/p").status == 200
    assert server.cluster.server.requests[0].status == 0


def test_a_watch_can_be_cut(server: Serving) -> None:
    server.ask("POST", PODS, pod("p"))
    with server.cluster.faults.active(Cut("watch", after_bytes=30)), pytest.raises(http.client.IncompleteRead):
        server.ask("GET", PODS, watch=1)
    with server.watching(PODS, timeoutSeconds=1) as events:
        assert [event["type"] for event in events] == ["ADDED"]


@pytest.mark.parametrize(
    ("match", "found"),
    [("p-*", True), ("*", True), ("q", False), ("app=a", True), ("app=b", False), ("app in (a),x!=y", True)],
)
def test_a_pod_fault_is_found_by_name_or_labels(match: str, found: bool) -> None:
    faults = Faults()
    one = pod("p-1")
    with faults.active(Pod(match, "OOMKilled", after=1)):
        assert (faults.for_pod(one) is not None) is found
        assert faults.for_pod(one, "Unschedulable") is None
    assert faults.for_pod(one) is None


def test_a_pod_fault_is_counted() -> None:
    faults = Faults()
    with faults.active(Pod("*", "FailedMount", times=2)):
        met = [faults.for_pod(pod("p"), "FailedMount") is not None for _ in range(3)]
    assert met == [True, True, False]
