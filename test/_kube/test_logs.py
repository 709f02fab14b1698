"""Following over real sockets: a server whose pods and logs the test moves along."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable

import pytest
from fakes.answers import RESET, Answer, Asked, Server, kubeconfig, status

from nemo_run._kube import auth
from nemo_run._kube.api import KubeApi
from nemo_run._kube.demux import GAP, LogLine
from nemo_run._kube.logs import LogFollower
from nemo_run._kube.tail import node_index
from nemo_run._kube.wire import Wire
from nemo_run.exceptions import NotAuthorized, ServerError

WAIT = 20.0


def stamp(number: int) -> str:
    return f"2026-01-01T00:00:{number // 10:02d}.{number % 10:09d}Z"


def log(*numbers: int) -> bytes:
    """Give log lines as the kubelet gives them, ten a second."""
    return b"".join(f"{stamp(number)} line {number}\n".encode() for number in numbers)


def pod(name: str, state: str = "running", *, phase: str = "", restarts: int = 0, node: int | None = 0, **more) -> dict:
    annotations = {} if node is None else {"batch.kubernetes.io/job-completion-index": str(node)}
    container = {"name": "node", "state": {state: more.pop("told", {})}, "restartCount": restarts}
    if restarts:
        container["lastState"] = {"terminated": {"exitCode": 1}}
    default = {"running": "Running", "waiting": "Pending", "terminated": "Succeeded"}[state]
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations},
        "status": {"phase": phase or default, "containerStatuses": [container], **more},
    }


class Cluster:
    """Pods and their logs. A log is a function of what was asked: each request gets its own answer."""

    def __init__(self) -> None:
        self.pods: list[dict] | Answer = []
        self.logs: dict[str, Callable[[dict[str, str]], Answer]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.looks = 0

    def __call__(self, asked: Asked) -> Answer:
        query = dict(asked.query)
        if "watch" in query:
            return status(403, "Forbidden", 'User "u" cannot watch resource "pods"')
        if asked.path.endswith("/pods"):
            assert query == {"labelSelector": "job=x", "limit": "500"}
            self.looks += 1
            return self.pods if isinstance(self.pods, Answer) else Answer(200, {"items": self.pods})
        name = asked.path.split("/")[-2]
        assert (query.pop("container"), query.pop("timestamps")) == ("node", "true")
        self.asked.append((name, query))
        return self.logs[name](query)


class Watched(Cluster):
    """One that tells of its pods as they change."""

    def __init__(self) -> None:
        super().__init__()
        self.pods = []
        self.watchers = 0
        self._told: list[bytes] = []
        self._news = threading.Condition()

    def __call__(self, asked: Asked) -> Answer:
        query = dict(asked.query)
        if "watch" not in query:
            found = super().__call__(asked)
            if asked.path.endswith("/pods"):
                found.body["metadata"] = {"resourceVersion": "1"}
            return found
        self.watchers += 1
        return Answer(200, self._events(int(query["resourceVersion"]) - 1))

    def tell(self, kind: str, pod: dict) -> None:
        others = [other for other in self.pods if other["metadata"]["uid"] != pod["metadata"]["uid"]]
        self.pods = others if kind == "DELETED" else [*others, pod]
        with self._news:
            metadata = {**pod["metadata"], "resourceVersion": str(len(self._told) + 2)}
            event = {"type": kind, "object": {**pod, "metadata": metadata}}
            self._told.append(json.dumps(event).encode() + b"\n")
            self._news.notify_all()

    def _events(self, position: int) -> Iterable[bytes]:
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            with self._news:
                if len(self._told) == position:
                    self._news.wait(0.05)
                news, position = self._told[position:], len(self._told)
            # An empty chunk ends an answer.
            yield b"".join(news) or b" \n"


def since(data: bytes, query: dict[str, str]) -> bytes:
    """Give what of a log the kubelet gives: whole seconds."""
    wanted = query.get("sinceTime", "")[:19].encode()
    return b"".join(line + b"\n" for line in data.split(b"\n")[:-1] if line[:19] >= wanted)


def gap(name: str, attempts: str = "attempt 1", node: int | None = 0) -> LogLine:
    return LogLine(name, node, f"{GAP} pod {name}, {attempts}", gap=True)


def lines(name: str, *numbers: int, node: int | None = 0) -> list[LogLine]:
    return [LogLine(name, node, f"line {number}", stamp(number)) for number in numbers]


class Following:
    """A follower in a thread of its own, and what it said."""

    def __init__(self, server: Server, tmp_path, **options) -> None:
        file = kubeconfig(tmp_path / "config", server.url)
        self.lines: list[LogLine] = []
        self.states: list[str] = []
        self.over = threading.Event()
        self.asked = 0
        self.error: BaseException | None = None
        self.follower = LogFollower(
            KubeApi(Wire(lambda: auth.load([file]))),
            "ns",
            selector="job=x",
            container="node",
            write=options.pop("write", self.lines.append),
            on_state=self.states.append,
            finished=options.pop("finished", self._finished),
            interval=0.05,
            **options,
        )
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _finished(self) -> bool:
        self.asked += 1
        return self.over.is_set()

    def _run(self) -> None:
        try:
            self.follower.run()
        except BaseException as error:
            self.error = error

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT
        while not condition():
            assert time.monotonic() < deadline, (self.lines, self.states, self.error)
            time.sleep(0.01)

    def end(self) -> None:
        self.over.set()
        self.thread.join(WAIT)
        assert not self.thread.is_alive()
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("log of")] == []


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def follow(cluster, tmp_path):
    """Give a function that starts to follow; whatever happens it is ended."""
    with Server(cluster) as server:
        started: list[Following] = []

        def follow(**options) -> Following:
            started.append(Following(server, tmp_path, **options))
            return started[-1]

        yield follow
        for following in started:
            following.follower.close()
            following.over.set()
            following.thread.join(WAIT)


def held(chunks: Iterable[bytes], hold: threading.Event) -> Iterable[bytes]:
    """Give an answer's chunks that stays open until it is let go."""
    yield from chunks
    hold.wait(WAIT)


def test_everything_from_the_first_line_and_every_pod(cluster, follow):
    """Fifty lines before we come, twelve pods at once."""
    names = [f"p{number}" for number in range(12)]
    cluster.pods = [pod(name, node=number) for number, name in enumerate(names)]
    hold = threading.Event()
    for name in names:
        cluster.logs[name] = lambda query: Answer(200, held([log(*range(50))], hold))
    following = follow()
    following.until(lambda: len(following.lines) == 600)
    cluster.pods = [pod(name, "terminated", node=number) for number, name in enumerate(names)]
    for name in names:
        cluster.logs[name] = lambda query: Answer(200, since(log(*range(51)), query))
    hold.set()
    following.end()
    for number, name in enumerate(names):
        got = [item for item in following.lines if item.pod == name]
        assert got == lines(name, *range(51), node=number)
    assert all(query.get("follow") == "true" and "tailLines" not in query for _, query in cluster.asked)


def test_a_pod_is_waited_for_with_the_reason(cluster, follow):
    """No pod, a pod that cannot start, and one that says nothing are three different things."""
    following = follow()
    following.until(lambda: following.states == ["no pod yet"])
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/5 nodes"}
    cluster.pods = [{**pod("a"), "status": {"phase": "Pending", "conditions": [unschedulable]}}]
    following.until(lambda: following.states[-1] == "pod a: Unschedulable: 0/5 nodes")
    cluster.pods = [pod(name, "waiting", told={"reason": "ContainerCreating"}) for name in ("b", "a")]
    following.until(lambda: following.states[-1] == "2 pods (a, …): ContainerCreating")
    hold = threading.Event()
    cluster.logs["a"] = cluster.logs["b"] = lambda query: Answer(200, held([], hold))
    cluster.pods = [pod("a"), pod("b")]
    following.until(lambda: following.states[-1] == "2 pods (a, …): running, no output yet")
    cluster.pods = [pod("a", "terminated"), pod("b", "terminated")]
    cluster.logs["a"] = cluster.logs["b"] = lambda query: Answer(200, b"")
    hold.set()
    following.end()
    assert following.states[-1] == "the job ended, and its pods wrote nothing"


def test_a_job_that_ends_without_a_pod_says_so(cluster, follow):
    following = follow()
    following.until(lambda: cluster.looks > 3)
    following.end()
    assert following.states == ["no pod yet", "the job ended, and no pod of it was seen running"]


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "ended"])
def test_a_stream_that_stops_early_is_taken_up_where_it_was(cluster, follow, cut):
    """A proxy ended it while the pod runs: each line comes once, none is missing."""
    answers = iter(
        [
            lambda query: Answer(200, iter([log(1, 2, 11, 12), b"2026-01-01T00:00:01.00"]), cut=cut),
            lambda query: Answer(503, b"no"),
            lambda query: Answer(200, iter([since(log(1, 2, 11, 12, 13), query)]), cut=cut),
        ]
    )
    last = lambda query: Answer(200, since(log(1, 2, 11, 12, 13, 14), query))  # noqa: E731
    cluster.pods = [pod("a")]
    cluster.logs["a"] = lambda query: next(answers, last)(query)
    following = follow()
    following.until(lambda: len(following.lines) == 6)
    cluster.pods = [pod("a", "terminated")]
    following.end()
    assert following.lines == lines("a", 1, 2, 11, 12, 13, 14)
    assert [query.get("sinceTime") for _, query in cluster.asked[:4]] == [None] + ["2026-01-01T00:00:01Z"] * 3


def test_a_rotated_log_tells_that_lines_may_be_missing(cluster, follow):
    answers = iter([log(1, 2)])
    cluster.pods = [pod("a")]
    cluster.logs["a"] = lambda query: NO_PREVIOUS if "previous" in query else Answer(200, next(answers, log(30, 31)))
    following = follow()
    following.until(lambda: len(following.lines) == 5)
    cluster.pods = [pod("a", "terminated")]
    following.end()
    assert following.lines == [*lines("a", 1, 2), gap("a"), *lines("a", 30, 31)]


def test_a_log_that_was_rotated_and_is_empty_since_is_a_gap_too(cluster, follow):
    answers = iter([log(1, 2)])
    cluster.pods = [pod("a")]
    cluster.logs["a"] = lambda query: NO_PREVIOUS if "previous" in query else Answer(200, next(answers, b""))
    following = follow()
    following.until(lambda: len(following.lines) == 3)
    cluster.pods = [pod("a", "terminated")]
    following.end()
    assert following.lines == [*lines("a", 1, 2), gap("a")]


def test_bytes_that_are_no_text_do_not_stop_it(cluster, follow):
    data = b"".join(
        stamp(number).encode() + b" " + text + b"\n" for number, text in enumerate([b"ok", b"\xe4", b"\xff\xfe"])
    )
    cluster.pods = [pod("a", "terminated")]
    cluster.logs["a"] = lambda query: Answer(200, iter([data[:34], data[34:]]))
    following = follow()
    following.end()
    assert [item.text for item in following.lines] == ["ok", "\ufffd", "\ufffd\ufffd"]


def test_a_last_line_without_an_end_is_given(cluster, follow):
    cluster.pods = [pod("a", "terminated")]
    cluster.logs["a"] = lambda query: Answer(200, log(1) + stamp(2).encode() + b" line 2")
    following = follow()
    following.end()
    assert following.lines == lines("a", 1, 2)


NO_PREVIOUS = status(400, "BadRequest", 'previous terminated container "node" in pod "a" not found')


class TestRestarts:
    def answer(self, now: bytes, before: bytes | None) -> Callable[[dict[str, str]], Answer]:
        def answer(query):
            if query.get("previous") != "true":
                return Answer(200, since(now, query))
            return NO_PREVIOUS if before is None else Answer(200, since(before, query))

        return answer

    def test_the_rest_of_the_container_before_comes_first(self, cluster, follow):
        cluster.pods = [pod("a")]
        cluster.logs["a"] = self.answer(log(1, 2), None)
        following = follow()
        following.until(lambda: len(following.lines) == 2)
        cluster.logs["a"] = self.answer(log(40), log(1, 2, 3))
        cluster.pods = [pod("a", restarts=1)]
        following.until(lambda: len(following.lines) == 4)
        cluster.pods = [pod("a", "terminated", restarts=1)]
        following.end()
        assert following.lines == lines("a", 1, 2, 3, 40)
        assert "pod a: container node was restarted (restart 1)" in following.states

    def test_a_crashing_container_is_followed_through_its_pauses(self, cluster, follow):
        """CrashLoopBackOff: the log of the container that ended is read once, the next one when it is there."""
        waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
        crashed = pod("a", "waiting", told=waiting, phase="Running")
        crashed["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 1}}
        cluster.pods = [crashed]
        cluster.logs["a"] = self.answer(log(1), None)
        following = follow()
        following.until(lambda: len(following.lines) == 1 and cluster.looks > 5)
        assert len(cluster.asked) == 1
        cluster.logs["a"] = self.answer(log(40), log(1))
        cluster.pods = [pod("a", restarts=1)]
        following.until(lambda: len(following.lines) == 2)
        cluster.pods = [pod("a", "terminated", restarts=1)]
        following.end()
        assert following.lines == lines("a", 1, 40)

    def test_one_that_the_pods_status_does_not_show_yet(self, cluster, follow):
        """The log is the new container's before the API server has heard of the restart: nothing is lost or doubled."""
        cluster.pods = [pod("a")]
        cluster.logs["a"] = self.answer(log(1, 2), None)
        following = follow()
        following.until(lambda: len(following.lines) == 2)
        cluster.logs["a"] = self.answer(log(40, 41), log(1, 2, 3))
        following.until(lambda: len(following.lines) == 5)
        cluster.pods = [pod("a", restarts=1)]
        following.until(lambda: "pod a: container node was restarted (restart 1)" in following.states)
        cluster.logs["a"] = self.answer(log(40, 41, 42), log(1, 2, 3))
        cluster.pods = [pod("a", "terminated", restarts=1)]
        following.end()
        assert following.lines == lines("a", 1, 2, 3, 40, 41, 42)

    def test_one_before_our_first_look_that_the_status_shows_later(self, cluster, follow):
        """Its log comes late, but it comes."""
        cluster.pods = [pod("a")]
        cluster.logs["a"] = self.answer(log(40), log(1, 2))
        following = follow()
        following.until(lambda: len(following.lines) == 1)
        cluster.pods = [pod("a", "terminated", restarts=1)]
        following.end()
        assert following.lines == lines("a", 40, 1, 2)

    def test_one_that_came_before_us_is_read_too(self, cluster, follow):
        cluster.pods = [pod("a", "terminated", restarts=1)]
        cluster.logs["a"] = self.answer(log(40), log(1, 2))
        following = follow()
        following.end()
        assert following.lines == lines("a", 1, 2, 40)

    def test_earlier_ones_are_lost_and_that_is_told(self, cluster, follow):
        cluster.pods = [pod("a", "terminated", restarts=3)]
        cluster.logs["a"] = self.answer(log(40), log(30))
        following = follow()
        following.end()
        assert following.lines == [gap("a", "attempts 1 to 2"), *lines("a", 30, 40)]

    @pytest.mark.parametrize("restarts", [1, 2], ids=["rotated", "two at once"])
    def test_a_hole_before_the_previous_log_is_told_once(self, cluster, follow, restarts):
        """What was read last is not in it: it was rotated, or is another container's."""
        cluster.pods = [pod("a")]
        cluster.logs["a"] = lambda query: Answer(200, iter([since(log(1, 2), query)]), cut=True)
        following = follow()
        following.until(lambda: len(following.lines) == 2)
        after = self.answer(log(40), log(30, 31))
        troubles = iter([Answer(503, b""), RESET])
        cluster.logs["a"] = lambda query: Answer(503, b"") if "previous" not in query else next(troubles, after(query))
        cluster.pods = [pod("a", "terminated", restarts=restarts)]
        following.until(lambda: len(following.lines) == 5)
        cluster.logs["a"] = after
        following.end()
        assert following.lines == [*lines("a", 1, 2), gap("a"), *lines("a", 30, 31, 40)]

    def test_a_previous_log_that_is_gone_is_told(self, cluster, follow):
        cluster.pods = [pod("a", "terminated", restarts=1)]
        cluster.logs["a"] = self.answer(log(40), None)
        following = follow()
        following.end()
        assert following.lines == [gap("a"), *lines("a", 40)]


def test_pods_that_come_later_are_followed(cluster, follow):
    """A job that is restarted as a whole gets new pods."""
    cluster.pods = [pod("a", "terminated", phase="Failed")]
    cluster.logs["a"] = lambda query: Answer(200, since(log(1), query))
    cluster.logs["b"] = lambda query: Answer(200, since(log(2), query))
    following = follow()
    following.until(lambda: len(following.lines) == 1)
    cluster.pods = [pod("b", "terminated")]
    following.end()
    assert following.lines == [*lines("a", 1), *lines("b", 2)]


def test_a_pod_deleted_after_its_stream_was_cut_may_have_said_more(cluster, follow):
    cluster.pods = [pod("a")]
    cluster.logs["a"] = lambda query: Answer(200, iter([log(1)]), cut=True)
    following = follow()
    following.until(lambda: len(following.lines) == 1)
    cluster.pods = []
    following.until(lambda: len(following.lines) == 2)
    following.end()
    assert following.lines == [*lines("a", 1), gap("a")]


def test_a_pod_deleted_after_its_log_ended_has_said_all(cluster, follow):
    hold = threading.Event()
    cluster.pods = [pod("a")]
    cluster.logs["a"] = lambda query: Answer(200, held([log(1)], hold))
    following = follow()
    following.until(lambda: len(following.lines) == 1)
    cluster.pods = []
    hold.set()
    following.end()
    assert following.lines == lines("a", 1)


def test_what_the_kubelet_says_instead_of_a_log_is_no_output(cluster, follow):
    cluster.pods = [pod("a", "terminated")]
    cluster.logs["a"] = lambda query: Answer(200, b"unable to retrieve container logs for containerd://1f2e")
    following = follow()
    following.end()
    assert following.lines == [gap("a")]
    assert "pod a: unable to retrieve container logs for containerd://1f2e" in following.states


def test_an_api_that_is_away_is_outlasted(cluster, follow):
    """The list and the question for the job's own state fail for a while."""
    over = threading.Event()
    answers = iter([False, ServerError("get TrainJob x", "etcd is away", status=500), False])

    def finished():
        answer = next(answers, over.is_set())
        if isinstance(answer, ServerError):
            raise answer
        return answer

    cluster.pods = Answer(503, b"away")
    following = follow(finished=finished)
    following.until(lambda: cluster.looks > 3)
    cluster.pods = [pod("a", "terminated")]
    cluster.logs["a"] = lambda query: Answer(200, since(log(1), query))
    following.until(lambda: len(following.lines) == 1)
    over.set()
    following.end()
    assert following.error is None
    assert following.states[:3] == [
        "cannot look at the pods: away; trying again",
        "cannot tell whether the job has ended: etcd is away; asking again",
        "cannot look at the pods: away; trying again",
    ]


def test_a_server_that_asks_for_a_pause_gets_it(cluster, follow):
    """Retry-After holds for the looks at the pods, which are not tried again otherwise."""
    cluster.pods = Answer(429, b"busy", {"Retry-After": "60"})
    following = follow()
    following.until(lambda: following.states == ["cannot look at the pods: busy; trying again"])
    following.until(lambda: following.asked > 10)
    assert cluster.looks == 1


@pytest.mark.parametrize("what", ["pods", "logs"])
def test_without_the_right_it_ends_with_an_error(cluster, follow, what):
    refused = status(403, "Forbidden", 'User "u" cannot get resource "pods/log"')
    cluster.pods = refused if what == "pods" else [pod("a")]
    cluster.logs["a"] = lambda query: refused
    following = follow()
    following.thread.join(WAIT)
    assert isinstance(following.error, NotAuthorized)


def test_a_container_that_outlives_its_job_is_left_after_a_while(cluster, follow):
    hold = threading.Event()
    cluster.pods = [pod("a")]
    cluster.logs["a"] = lambda query: Answer(200, held([log(1)], hold))
    following = follow(linger=0.3)
    following.until(lambda: len(following.lines) == 1)
    following.end()
    hold.set()
    assert following.lines == lines("a", 1)


def test_an_error_of_the_writer_ends_everything(cluster, follow):
    """A full disk, or Ctrl-C: no thread stays behind, however quiet the logs are."""
    hold = threading.Event()
    cluster.pods = [pod(name) for name in ("a", "b")]
    cluster.logs["a"] = lambda query: Answer(200, held([log(1)], hold))
    cluster.logs["b"] = lambda query: Answer(200, held([], hold))

    def write(line):
        raise KeyboardInterrupt

    following = follow(write=write)
    following.thread.join(WAIT)
    following.end()
    hold.set()
    assert isinstance(following.error, KeyboardInterrupt)


def test_closing_from_another_thread_ends_it_while_the_job_goes_on(cluster, follow):
    hold = threading.Event()
    cluster.pods = [pod("a")]
    cluster.logs["a"] = lambda query: Answer(200, held([log(1)], hold))
    following = follow()
    following.until(lambda: len(following.lines) == 1)
    following.follower.close()
    following.thread.join(WAIT)
    hold.set()
    assert (following.thread.is_alive(), following.over.is_set(), following.error) == (False, False, None)


def test_a_slow_writer_holds_the_readers_back(cluster, follow):
    """What is read but not written yet stays small."""
    sent = []

    def flood():
        for number in range(2000):
            sent.append(number)
            yield (stamp(number % 600).encode() + b" " + b"x" * 1000 + b"\n") * 60

    gate = threading.Event()
    got = []

    def write(line):
        gate.wait(WAIT)
        got.append(1)

    cluster.pods = [pod("a")]
    cluster.logs["a"] = lambda query: Answer(200, flood())
    following = follow(write=write)
    following.until(following.follower._inbox.full)
    assert len(sent) < 500
    cluster.pods = [pod("a", "terminated")]
    cluster.logs["a"] = lambda query: Answer(200, b"")
    following.follower.close()
    gate.set()
    following.end()


@pytest.mark.parametrize(
    ("metadata", "index"),
    [
        ({}, None),
        ({"labels": {"batch.kubernetes.io/job-completion-index": "3"}}, 3),
        (
            {
                "labels": {"batch.kubernetes.io/job-completion-index": "3"},
                "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
            },
            0,
        ),
    ],
)
def test_the_number_of_a_node(metadata, index):
    assert node_index({"metadata": metadata}) == index


def crashed(name: str, restarts: int, **more) -> dict:
    """Give a pod whose container waits for its next start."""
    found = pod(name, "waiting", told={"reason": "CrashLoopBackOff"}, phase="Running", restarts=restarts, **more)
    found["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 1}}
    return found


class TestWatched:
    """Pods that may be watched: what is there for a moment only is heard of."""

    @pytest.fixture
    def cluster(self):
        return Watched()

    def test_a_pod_that_was_deleted_unread_is_a_gap(self, cluster, follow):
        cluster.logs["a"] = lambda query: status(404, "NotFound", 'pods "a" not found')
        following = follow()
        following.until(lambda: cluster.watchers > 0)
        cluster.tell("ADDED", pod("a", "running", restarts=1))
        cluster.tell("DELETED", pod("a", "running", restarts=1))
        following.until(lambda: len(following.lines) == 2)
        following.end()
        assert following.lines == [gap("a"), gap("a", "attempt 2")]

    def test_one_that_had_not_started_is_none(self, cluster, follow):
        following = follow()
        following.until(lambda: cluster.watchers > 0)
        cluster.tell("ADDED", pod("a", "waiting"))
        cluster.tell("DELETED", pod("a", "waiting"))
        following.until(lambda: following.asked > 5)
        following.end()
        assert following.lines == []

    def test_a_pod_deleted_after_its_log_was_read_has_said_all(self, cluster, follow):
        read = iter([Answer(200, log(1, 2))])
        cluster.logs["a"] = lambda query: next(read, status(404, "NotFound", 'pods "a" not found'))
        following = follow()
        following.until(lambda: cluster.watchers > 0)
        cluster.tell("ADDED", pod("a"))
        following.until(lambda: len(following.lines) == 2)
        cluster.tell("MODIFIED", pod("a", "terminated", phase="Running"))
        cluster.tell("DELETED", pod("a", "terminated", phase="Running"))
        following.end()
        assert following.lines == lines("a", 1, 2)

    def test_a_last_line_without_its_end_is_given_also_of_a_pod_that_is_deleted(self, cluster, follow):
        read = iter([Answer(200, log(1) + stamp(2).encode() + b" line 2")])
        cluster.logs["a"] = lambda query: next(read, status(404, "NotFound", 'pods "a" not found'))
        following = follow()
        following.until(lambda: cluster.watchers > 0)
        cluster.tell("ADDED", pod("a"))
        following.until(lambda: len(following.lines) == 1 and len(cluster.asked) > 1)
        cluster.tell("DELETED", pod("a"))
        following.end()
        assert following.lines == lines("a", 1, 2)

    def test_a_log_that_the_kubelet_has_deleted_is_a_gap_also_of_a_pod_that_is_deleted(self, cluster, follow):
        lost = b'failed to try resolving symlinks in path "/var/log/pods/0.log": no such file or directory'
        read = iter([Answer(200, lost)])
        cluster.logs["a"] = lambda query: next(read, status(404, "NotFound", 'pods "a" not found'))
        following = follow()
        following.until(lambda: cluster.watchers > 0)
        cluster.tell("ADDED", pod("a"))
        following.until(lambda: len(cluster.asked) > 1)
        cluster.tell("DELETED", pod("a"))
        following.end()
        assert following.lines == [gap("a")]

    def test_a_start_whose_log_ended_before_two_restarts_were_seen_is_not_missing(self, cluster, follow):
        first = iter([Answer(200, log(1))])
        refused = status(400, "BadRequest", "is waiting to start")
        cluster.logs["a"] = lambda query: next(first, refused)
        following = follow()
        following.until(lambda: cluster.watchers > 0)
        cluster.tell("ADDED", pod("a"))
        following.until(lambda: len(cluster.asked) > 1)
        cluster.logs["a"] = lambda query: Answer(200, since(log(30) if "previous" in query else log(40), query))
        cluster.tell("MODIFIED", pod("a", "terminated", restarts=2))
        following.end()
        assert following.lines == lines("a", 1, 30, 40)

    def test_starts_that_nobody_read_are_named_also_while_the_next_is_waited_for(self, cluster, follow):
        """Of a container that waits to be started again "previous" is the last one, not the one before."""
        cluster.logs["a"] = lambda query: Answer(200, since(log(40), query))
        following = follow()
        following.until(lambda: cluster.watchers > 0)
        cluster.tell("ADDED", crashed("a", 2))
        following.until(lambda: len(following.lines) == 2)
        cluster.tell("DELETED", crashed("a", 2))
        following.end()
        assert following.lines == [gap("a", "attempts 1 to 2"), *lines("a", 40)]

    def test_a_log_that_is_refused_is_asked_for_again_at_once(self, cluster, follow):
        """The kubelet says "waiting to start" although the status shows that it runs."""
        early = status(400, "BadRequest", 'container "node" in pod "a" is waiting to start: ContainerCreating')
        answers = iter([early, early])
        cluster.logs["a"] = lambda query: next(answers, Answer(200, since(log(1), query)))
        following = follow()
        following.until(lambda: cluster.watchers > 0)
        cluster.tell("ADDED", pod("a"))
        following.until(lambda: len(following.lines) == 1)
        cluster.tell("MODIFIED", pod("a", "terminated"))
        following.end()
        assert following.lines == lines("a", 1)

    def test_a_log_that_cannot_be_read_to_the_end_is_a_gap(self, cluster, follow):
        """The node is away when the job ends."""
        cluster.logs["a"] = lambda query: Answer(503, b"no route to node")
        following = follow(linger=0.3)
        following.until(lambda: cluster.watchers > 0)
        cluster.tell("ADDED", pod("a"))
        following.until(lambda: len(cluster.asked) > 1)
        following.end()
        assert following.lines == [gap("a")]


def test_pods_that_were_gone_before_anybody_came_are_a_gap(cluster, follow):
    following = follow(finished=lambda: True)
    following.end()
    assert [(line.text, line.gap) for line in following.lines] == [
        (f"{GAP} the job's pods were gone before they could be read", True)
    ]


class TestRefusals:
    """A server that says no, for a while or for good."""

    REFUSED = status(403, "Forbidden", "no rights")

    @pytest.mark.parametrize("what", ["pods", "logs", "job"])
    def test_what_was_given_before_is_asked_for_again(self, cluster, follow, what):
        answers = iter([False, NotAuthorized("get TrainJob x", "no rights", status=403)])
        over = threading.Event()

        def finished():
            answer = next(answers, over.is_set()) if what == "job" else over.is_set()
            if isinstance(answer, NotAuthorized):
                raise answer
            return answer

        cluster.pods = [pod("a")]
        cluster.logs["a"] = lambda query: Answer(200, iter([since(log(1), query)]), cut=True)
        following = follow(finished=finished)
        following.until(lambda: len(following.lines) == 1)
        if what == "pods":
            cluster.pods = self.REFUSED
        if what == "logs":
            cluster.logs["a"] = lambda query: self.REFUSED
        following.until(lambda: any("no rights" in said for said in following.states) or what == "pods")
        cluster.pods = [pod("a", "terminated")]
        cluster.logs["a"] = lambda query: Answer(200, since(log(1, 2), query))
        following.until(lambda: len(following.lines) == 2)
        over.set()
        following.end()
        assert following.error is None
        assert following.lines == lines("a", 1, 2)

    def test_one_who_persists_is_not_sent_away(self, cluster, follow):
        cluster.pods = self.REFUSED
        following = follow(persist=True)
        following.until(lambda: "cannot look at the pods: no rights; trying again" in following.states)
        cluster.pods = [pod("a", "terminated")]
        cluster.logs["a"] = lambda query: Answer(200, since(log(1), query))
        following.until(lambda: len(following.lines) == 1)
        following.end()
        assert following.lines == lines("a", 1)

    def test_a_log_that_stays_refused_to_the_end_may_lack_lines(self, cluster, follow):
        cluster.pods = [pod("a")]
        cluster.logs["a"] = lambda query: self.REFUSED
        following = follow(persist=True, linger=0.5)
        following.until(lambda: "cannot read log of pod a: no rights; trying again" in following.states)
        following.end()
        assert [(line.pod, line.gap) for line in following.lines] == [("a", True)]

    def test_pods_that_cannot_be_looked_at_to_the_end_may_have_said_more(self, cluster, follow):
        cluster.pods = self.REFUSED
        following = follow(persist=True, linger=0.5)
        following.until(lambda: following.states != [])
        following.end()
        assert following.lines[-1].text == f"{GAP} the job's pods could not be looked at after its end"

    def test_pods_of_another_job_are_not_followed(self, cluster, follow):
        cluster.pods = [pod("a", "terminated"), pod("b", "terminated")]
        cluster.logs["a"] = cluster.logs["b"] = lambda query: Answer(200, log(1))
        following = follow(ours=lambda found: found["metadata"]["name"] == "a")
        following.until(lambda: len(following.lines) == 1)
        following.end()
        assert following.lines == lines("a", 1)
