"""Logs and exec between a client and a node: the node here is a stand-in, the sockets are real."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import pytest
import websocket
from serving import PODS, Serving, pod, serving

from nemo_run.testing import Cut
from nemo_run.testing._errors import ApiError, bad_request
from nemo_run.testing._sessions import CLOSE, ERROR, STDERR, STDIN, STDOUT

Json = dict[str, Any]

SUCCESS = {"metadata": {}, "status": "Success"}


class LocalNode:
    """Runs commands without any container, and logs what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.ended: list[int | None] = []
        self.refusal: ApiError | None = None
        self.more = asyncio.Event()

    async def exec(self, namespace: str, pod: str, container: str, command: list[str], *, stdin: bool) -> Any:
        self.asked.append((namespace, pod, container, command, stdin))
        if self.refusal is not None:
            raise self.refusal
        pipe = asyncio.subprocess.PIPE
        source = pipe if stdin else asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(*command, stdin=source, stdout=pipe, stderr=pipe)
        return Tame(process, self.ended)

    async def log(self, namespace: str, pod: str, container: str, **query: Any) -> AsyncIterator[bytes]:
        self.asked.append((namespace, pod, container, query))
        if self.refusal is not None:
            raise self.refusal
        yield b"one\n"
        if query["follow"]:
            await self.more.wait()
        yield b"two\n"


class Tame:
    """A process whose ``kill`` may come after its end."""

    def __init__(self, process: asyncio.subprocess.Process, ended: list[int | None]) -> None:
        self._process = process
        self._ended = ended
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        self._ended.append(self._process.returncode)
        if self._process.returncode is None:
            self._process.kill()


@pytest.fixture
def node() -> LocalNode:
    return LocalNode()


@pytest.fixture
def server(node: LocalNode) -> Iterator[Serving]:
    with serving(node=node) as running:
        running.ask("POST", PODS, pod("p", nodeName="n"))
        running.ask("POST", PODS, pod("q"))
        two = [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]
        running.ask(
            "POST", PODS, pod("two", nodeName="n", containers=two, initContainers=[{"name": "i", "image": "x"}])
        )
        yield running


def connect(server: Serving, *command: str, protocol: str = "v5.channel.k8s.io", **query: str) -> websocket.WebSocket:
    wanted = {"stdout": "true", "stderr": "true", **query}
    url = f"{server.websocket}{PODS}/p/exec?{urlencode([*wanted.items(), *(('command', word) for word in command)])}"
    header = [f"Authorization: Bearer {server.cluster.token}"]
    return websocket.create_connection(url, header=header, subprotocols=[protocol], timeout=10)


def received(socket: websocket.WebSocket) -> dict[int, bytes]:
    """Give what came on each channel, up to the end."""
    channels: dict[int, bytes] = {}
    try:
        while True:
            opcode, frame = socket.recv_data()
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                return channels
            channels[frame[0]] = channels.get(frame[0], b"") + frame[1:]
    finally:
        socket.shutdown()


def status(channels: dict[int, bytes]) -> Json:
    found: Json = json.loads(channels[ERROR])
    return found


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
def test_output_and_exit_code(server: Serving, node: LocalNode, protocol: str) -> None:
    channels = received(connect(server, "sh", "-c", "echo out; echo err >&2; exit 3", protocol=protocol))
    assert (channels[STDOUT], channels[STDERR]) == (b"out\n", b"err\n")
    assert status(channels) == {
        "metadata": {},
        "status": "Failure",
        "message": "command terminated with non-zero exit code: command terminated with exit code 3",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    }
    assert node.asked == [("default", "p", "c", ["sh", "-c", "echo out; echo err >&2; exit 3"], False)]


def test_every_byte_arrives(server: Serving) -> None:
    data = bytes(range(256)) * 4096
    socket = connect(server, "head", "-c", str(len(data)), stdin="true")
    socket.send_binary(bytes([STDIN]) + data)
    channels = received(socket)
    assert channels[STDOUT] == data
    assert status(channels) == SUCCESS


def test_version_5_can_close_stdin(server: Serving) -> None:
    socket = connect(server, "cat", stdin="true")
    socket.send_binary(bytes([STDIN]) + b"abc")
    socket.send_binary(bytes([CLOSE, STDIN]))
    channels = received(socket)
    assert (channels[STDOUT], status(channels)) == (b"abc", SUCCESS)


def test_a_command_that_stops_reading_still_tells_how_it_ended(server: Serving) -> None:
    """What is sent after its end is dropped."""
    socket = connect(server, "sh", "-c", "exec <&-; echo full >&2; exit 7", stdin="true")
    for _ in range(8):
        socket.send_binary(bytes([STDIN]) + b"x" * 65536)
    channels = received(socket)
    assert channels[STDERR] == b"full\n"
    assert status(channels)["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


def test_a_command_ends_with_its_client(server: Serving, node: LocalNode) -> None:
    socket = connect(server, "sleep", "60", stdin="true")
    socket.shutdown()

    async def killed() -> None:
        while not node.ended:
            await asyncio.sleep(0.01)

    server.loop.run(asyncio.wait_for(killed(), 10))


def test_a_command_that_cannot_start_says_so_on_its_channel(server: Serving, node: LocalNode) -> None:
    cause = 'error executing command in container: exec: "nope": executable file not found in $PATH'
    node.refusal = ApiError(500, "InternalError", f"Internal error occurred: {cause}")
    assert status(received(connect(server, "nope"))) == {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {cause}",
        "reason": "InternalError",
        "details": {"causes": [{"message": cause}]},
        "code": 500,
    }


@pytest.mark.parametrize(
    ("name", "query", "message"),
    [
        ("q", {"command": "ls", "stdout": "true"}, "pod q does not have a host assigned"),
        ("p", {"stdout": "true"}, "you must specify at least 1 command for execution"),
        ("p", {"command": "ls"}, "you must specify at least one of stdin, stdout, stderr"),
        ("p", {"command": "ls", "stdout": "1", "container": "x"}, "container x is not valid for pod p"),
        (
            "two",
            {"command": "ls", "stdout": "1"},
            "a container name must be specified for pod two, choose one of: [a b] or one of the init containers: [i]",
        ),
        (
            "p",
            {"command": "ls", "stdout": "1"},
            "unable to upgrade: request is missing the websocket or SPDY upgrade headers",
        ),
    ],
)
def test_an_impossible_exec_is_refused_before_the_upgrade(
    server: Serving, name: str, query: Json, message: str
) -> None:
    answer = server.ask("GET", f"{PODS}/{name}/exec", **query)
    assert (answer.status, answer.body["message"]) == (400, message)


def test_a_refusal_of_the_node_comes_before_the_upgrade(server: Serving, node: LocalNode) -> None:
    node.refusal = ApiError(500, "InternalError", 'unable to upgrade connection: container not found ("c")')
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    answer = server.ask("GET", f"{PODS}/p/exec", headers=upgrade, command="ls", stdout="1")
    assert (answer.status, answer.body["message"]) == (500, node.refusal.message)


def test_without_a_kubelet_there_is_no_exec() -> None:
    with serving() as server:
        server.ask("POST", PODS, pod("p", nodeName="n"))
        answer = server.ask("GET", f"{PODS}/p/exec", command="ls", stdout="1")
    assert (answer.status, answer.body["message"]) == (500, "error dialing backend: no kubelet")


def test_an_exec_can_be_cut(server: Serving) -> None:
    with server.cluster.faults.active(Cut("exec", after_bytes=100)):
        socket = connect(server, "cat", stdin="true")
        socket.send_binary(bytes([STDIN]) + b"x" * 1000)
        with pytest.raises((ConnectionError, websocket.WebSocketConnectionClosedException)):
            received(socket)
        assert status(received(connect(server, "true"))) == SUCCESS


def test_an_exec_can_fall_silent(server: Serving) -> None:
    with server.cluster.faults.active(Cut("exec", after_bytes=4, silent=True)):
        socket = connect(server, "sh", "-c", "echo 1234567; exit 1")
        assert socket.recv_data()[1] == bytes([STDOUT]) + b"1234"
        socket.settimeout(0.2)
        with pytest.raises(websocket.WebSocketTimeoutException):
            socket.recv_data()
        socket.shutdown()


def test_a_log_passes_the_questions_on(server: Serving, node: LocalNode) -> None:
    query = {
        "container": "b",
        "sinceTime": "2026-11-30T10:00:00.123456789Z",
        "timestamps": "true",
        "previous": "true",
        "tailLines": "7",
        "limitBytes": "9",
    }
    answer = server.ask("GET", f"{PODS}/two/log", **query)
    assert (answer.status, answer.body) == (200, "one\ntwo\n")
    [(namespace, name, container, asked)] = node.asked
    assert (namespace, name, container) == ("default", "two", "b")
    assert asked == {
        "follow": False,
        "since_time": datetime.fromisoformat("2026-11-30T10:00:00+00:00"),
        "timestamps": True,
        "previous": True,
        "tail_lines": 7,
        "limit_bytes": 9,
    }


def test_a_followed_log_comes_as_it_is_written(server: Serving, node: LocalNode) -> None:
    async def write() -> None:
        node.more.set()

    with server.following(f"{PODS}/p/log") as lines:
        assert next(lines) == b"one\n"
        server.loop.run(write())
        assert list(lines) == [b"two\n"]


def test_a_log_can_be_cut(server: Serving) -> None:
    with server.cluster.faults.active(Cut("log", after_bytes=6)), pytest.raises(http.client.IncompleteRead):
        server.ask("GET", f"{PODS}/p/log")
    assert server.ask("GET", f"{PODS}/p/log").body == "one\ntwo\n"


@pytest.mark.parametrize(
    ("name", "query", "expected", "message"),
    [
        ("nope", {}, 404, 'pods "nope" not found'),
        ("p", {"container": "x"}, 400, "container x is not valid for pod p"),
        ("p", {"sinceTime": "noon"}, 400, 'unable to decode sinceTime: parsing time "noon"'),
        ("p", {"tailLines": "-1"}, 400, None),
    ],
)
def test_an_impossible_log_is_refused(
    server: Serving, name: str, query: Json, expected: int, message: str | None
) -> None:
    answer = server.ask("GET", f"{PODS}/{name}/log", **query)
    assert answer.status == expected
    assert message in (None, answer.body["message"])


def test_a_refusal_of_the_node_is_the_answer(server: Serving, node: LocalNode) -> None:
    node.refusal = bad_request('container "c" in pod "p" is waiting to start: ContainerCreating')
    answer = server.ask("GET", f"{PODS}/p/log")
    assert (answer.status, answer.body["message"]) == (400, node.refusal.message)


def test_a_pod_without_a_node_has_no_log(server: Serving) -> None:
    assert server.ask("GET", f"{PODS}/q/log").status == 204


def test_since_seconds_is_a_moment_too(server: Serving, node: LocalNode) -> None:
    server.ask("GET", f"{PODS}/p/log", sinceSeconds=60)
    since = node.asked[0][3]["since_time"]
    assert 50 < (datetime.now().astimezone() - since).total_seconds() < 70
