"""Commands over a real websocket, run as processes on this machine."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fakes.exec_server import V4, V5, ExecServer, Play, kubeconfig, serving

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.exec import STDERR_KEPT, ExecResult, PodRef, run_exec
from nemo_run.exceptions import KubeError, NotAuthorized, NotFound, Rejected, ServerError, Unreachable

POD = PodRef("team", "mover-1", "mover")

Start = Callable[[ExecServer], KubeApi]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a server and give the door to it."""
    with ExitStack() as stack:

        def started(server: ExecServer) -> KubeApi:
            stack.enter_context(serving(server))
            return connect(kubeconfig=kubeconfig(server, tmp_path / "kubeconfig"))

        yield started


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> ssl.SSLContext | None:
    """Both kinds of connection: TLS holds bytes back that a selector does not see."""
    if request.param == "plain":
        return None
    if not shutil.which("openssl"):
        pytest.skip("needs openssl for a certificate")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def server(*plays: Play, protocols: tuple[str, ...] = (V5, V4), tls: ssl.SSLContext | None = None) -> ExecServer:
    return ExecServer({"PATH": os.environ["PATH"]}, protocols=protocols, plays=list(plays), tls=tls)


def blocks(count: int, size: int = 65536) -> Iterator[bytes]:
    for index in range(count):
        yield bytes([index % 256]) * size


def test_output_error_output_and_exit_code(start):
    api = start(server())
    result = run_exec(api, POD, ["sh", "-c", "printf 'a\\000b'; echo oops >&2; exit 7"])
    assert (result, result.said) == (ExecResult(7, b"a\x00b", b"oops\n"), "oops")


def test_arguments_arrive_as_they_are(start):
    odd = ["", "a b", "$HOME", "é\n'", "&x=1", "%41+"]
    api = start(server())
    result = run_exec(api, POD, ["sh", "-c", 'printf "%s|" "$@"', "sh", *odd])
    assert result.stdout.decode() == "|".join(odd) + "|"


@pytest.mark.parametrize(("offered", "spoken"), [((V5, V4), V5), ((V4,), V4)], ids=["v5", "v4"])
def test_speaks_the_newest_protocol_that_the_server_knows(start, offered, spoken):
    knows = server(protocols=offered)
    api = start(knows)
    assert run_exec(api, POD, ["head", "-c", "3"], stdin=[b"abcdef"]).stdout == b"abc"
    assert knows.spoken == [spoken]


def test_v5_shows_the_command_the_end_of_its_input(start):
    assert run_exec(start(server()), POD, ["wc", "-c"], stdin=[b"abc", b"", b"def"]).stdout.strip() == b"6"


def test_an_echo_of_the_input_is_read_while_it_is_written(start, tls):
    """Who writes all before reading waits for ever: the pipes between are full."""
    api = start(server(tls=tls))
    came = bytearray()
    result = run_exec(api, POD, ["cat"], stdin=blocks(400), stdout=came.extend)
    assert (result.exit_code, result.stdout) == (0, b"")
    assert bytes(came) == b"".join(blocks(400))


def test_a_command_that_ends_early_keeps_exit_code_and_error(start, tls):
    """However much input is still to come: 20 times, since this is a race elsewhere."""
    api = start(server(tls=tls))
    for _ in range(20):
        result = run_exec(api, POD, ["sh", "-c", "head -c 10 >/dev/null; echo full >&2; exit 9"], stdin=blocks(800))
        assert (result.exit_code, result.said) == (9, "full")


def test_big_output_comes_whole(start, tls):
    api = start(server(tls=tls))
    size = 0

    def count(data: bytes) -> None:
        nonlocal size
        size += len(data)

    assert run_exec(api, POD, ["head", "-c", "50000000", "/dev/zero"], stdout=count).exit_code == 0
    assert size == 50_000_000


def test_of_a_flood_of_errors_the_end_is_kept(start):
    command = "i=0; while [ $i -lt 9000 ]; do echo 'an error message' >&2; i=$((i+1)); done; echo last >&2"
    result = run_exec(start(server()), POD, ["sh", "-c", command])
    assert (len(result.stderr), result.stderr[-5:]) == (STDERR_KEPT, b"last\n")


def test_a_ping_of_the_server_is_answered(start):
    assert run_exec(start(server(Play(fragment=True))), POD, ["cat"], stdin=[b"x"]).stdout == b"x"


@pytest.mark.parametrize("play", [Play(cut_in=100_000), Play(cut_out=100_000)], ids=["input", "output"])
def test_a_cut_stream_is_no_end_of_the_command(start, play):
    with pytest.raises(Unreachable, match=r"exec in team/mover-1: .*before the command ended"):
        run_exec(start(server(play)), POD, ["cat"], stdin=blocks(40))


def test_a_close_without_a_status_is_no_success(start):
    with pytest.raises(Unreachable, match="closed before the command ended"):
        run_exec(start(server(Play(answers=(b"\x01all seems well",)))), POD, ["true"])


def test_a_silent_server_is_given_up(start):
    """It accepts, then answers not even pings."""
    with pytest.raises(Unreachable, match=r"idle timeout: nothing was heard for 0\.3 s"):
        run_exec(start(server(Play(silent=True))), POD, ["true"], idle_timeout=0.3)


def test_a_silent_command_is_waited_for(start):
    """Its server answers pings: it is alive."""
    result = run_exec(start(server()), POD, ["sh", "-c", "sleep 4; echo done"], idle_timeout=1.5)
    assert result.stdout == b"done\n"


def test_a_command_that_does_nothing_for_too_long_is_given_up(start):
    with pytest.raises(Unreachable, match=r"neither read nor wrote anything for 0\.4 s"):
        run_exec(start(server()), POD, ["sleep", "60"], timeout=0.4)


def test_an_error_of_the_callers_own_is_passed_on(start):
    def full(data: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        run_exec(start(server()), POD, ["echo", "x"], stdout=full)


STATUS = '{"kind": "Status", "status": "Failure", "message": "%s", "reason": "%s", "details": {"name": "mover-1"}}'


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (403, "Forbidden", NotAuthorized),
        (404, "NotFound", NotFound),
        (400, "BadRequest", Rejected),
        (500, "InternalError", ServerError),
    ],
)
def test_a_refused_handshake_says_why(start, status, reason, kind):
    with pytest.raises(KubeError, match="because") as caught:
        run_exec(start(server(Play(refuse=(status, STATUS % ("because", reason))))), POD, ["true"])
    error = caught.value
    assert (type(error), error.status, error.reason, error.namespace) == (kind, status, reason, "team")


def test_a_forbidden_exec_names_the_rights_it_needs(start):
    with pytest.raises(NotAuthorized, match="get and create on pods/exec"):
        run_exec(start(server(Play(refuse=(403, STATUS % ("no", "Forbidden"))))), POD, ["true"])


def test_credentials_that_have_run_out_are_read_anew_once(start):
    unknown = Play(refuse=(401, STATUS % ("who?", "Unauthorized")))
    refusing = server(unknown, Play(), unknown, unknown)
    api = start(refusing)
    assert run_exec(api, POD, ["echo", "x"]).stdout == b"x\n"
    with pytest.raises(NotAuthorized):
        run_exec(api, POD, ["true"])


def test_a_command_that_cannot_start_is_an_error_of_the_server(start):
    status = (
        b'\x03{"status":"Failure","message":"exec: \\"tar\\": not found in $PATH","reason":"InternalError","code":500}'
    )
    with pytest.raises(ServerError, match=r'exec: "tar": not found in \$PATH'):
        run_exec(start(server(Play(answers=(status,)))), POD, ["tar"])


def test_no_server_is_unreachable(start, tmp_path):
    gone = server()
    with serving(gone):
        config = kubeconfig(gone, tmp_path / "gone")
    with pytest.raises(Unreachable, match="refused"):
        run_exec(connect(kubeconfig=config), POD, ["true"])
