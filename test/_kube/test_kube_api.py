"""Requests over real sockets: what is sent, what is tried again, which error comes out."""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
import threading
import weakref

import pytest
from fakes.answers import RESET, Answer, Server, kubeconfig, status
from fakes.certificates import make_certificate
from fakes.clock import FakeClock

from nemo_run._kube import api as kube_api
from nemo_run._kube import auth
from nemo_run._kube.api import KubeApi
from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run._kube.watching import Event
from nemo_run._kube.wire import Wire
from nemo_run.exceptions import (
    Conflict,
    KubeError,
    NotAuthorized,
    NotFound,
    Rejected,
    ServerError,
    Unreachable,
)

GONE = status(404, "NotFound", 'trainjobs.trainer.kubeflow.org "x" not found', name="x", kind="trainjobs")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def door(tmp_path, clock):
    """Give a function that opens the door to a server."""

    def door(server: Server, *, jitter: float = 1.0, **options: object) -> KubeApi:
        file = kubeconfig(tmp_path / "config", server.url, **options)
        return KubeApi(Wire(lambda: auth.load([file]), clock=clock, jitter=lambda: jitter), clock=clock)

    return door


def pod(name: str, version: str = "1") -> dict:
    return {"kind": "Pod", "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version}}


def test_what_each_verb_sends(door):
    """The whole request of each verb, as the API wants it."""
    with Server(lambda asked: Answer(200, {"items": []})) as server:
        api = door(server, user={"token": "t0ken"})
        api.create(TRAINJOB, "ns", {"metadata": {"name": "x"}})
        api.create(TRAINJOB, "ns", {"metadata": {"name": "x"}}, dry_run=True, strict=False)
        api.get(POD, "ns", "x")
        api.list(TRAINJOB, "ns", labels="a=b", fields="metadata.name=x")
        api.patch(POD, "ns", "x", {"metadata": {"labels": {"a": None}}})
        api.delete(POD, "ns", "x", uid="u", grace_seconds=0)
        api.openapi("trainer.kubeflow.org", "v1alpha1")
        api.openapi("trainer.kubeflow.org", "v1alpha1")
        api.openapi("", "v1")
    trainjobs = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs"
    assert [(asked.method, asked.path, asked.query, asked.body) for asked in server.requests] == [
        ("POST", trainjobs, [("fieldValidation", "Strict")], b'{"metadata":{"name":"x"}}'),
        ("POST", trainjobs, [("fieldValidation", "Warn"), ("dryRun", "All")], b'{"metadata":{"name":"x"}}'),
        ("GET", "/api/v1/namespaces/ns/pods/x", [], b""),
        ("GET", trainjobs, [("labelSelector", "a=b"), ("fieldSelector", "metadata.name=x"), ("limit", "500")], b""),
        ("PATCH", "/api/v1/namespaces/ns/pods/x", [], b'{"metadata":{"labels":{"a":null}}}'),
        (
            "DELETE",
            "/api/v1/namespaces/ns/pods/x",
            [],
            b'{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background",'
            b'"preconditions":{"uid":"u"},"gracePeriodSeconds":0}',
        ),
        ("GET", "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1", [], b""),
        ("GET", "/openapi/v3/api/v1", [], b""),
    ]
    assert {asked.headers["authorization"] for asked in server.requests} == {"Bearer t0ken"}
    types = [asked.headers.get("content-type") for asked in server.requests]
    assert types[:5] == ["application/json"] * 2 + [None, None, "application/merge-patch+json"]


def test_fields_that_the_client_package_does_not_know_pass_untouched(door):
    body = {"metadata": {"name": "x"}, "spec": {"madeUp": {"Snake_case": [None, 1.5, "é"]}}}
    with Server(lambda asked: Answer(201, asked.json)) as server:
        assert door(server).create(TRAINJOB, "ns", body) == body


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (GONE, NotFound, 'trainjobs.trainer.kubeflow.org "x" not found [404 NotFound]'),
        (
            Answer(404, b"404 page not found\n", {"Content-Type": "text/plain"}),
            Rejected,
            "404 page not found; the server does not serve this API: is what provides it installed? [404]",
        ),
        (
            status(404, "NotFound", "the server could not find the requested resource"),
            Rejected,
            "the server could not find the requested resource; the server does not serve this API: is what"
            " provides it installed? [404 NotFound]",
        ),
        (status(403, "Forbidden", 'User "u" cannot get'), NotAuthorized, 'User "u" cannot get [403 Forbidden]'),
        (
            status(403, "Forbidden", 'pods "x" is forbidden: violates PodSecurity "restricted:latest"'),
            Rejected,
            'pods "x" is forbidden: violates PodSecurity "restricted:latest" [403 Forbidden]',
        ),
        (status(403, "Forbidden", "exceeded quota: q"), Rejected, "exceeded quota: q [403 Forbidden]"),
        (status(403, "Forbidden", "failed quota: q"), Rejected, "failed quota: q [403 Forbidden]"),
        (
            status(403, "Forbidden", 'admission webhook "v" denied the request'),
            Rejected,
            'admission webhook "v" denied the request [403 Forbidden]',
        ),
        (status(409, "AlreadyExists", "exists"), Conflict, "exists [409 AlreadyExists]"),
        (status(400, "BadRequest", 'unknown field "a"'), Rejected, 'unknown field "a" [400 BadRequest]'),
        (status(422, "Invalid", "spec: Invalid"), Rejected, "spec: Invalid [422 Invalid]"),
        (status(501, "NotImplemented", "no"), ServerError, "no [501 NotImplemented]"),
        (
            Answer(200, b"<html><title>Log in</title></html>"),
            Unreachable,
            "no Kubernetes API server answers there: Log in [200]",
        ),
        (
            Answer(302, b"", {"Location": "https://login.example"}),
            Unreachable,
            "no Kubernetes API server answers there: HTTP status 302 [302]",
        ),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_each_refusal_is_one_of_our_errors(door, clock, answer, kind, message):
    """Nothing that cannot change is tried again, and the error names server, context and namespace."""
    with Server([answer]) as server:
        with pytest.raises(KubeError) as caught:
            door(server).get(TRAINJOB, "ns", "x")
        assert type(caught.value) is kind
        where = f"(server {server.url}, context test, namespace ns)"
        assert str(caught.value) == f"get TrainJob x: {message} {where}"
    assert clock.sleeps == []


@pytest.mark.parametrize(
    "trouble",
    [
        status(429, "TooManyRequests", "slow down"),
        status(500, "InternalError", "etcd"),
        Answer(503, b"upstream connect error"),
        RESET,
    ],
    ids=["429", "500", "503", "reset"],
)
@pytest.mark.parametrize("verb", ["get", "create", "delete", "patch"])
def test_passing_trouble_is_outlasted(door, clock, verb, trouble):
    """Overload, server errors and resets are tried again with growing pauses."""
    calls = {
        "get": lambda api: api.get(POD, "ns", "x"),
        "create": lambda api: api.create(POD, "ns", pod("x")),
        "delete": lambda api: api.delete(POD, "ns", "x"),
        "patch": lambda api: api.patch(POD, "ns", "x", {}),
    }
    with Server([trouble, trouble, trouble, Answer(200, pod("x"))]) as server:
        assert calls[verb](door(server)) == (None if verb == "delete" else pod("x"))
    assert clock.sleeps == [0.5, 1.0, 2.0]
    assert len({(asked.method, asked.body) for asked in server.requests}) == 1


def test_pauses_are_spread_by_jitter(door, clock):
    with Server([Answer(503), Answer(503), Answer(200, pod("x"))]) as server:
        door(server, jitter=0.0).get(POD, "ns", "x")
    assert clock.sleeps == [0.25, 0.5]


@pytest.mark.parametrize(
    ("told", "slept"), [("2", 2.0), ("0", 0.5), ("Wed, 21 Oct 2026 07:28:00 GMT", 5.0), ("x", 0.5)]
)
def test_the_server_says_when_to_come_back(door, clock, told, slept):
    with Server([Answer(429, b"", {"Retry-After": told}), Answer(200, pod("x"))]) as server:
        door(server).get(POD, "ns", "x")
    assert clock.sleeps == [slept]


def test_a_server_that_stays_broken_is_given_up_after_a_minute(door, clock):
    with (
        Server(lambda asked: status(503, "ServiceUnavailable", "away")) as server,
        pytest.raises(ServerError) as caught,
    ):
        door(server).get(POD, "ns", "x")
    assert (caught.value.status, caught.value.reason) == (503, "ServiceUnavailable")
    assert 45 <= clock.time <= 60
    assert max(clock.sleeps) == 10


def test_a_pause_longer_than_our_patience_is_not_waited_for(door, clock):
    with (
        Server([Answer(429, b"later", {"Retry-After": "3600"})]) as server,
        pytest.raises(ServerError) as caught,
    ):
        door(server).get(POD, "ns", "x")
    assert (caught.value.retry_after, clock.sleeps) == (3600, [])


def test_a_server_that_never_answered_is_given_up_sooner(door, clock):
    """Most often the address is wrong, or a VPN is off."""
    with Server() as server:
        api = door(server)
    with pytest.raises(Unreachable, match="Connection refused"):
        api.get(POD, "ns", "x")
    assert 5 <= clock.time <= 10


def test_one_that_answered_before_is_waited_for_longer(door, clock):
    with Server([Answer(200, pod("x"))]) as server:
        api = door(server)
        api.get(POD, "ns", "x")
    with pytest.raises(Unreachable, match="refused"):
        api.get(POD, "ns", "x")
    assert 45 <= clock.time <= 60


def test_without_patience_a_request_is_sent_once(door, clock):
    with Server([Answer(503), Answer(200, pod("x"))]) as server, pytest.raises(ServerError):
        door(server).patient(0).get(POD, "ns", "x")
    assert (clock.sleeps, len(server.requests)) == ([], 1)


def test_a_quota_changed_meanwhile_is_another_try_not_a_conflict(door, clock):
    """A 409 for a create that does not say AlreadyExists asks for another try."""
    busy = status(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "q"', name="q")
    with Server([busy, Answer(201, pod("x"))]) as server:
        assert door(server).create(POD, "ns", pod("x")) == pod("x")
    assert clock.sleeps == [0.5]


def test_a_create_whose_answer_was_lost_ends_in_conflict(door):
    """The caller knows its own object by what it wrote into it."""
    with (
        Server([RESET, status(409, "AlreadyExists", 'pods "x" already exists', name="x")]) as server,
        pytest.raises(Conflict) as caught,
    ):
        door(server).create(POD, "ns", pod("x"))
    assert caught.value.reason == "AlreadyExists"


def test_the_servers_warnings_are_logged_once(door, caplog):
    warning = {"Warning": '299 - "unknown field \\"spec.a\\"", 299 - "deprecated"'}
    with Server(lambda asked: Answer(201, pod("x"), warning)) as server, caplog.at_level(logging.INFO):
        api = door(server)
        api.create(POD, "ns", pod("x"))
        api.create(POD, "ns", pod("x"))
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("nemo_run", 'the Kubernetes API server says: unknown field "spec.a"'),
        ("nemo_run", "the Kubernetes API server says: deprecated"),
    ]


def test_a_long_list_comes_in_pages(door):
    pages = [
        Answer(200, {"items": [pod("a")], "metadata": {"continue": "t1"}}),
        Answer(200, {"items": [pod("b")], "metadata": {"continue": ""}}),
    ]
    with Server(pages) as server:
        assert door(server).list(POD, "ns") == [pod("a"), pod("b")]
    assert server.requests[1].query == [("limit", "500"), ("continue", "t1")]


def test_a_page_that_the_server_forgot_starts_the_list_anew(door):
    """Nothing is given twice: the second time everything is asked for at once."""
    answers = [
        Answer(200, {"items": [pod("a")], "metadata": {"continue": "t1"}}),
        status(410, "Expired", "too old"),
        Answer(200, {"items": [pod("a"), pod("b")], "metadata": {}}),
    ]
    with Server(answers) as server:
        assert door(server).list(POD, "ns") == [pod("a"), pod("b")]
    assert server.requests[2].query == []


def test_rights_are_asked_of_the_server(door):
    with Server([Answer(201, {"status": {"allowed": True}}), Answer(201, {"status": {"allowed": False}})]) as server:
        api = door(server)
        assert api.can("create", "pods", namespace="ns", subresource="exec")
        assert not api.can("get", "trainjobs", namespace="ns", group="trainer.kubeflow.org")
    first, second = server.requests
    assert first.path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert first.json["spec"] == {
        "resourceAttributes": {"verb": "create", "resource": "pods", "namespace": "ns", "subresource": "exec"}
    }
    assert second.json["spec"] == {
        "resourceAttributes": {
            "verb": "get", "resource": "trainjobs", "namespace": "ns", "group": "trainer.kubeflow.org",
        }
    }  # fmt: skip


def test_a_schema_that_is_not_served_is_asked_for_again(door):
    """A refusal is not remembered: the operator may be installed meanwhile."""
    missing = status(404, "NotFound", "not served", name="trainer.kubeflow.org")
    with Server([missing, Answer(200, {"openapi": "3.0.0"})]) as server:
        api = door(server)
        with pytest.raises(NotFound):
            api.openapi("trainer.kubeflow.org", "v1alpha1")
        assert api.openapi("trainer.kubeflow.org", "v1alpha1") == {"openapi": "3.0.0"}


class TestWatch:
    def lines(self, *events):
        return [json.dumps({"type": kind, "object": item}).encode() + b"\n" for kind, item in events]

    def test_gives_what_is_there_and_then_the_changes(self, door, clock):
        listed = Answer(200, {"items": [pod("a")], "metadata": {"resourceVersion": "5"}})
        whole = b"".join(
            self.lines(("MODIFIED", pod("a", "6")), ("BOOKMARK", pod("", "9")), ("DELETED", pod("a", "10")))
        )
        answers = [listed, Answer(200, [])]
        answers[1].body = iter([whole[:40], whole[40:]])
        with Server([*answers, Answer(200, b""), Answer(200, b"")]) as server:
            events = list(door(server).watch(POD, "ns", labels="a=b", timeout=2))
        assert events == [
            Event("ADDED", pod("a")),
            Event("MODIFIED", pod("a", "6")),
            Event("DELETED", pod("a", "10")),
        ]
        assert [dict(asked.query).get("resourceVersion") for asked in server.requests] == [None, "5", "10", "10"]
        assert server.requests[1].query == [
            ("labelSelector", "a=b"),
            ("resourceVersion", "5"),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", "2"),
        ]
        assert clock.sleeps == [1.0, 1.0]

    @pytest.mark.parametrize("in_stream", [True, False], ids=["as an event", "as a status"])
    def test_lists_again_where_the_place_is_forgotten(self, door, in_stream):
        """What went, came and changed meanwhile is told; what stayed is not."""
        expired = {"code": 410, "reason": "Expired", "message": "too old resource version"}
        before = {"items": [pod("gone"), pod("same"), pod("new", "1")], "metadata": {"resourceVersion": "5"}}
        after = {"items": [pod("same"), pod("new", "2"), pod("came")], "metadata": {"resourceVersion": "9"}}
        forgotten = (
            Answer(200, b"".join(self.lines(("ERROR", expired)))) if in_stream else status(410, "Expired", "too old")
        )
        with Server([Answer(200, before), forgotten, Answer(200, after), Answer(200, b"")]) as server:
            events = list(door(server).watch(POD, "ns", timeout=2))
        assert events[3:] == [
            Event("DELETED", pod("gone")),
            Event("MODIFIED", pod("new", "2")),
            Event("ADDED", pod("came")),
        ]

    def test_goes_on_after_a_cut(self, door):
        listed = Answer(200, {"items": [], "metadata": {"resourceVersion": "5"}})
        cut = Answer(200, iter([*self.lines(("ADDED", pod("a", "6"))), b'{"type": "ADD']), cut=True)
        rest = Answer(200, b"".join(self.lines(("ADDED", pod("b", "7")))))
        with Server([listed, cut, rest, Answer(200, b""), Answer(200, b"")]) as server:
            events = list(door(server).watch(POD, "ns", timeout=2))
        assert events == [Event("ADDED", pod("a", "6")), Event("ADDED", pod("b", "7"))]
        assert dict(server.requests[2].query)["resourceVersion"] == "6"

    def test_another_error_in_the_stream_is_raised(self, door):
        listed = Answer(200, {"items": [], "metadata": {"resourceVersion": "5"}})
        error = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not any more"}
        with (
            Server([listed, Answer(200, b"".join(self.lines(("ERROR", error))))]) as server,
            pytest.raises(NotAuthorized, match="not any more"),
        ):
            list(door(server).watch(POD, "ns", timeout=2))


class TestLog:
    def test_gives_the_bytes_as_they_are(self, door):
        with (
            Server([Answer(200, iter([b"ok\n\xe4", b"\n\xff\xfe\n"]))]) as server,
            door(server).open_log(
                "ns", "p", container="node", follow=True, since_time="2026-01-01T00:00:00Z", timestamps=True
            ) as stream,
        ):
            assert b"".join(stream) == b"ok\n\xe4\n\xff\xfe\n"
        (asked,) = server.requests
        assert asked.path == "/api/v1/namespaces/ns/pods/p/log"
        assert asked.query == [
            ("container", "node"), ("follow", "true"), ("sinceTime", "2026-01-01T00:00:00Z"), ("timestamps", "true"),
        ]  # fmt: skip

    def test_a_pod_that_has_no_log_yet_has_an_empty_one(self, door):
        """What a server says of a pod that is not scheduled."""
        with Server([Answer(204, b"")]) as server, door(server).open_log("ns", "p", container="node") as stream:
            assert list(stream) == []

    def test_options_for_what_is_over(self, door):
        with Server([Answer(200, b"old\n")]) as server:
            stream = door(server).open_log("ns", "p", container="node", previous=True, tail_lines=0)
            assert b"".join(stream) == b"old\n"
        assert server.requests[0].query == [("container", "node"), ("previous", "true"), ("tailLines", "0")]

    def test_a_connection_is_used_again_after_a_log_that_ended(self, door):
        with Server(lambda asked: Answer(200, iter([b"line\n"]))) as server:
            api = door(server)
            for _ in range(3):
                with api.open_log("ns", "p", container="node") as stream:
                    assert list(stream) == [b"line\n"]
            assert len(server.connections) == 1

    def test_a_cut_differs_from_an_end(self, door):
        with Server([Answer(200, iter([b"half"]), cut=True)]) as server:
            stream = door(server).open_log("ns", "p", container="node")
            got = []
            with pytest.raises(Unreachable, match="read log of pod p"):
                got.extend(stream)
        assert b"".join(got) in (b"half", b"")

    def test_refusals_come_before_the_first_byte(self, door):
        refused = status(400, "BadRequest", 'container "node" in pod "p" is waiting to start: ContainerCreating')
        with Server([refused]) as server, pytest.raises(Rejected, match="ContainerCreating"):
            door(server).open_log("ns", "p", container="node")

    @pytest.mark.parametrize("headers", [{}, {"Connection": "close"}], ids=["kept alive", "closed after"])
    @pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
    def test_closing_ends_a_reader_that_waits(self, door, certificate, secure, headers):
        """Ctrl-C must not hang on a quiet log."""
        hold = threading.Event()

        def quiet():
            yield b"first\n"
            hold.wait(30)

        tls = (certificate.cert, certificate.key) if secure else None
        with Server([Answer(200, quiet(), headers)], tls=tls) as server:
            cluster = {"certificate-authority": str(certificate.ca)} if secure else None
            stream = door(server, cluster=cluster).open_log("ns", "p", container="node", follow=True)
            got: list[bytes] = []
            reading = threading.Event()

            def read():
                for chunk in stream:
                    got.append(chunk)
                    reading.set()

            thread = threading.Thread(target=read)
            thread.start()
            assert reading.wait(10)
            stream.close()
            thread.join(10)
            alive = thread.is_alive()
            hold.set()
        assert (alive, got) == (False, [b"first\n"])


class TestCredentials:
    def test_are_read_anew_once_when_refused(self, tmp_path, clock):
        """A token that was rotated in the file is taken up after one 401."""
        file = tmp_path / "config"

        def answer(asked):
            kubeconfig(file, server.url, user={"token": "new"})
            return (
                Answer(200, pod("x"))
                if asked.headers["authorization"] == "Bearer new"
                else status(401, "Unauthorized", "Unauthorized")
            )

        with Server(answer) as server:
            kubeconfig(file, server.url, user={"token": "old"})
            api = KubeApi(Wire(lambda: auth.load([file]), clock=clock), clock=clock)
            assert api.get(POD, "ns", "x") == pod("x")
        assert [asked.headers["authorization"] for asked in server.requests] == ["Bearer old", "Bearer new"]
        assert clock.sleeps == []

    def test_can_be_read_anew_for_a_websocket(self, tmp_path):
        """Whose handshake was refused: it does not go through the requests."""
        file = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", user={"token": "old"})
        api = KubeApi(Wire(lambda: auth.load([file])))
        kubeconfig(file, "http://127.0.0.1:1", user={"token": "new"})
        headers = []
        for _ in range(2):
            target = api.websocket_target("ns", "p", container="c", command=["true"], stdin=False)
            headers += target.headers
            api.renew()
        assert headers == ["authorization: Bearer old", "authorization: Bearer new"]

    def test_that_stay_refused_are_an_error(self, door, clock):
        with (
            Server(lambda asked: status(401, "Unauthorized", "Unauthorized")) as server,
            pytest.raises(NotAuthorized) as caught,
        ):
            door(server).get(POD, "ns", "x")
        assert (caught.value.status, len(server.requests), clock.sleeps) == (401, 2, [])

    def test_threads_that_are_refused_together_read_them_once(self, tmp_path, clock):
        loads = []
        barrier = threading.Barrier(4)

        def answer(asked):
            return Answer(200, pod("x")) if asked.headers.get("authorization") else status(401, "Unauthorized", "no")

        with Server(answer) as server:
            file = kubeconfig(tmp_path / "config", server.url)

            def load():
                loads.append(1)
                if len(loads) > 1:
                    kubeconfig(file, server.url, user={"token": "t"})
                return auth.load([file])

            api = KubeApi(Wire(load, clock=clock), clock=clock)
            credentials = api._wire.credentials()

            def renew():
                barrier.wait()
                api._wire.renew(credentials)

            threads = [threading.Thread(target=renew) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert api.get(POD, "ns", "x") == pod("x")
        assert len(loads) == 2


class TestTls:
    def test_a_certificate_of_the_clusters_authority_is_taken(self, door, certificate):
        with Server([Answer(200, pod("x"))], tls=(certificate.cert, certificate.key)) as server:
            api = door(server, cluster={"certificate-authority": str(certificate.ca)})
            assert api.get(POD, "ns", "x") == pod("x")

    def test_a_sloppy_certificate_is_taken_as_kubectl_takes_it(self, door, tmp_path):
        """Python 3.13 refuses one without key identifiers unless told otherwise."""
        made = make_certificate(tmp_path, plain=True)
        with Server([Answer(200, pod("x"))], tls=(made.cert, made.key)) as server:
            assert door(server, cluster={"certificate-authority": str(made.ca)}).get(POD, "ns", "x") == pod("x")

    def test_another_authority_is_an_error_at_once(self, door, certificate, clock):
        """It says that it is TLS, after one new look at the configuration."""
        with (
            Server([], tls=(certificate.cert, certificate.key)) as server,
            pytest.raises(Unreachable, match=r"TLS: .*certificate verify failed"),
        ):
            door(server).get(POD, "ns", "x")
        assert (clock.sleeps, server.requests) == ([], [])

    def test_a_server_name_other_than_the_address(self, door, certificate):
        options = {"certificate-authority": str(certificate.ca), "tls-server-name": "kube.example"}
        with Server([Answer(200, pod("x"))], tls=(certificate.cert, certificate.key)) as server:
            assert door(server, cluster=options).get(POD, "ns", "x") == pod("x")
            options["tls-server-name"] = "other.example"
            with pytest.raises(Unreachable, match="TLS: "):
                door(server, cluster=options).get(POD, "ns", "x")


class TestWebSocketTarget:
    def test_goes_the_way_of_the_requests(self, door):
        with Server() as server:
            target = door(server, user={"token": "t"}).websocket_target(
                "ns", "p", container="mover", command=["sh", "-c", "a b&c"], stdin=True
            )
            host = server.url.removeprefix("http://")
        assert target.url == (
            f"ws://{host}/api/v1/namespaces/ns/pods/p/exec?container=mover&command=sh&command=-c&command=a+b%26c"
            "&stdin=true&stdout=true&stderr=true&tty=false"
        )
        assert target.headers == ["authorization: Bearer t"]
        assert target.proxy == {"http_no_proxy": ["*"]}

    def test_carries_certificates(self, door, certificate):
        with Server(tls=(certificate.cert, certificate.key)) as server:
            cluster = {"certificate-authority": str(certificate.ca), "tls-server-name": "kube.example"}
            user = {"client-certificate": str(certificate.cert), "client-key": str(certificate.key)}
            target = door(server, cluster=cluster, user=user).websocket_target(
                "ns", "p", container="c", command=["true"], stdin=False
            )
        assert target.url.startswith("wss://127.0.0.1:")
        assert {**target.sslopt, "cert_reqs": int(target.sslopt["cert_reqs"])} == {
            "cert_reqs": 2,
            "ca_certs": str(certificate.ca),
            "certfile": str(certificate.cert),
            "keyfile": str(certificate.key),
            "server_hostname": "kube.example",
        }

    def test_takes_the_proxy_that_requests_take(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HTTPS_PROXY", "http://me:p%40ss@proxy.example:3128")
        monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,.internal")
        for server, proxied in (("https://kube.example", True), ("https://10.1.2.3", False)):
            credentials = auth.load([kubeconfig(tmp_path / "config", server)])
            target = KubeApi(Wire(lambda found=credentials: found)).websocket_target(
                "ns", "p", container="c", command=["true"], stdin=False
            )
            assert (type(credentials.pool).__name__ == "ProxyManager") == proxied
            assert target.proxy == (
                {
                    "http_proxy_host": "proxy.example",
                    "http_proxy_port": 3128,
                    "proxy_type": "http",
                    "http_no_proxy": ["-"],
                    "http_proxy_auth": ("me", "p@ss"),
                }
                if proxied
                else {"http_no_proxy": ["*"]}
            )

    def test_the_library_takes_our_proxy_choice(self, monkeypatch):
        """Whatever the environment says: websocket-client would ask it if we said nothing."""
        from websocket._url import get_proxy_info

        from nemo_run._kube.streams import _proxy_options

        monkeypatch.setenv("https_proxy", "http://env.example:1")
        monkeypatch.setenv("no_proxy", "kube.example")

        def chosen(proxy):
            options = _proxy_options(proxy)
            return get_proxy_info(
                "kube.example", True, proxy_host=options.get("http_proxy_host"),
                proxy_port=options.get("http_proxy_port", 0), no_proxy=options["http_no_proxy"],
            )[:2]  # fmt: skip

        assert chosen(None) == (None, 0)
        assert chosen("http://proxy.example:3128") == ("proxy.example", 3128)

    def test_a_refused_handshake_is_an_error_of_ours(self, door):
        with Server() as server:
            error = door(server).error(
                "run sh in pod p", 403, b'{"kind": "Status", "message": "no exec"}', namespace="ns"
            )
        assert isinstance(error, NotAuthorized)
        assert str(error) == (f"run sh in pod p: no exec [403] (server {server.url}, context test, namespace ns)")


class TestConnect:
    def test_gives_the_same_door_until_the_file_changes(self, tmp_path):
        file = kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
        first = kube_api.connect(kubeconfig=str(file))
        assert kube_api.connect(kubeconfig=str(file)) is first
        assert kube_api.connect(kubeconfig=file, context="test") is not first
        kubeconfig(file, "http://127.0.0.1:22")
        assert kube_api.connect(kubeconfig=str(file)).server == "http://127.0.0.1:22"

    def test_keeps_one_door_however_often_the_file_changes(self, tmp_path):
        """A login that rewrites it each minute of a week must not fill the memory."""
        file = tmp_path / "config"
        before = len(kube_api._known)
        doors = []
        for number in range(5):
            kubeconfig(file, f"http://127.0.0.1:1{number}")
            os.utime(file, ns=(number, number))
            doors.append(weakref.ref(kube_api.connect(kubeconfig=file)))
        gc.collect()
        assert len(kube_api._known) == before + 1
        assert [door() is None for door in doors] == [True] * 4 + [False]

    def test_a_file_that_is_broken_for_a_moment_is_read_again(self, tmp_path):
        file = kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
        kube_api.connect(kubeconfig=file)
        file.write_text("")
        with pytest.raises(Unreachable, match="the file is empty"):
            kube_api.connect(kubeconfig=file)
        kubeconfig(file, "http://127.0.0.1:2222")
        assert kube_api.connect(kubeconfig=file).server == "http://127.0.0.1:2222"

    def test_a_file_that_went_is_an_error_of_ours(self, tmp_path, monkeypatch):
        monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(tmp_path / "gone"))
        with pytest.raises(Unreachable, match="gone: No such file"):
            kube_api.connect()

    def test_sends_nothing(self, tmp_path):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(0.05)
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            kube_api.connect(kubeconfig=kubeconfig(tmp_path / "config", address))
            with pytest.raises(TimeoutError):
                listener.accept()
