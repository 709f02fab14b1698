"""Trees there and back, with real shells and tars of both kinds, over a real websocket."""

from __future__ import annotations

import ast
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from fakes.clock import FakeClock
from fakes.exec_server import V4, V5, ExecServer, Play, kubeconfig, serving
from fakes.trees import normal, plant, seen

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.exec import PodRef
from nemo_run._kube.transfer import Fetched, Sent, SourceFile, directory_files, fetch_tree, send_tree
from nemo_run.exceptions import NotAuthorized, TransferError

POD = PodRef("team", "mover-1", "mover")
APPLETS = ("sh", "tar", "head", "rm", "mkdir", "gzip", "gunzip", "ls", "id")


@pytest.fixture(params=["busybox", "gnu"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExecServer]:
    """A server whose pods have just what a small image has: everything of busybox, or GNU tar and dash."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in APPLETS:
        tool = shutil.which("busybox" if request.param == "busybox" else name)
        if tool is None:
            pytest.skip(f"needs {request.param}")
        (tools / name).symlink_to(tool)
    with serving(ExecServer({"PATH": str(tools)})) as server:
        yield server


@pytest.fixture
def api(far: ExecServer, tmp_path: Path) -> KubeApi:
    return connect(kubeconfig=kubeconfig(far, tmp_path / "kubeconfig"))


def posix(path: Path) -> PurePosixPath:
    return PurePosixPath(path)


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("protocols", [(V5, V4), (V4,)], ids=["v5", "v4"])
def test_a_tree_is_the_same_there_and_back_again(far, api, tmp_path, compress, protocols):
    far.protocols = protocols
    source, there, back = plant(tmp_path / "source", many=300), tmp_path / "there/a b/é", tmp_path / "back"
    expected = normal(seen(source))
    sent = send_tree(api, POD, source, posix(there), spool_dir=tmp_path / "spool", compress=compress)
    assert seen(there) == expected
    files = [facts for facts in expected.values() if facts[0] != "directory"]
    size = sum(len(facts[2]) for facts in files if facts[0] == "file")
    assert sent == Sent(len(files), size)
    fetched = fetch_tree(api, POD, posix(there), back, spool_dir=tmp_path / "spool", compress=compress)
    assert seen(back) == expected
    assert fetched == Fetched(len(files), size, 0)
    assert list((tmp_path / "spool").iterdir()) == []


def test_keeps_what_is_there_already(api, tmp_path):
    there = tmp_path / "there"
    there.mkdir(mode=0o2775)
    there.chmod(0o2775)
    (there / "checkpoint").write_text("precious")
    (there / "f").write_text("old and longer")
    (tmp_path / "f").write_text("new")
    send_tree(api, POD, [SourceFile(PurePosixPath("f"), tmp_path / "f")], posix(there), spool_dir=tmp_path)
    assert seen(there) == {"checkpoint": ("file", "0o644", b"precious"), "f": ("file", "0o644", b"new")}
    assert oct(there.stat().st_mode) == "0o42775"


def test_nothing_to_send_makes_the_directory(api, tmp_path):
    assert send_tree(api, POD, [], posix(tmp_path / "there"), spool_dir=tmp_path) == Sent(0, 0)
    assert seen(tmp_path / "there") == {}


def test_a_destination_that_is_a_link_is_replaced_not_followed(api, tmp_path):
    """Upstream left such links on shared volumes: following one writes into another job's directory."""
    other, there = tmp_path / "other", tmp_path / "there"
    other.mkdir()
    there.symlink_to(other)
    (tmp_path / "f").write_text("x")
    send_tree(api, POD, [SourceFile(PurePosixPath("f"), tmp_path / "f")], posix(there), spool_dir=tmp_path)
    assert (there.is_symlink(), seen(there), seen(other)) == (False, {"f": ("file", "0o644", b"x")}, {})


@pytest.mark.parametrize("name", ["code", "a b", "line\nbreak", "back\\slash\\n", "-x", "é", "trailing\n"])
def test_a_directory_of_the_tree_is_none_that_a_link_leads_to(api, tmp_path, name):
    other, there = tmp_path / "other", tmp_path / "there"
    other.mkdir()
    (there / "top").mkdir(parents=True)
    (there / name).symlink_to(other)
    (there / "top" / name).symlink_to(other)
    source = tmp_path / "source"
    for directory in (source / name, source / "top" / name):
        directory.mkdir(parents=True)
        (directory / "f").touch()
    send_tree(api, POD, source, posix(there), spool_dir=tmp_path)
    assert (seen(there), seen(other)) == (normal(seen(source)), {})


def test_progress_reaches_the_whole(api, tmp_path):
    source = plant(tmp_path / "source")
    told: list[tuple[int, int]] = []
    send_tree(api, POD, source, posix(tmp_path / "there"), spool_dir=tmp_path, progress=lambda *now: told.append(now))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 1 << 20
    came: list[tuple[int, int]] = []
    there = posix(tmp_path / "there")
    fetch_tree(api, POD, there, tmp_path / "back", spool_dir=tmp_path, progress=lambda *now: came.append(now))
    assert came[-1][0] > 1 << 20


def test_a_stream_that_is_cut_is_tried_again(far, api, tmp_path, caplog):
    source, there, clock = plant(tmp_path / "source"), tmp_path / "there", FakeClock()
    far.plays = [Play(cut_in=300_000), Play(silent=False, refuse=(503, "busy"))]
    with caplog.at_level(logging.WARNING, "nemo_run"):
        send_tree(api, POD, source, posix(there), spool_dir=tmp_path, compress=False, clock=clock)
    assert seen(there) == normal(seen(source))
    assert clock.sleeps == [1, 0.5]
    told = [record.getMessage() for record in caplog.records if record.name.startswith("nemo_run")]
    assert [message.rpartition("; ")[2] for message in told] == ["trying again (2 of 3)", "trying again in 0.5 s"]


def test_a_server_that_opens_no_stream_for_a_while_costs_no_try(far, api, tmp_path):
    source, there, clock = plant(tmp_path / "source"), tmp_path / "there", FakeClock()
    busy = Play(silent=False, refuse=(503, "busy"))
    far.plays = [*[busy] * 5, Play(cut_in=300_000), *[busy] * 5, Play(cut_in=300_000)]
    send_tree(api, POD, source, posix(there), spool_dir=tmp_path, compress=False, clock=clock)
    assert seen(there) == normal(seen(source))
    assert clock.sleeps == [0.5, 1, 2, 4, 8, 1, 0.5, 1, 2, 4, 8, 2]


def test_a_server_that_opens_no_stream_any_more_is_an_error(far, api, tmp_path):
    source, clock = plant(tmp_path / "source"), FakeClock()
    far.plays = [Play(silent=False, refuse=(503, "busy"))] * 20
    with pytest.raises(TransferError, match=r"copying \d+ files to .* failed: .*busy"):
        send_tree(api, POD, source, posix(tmp_path / "there"), spool_dir=tmp_path, compress=False, clock=clock)
    assert 50 < clock.time <= 60


def test_the_way_back_is_tried_again_from_its_beginning(far, api, tmp_path):
    there, clock = plant(tmp_path / "there"), FakeClock()
    far.plays = [Play(cut_out=300_000), Play(lose_out=40)]
    fetch_tree(api, POD, posix(there), tmp_path / "back", spool_dir=tmp_path, compress=False, clock=clock)
    assert seen(tmp_path / "back") == normal(seen(there))
    assert clock.sleeps == [1, 2]


def test_three_cut_streams_are_an_error(far, api, tmp_path):
    source, clock = plant(tmp_path / "source"), FakeClock()
    far.plays = [Play(cut_in=300_000)] * 3
    with pytest.raises(TransferError, match=r"copying \d+ files to /.*there in pod team/mover-1 failed 3 times"):
        send_tree(api, POD, source, posix(tmp_path / "there"), spool_dir=tmp_path, compress=False, clock=clock)
    assert (far.plays, clock.sleeps) == ([], [1, 2])


def test_lost_output_is_no_success(far, api, tmp_path):
    """A server that says success and lost the end of the archive, every time."""
    there = plant(tmp_path / "there")
    far.plays = [Play(lose_out=40)] * 3
    with pytest.raises(TransferError, match="the end of the stream got lost"):
        fetch_tree(api, POD, posix(there), tmp_path / "back", spool_dir=tmp_path, clock=FakeClock())
    assert not (tmp_path / "back").exists()


def test_a_refusal_is_not_tried_again(far, api, tmp_path):
    far.plays = [Play(refuse=(403, '{"kind": "Status", "message": "no", "reason": "Forbidden"}'))]
    with pytest.raises(NotAuthorized):
        send_tree(api, POD, [], posix(tmp_path / "there"), spool_dir=tmp_path)
    assert len(far.commands) == 1


def test_a_far_side_that_cannot_write_says_why(api, tmp_path):
    """Long before the input ends."""
    (tmp_path / "file").touch()
    source = tmp_path / "source"
    source.mkdir()
    (source / "big").write_bytes(os.urandom(20 << 20))
    with pytest.raises(TransferError, match=r"failed with exit code 1: .*(Not a directory|File exists)") as caught:
        send_tree(api, POD, source, posix(tmp_path / "file/x"), spool_dir=tmp_path)
    assert caught.value.exit_code == 1
    assert "mkdir" in caught.value.stderr


def test_a_file_where_a_directory_is_fails_with_the_words_of_tar(api, tmp_path):
    (tmp_path / "there/f/full").mkdir(parents=True)
    (tmp_path / "f").write_bytes(os.urandom(20 << 20))
    files = [SourceFile(PurePosixPath("f"), tmp_path / "f")]
    with pytest.raises(TransferError) as caught:
        send_tree(api, POD, files, posix(tmp_path / "there"), spool_dir=tmp_path)
    assert caught.value.exit_code in (1, 2)
    assert "tar: " in caught.value.stderr


@pytest.mark.parametrize("far", ["gnu"], indirect=True)
def test_a_missing_tool_is_named(far, api, tmp_path):
    (tmp_path / "bin/tar").unlink()
    with pytest.raises(TransferError, match=r"exit code 127: .*tar: not found"):
        send_tree(api, POD, [], posix(tmp_path / "there"), spool_dir=tmp_path)


def test_a_source_that_is_not_there_is_an_error(api, tmp_path):
    with pytest.raises(TransferError, match="can't cd to") as caught:
        fetch_tree(api, POD, posix(tmp_path / "nowhere"), tmp_path / "back", spool_dir=tmp_path)
    assert caught.value.exit_code == 66
    assert not (tmp_path / "back").exists()


def test_a_source_that_cannot_be_read_is_an_error(api, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    (there / "gone").symlink_to("nowhere")
    (tmp_path / "bin/tar").unlink()
    (tmp_path / "bin/tar").write_text("#!/bin/sh\necho 'tar: ./x: Permission denied' >&2\nexit 1\n")
    (tmp_path / "bin/tar").chmod(0o755)
    with pytest.raises(TransferError, match="Permission denied"):
        fetch_tree(api, POD, posix(there), tmp_path / "back", spool_dir=tmp_path)


def test_files_that_change_meanwhile_are_a_warning(api, tmp_path, caplog):
    """A running job's log grows while it is read: GNU tar then ends with 1, with a whole archive."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "f").write_text("x")
    tar = (tmp_path / "bin/tar").resolve()
    (tmp_path / "bin/tar").unlink()
    script = f"#!/bin/sh\n{shutil.which('tar')} \"$@\"; echo 'tar: ./log: file changed as we read it' >&2; exit 1\n"
    (tmp_path / "bin/tar").write_text(script)
    (tmp_path / "bin/tar").chmod(0o755)
    assert tar.exists()
    fetch_tree(api, POD, posix(there), tmp_path / "back", spool_dir=tmp_path, compress=False)
    assert list(seen(tmp_path / "back")) == ["f"]
    assert "file changed as we read it" in caplog.messages[0]


def test_what_cannot_come_along_stays_there(api, tmp_path, caplog, monkeypatch):
    there = tmp_path / "there"
    there.mkdir()
    (there / "f").touch()
    (there / "l").symlink_to("/etc/passwd")
    os.mkfifo(there / "p")
    monkeypatch.chdir(there)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
    fetched = fetch_tree(api, POD, posix(there), tmp_path / "here", spool_dir=tmp_path)
    assert (fetched.files, fetched.skipped, os.listdir(tmp_path / "here")) == (1, 2, ["f"])
    (record,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert record.getMessage().startswith(f"2 left behind in {there}: ")


def test_a_spool_directory_that_cannot_be_written_is_named(api, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TransferError, match=f"cannot spool the archive in {tmp_path}/file/x"):
        send_tree(api, POD, [], posix(tmp_path / "there"), spool_dir=tmp_path / "file/x")


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
def test_what_is_no_archive_is_refused(far, api, tmp_path, compress):
    """A shell that greets, say."""
    token_comes_too = f"#!{shutil.which('sh')}\necho Welcome to this pod\n"
    (tmp_path / "there").mkdir()
    (tmp_path / "bin/tar").unlink()
    (tmp_path / "bin/tar").write_text(token_comes_too)
    (tmp_path / "bin/tar").chmod(0o755)
    with pytest.raises(TransferError, match="no gzip stream" if compress else "no whole tar archive"):
        fetch_tree(
            api, POD, posix(tmp_path / "there"), tmp_path / "back", spool_dir=tmp_path / "spool", compress=compress
        )


@pytest.mark.parametrize("far", ["busybox"], indirect=True)
def test_a_very_big_tree_is_remarked_upon(api, tmp_path, caplog):
    (tmp_path / "source").mkdir()
    with (tmp_path / "source/hole").open("wb") as out:
        out.truncate(1 << 30)
    with caplog.at_level(logging.WARNING, "nemo_run"), pytest.raises(TransferError):
        send_tree(api, POD, tmp_path / "source", posix(tmp_path / "source/hole/x"), spool_dir=tmp_path, compress=True)
    assert caplog.messages[0] == "sending 1 files, 1.0 GiB: is all of it needed?"


def test_compresses_unless_the_server_is_here(far, api, tmp_path):
    send_tree(api, POD, [], posix(tmp_path / "there"), spool_dir=tmp_path)
    send_tree(api, POD, [], posix(tmp_path / "there"), spool_dir=tmp_path, compress=True)
    assert [command[-2] for command in far.commands] == ["xof", "xzof"]


_MEMORY = """
import resource, sys
from pathlib import Path, PurePosixPath
from nemo_run._kube.api import connect
from nemo_run._kube.exec import PodRef
from nemo_run._kube.transfer import fetch_tree, send_tree
config, source, there, back = sys.argv[1:]
api, pod = connect(kubeconfig=config), PodRef("team", "mover-1", "mover")
def once(name):
    send_tree(api, pod, Path(source) / name, PurePosixPath(there) / name, spool_dir=Path(back) / "spool")
    fetch_tree(api, pod, PurePosixPath(there) / name, Path(back) / name, spool_dir=Path(back) / "spool")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print([once("small"), once("big")])
"""


@pytest.mark.parametrize("far", ["busybox"], indirect=True)
def test_memory_does_not_grow_with_the_tree(far, api, tmp_path):
    """64 MiB of noise there and back take no more than a few frames."""
    for name, size in (("small", 1 << 10), ("big", 64 << 20)):
        (tmp_path / "source" / name).mkdir(parents=True)
        (tmp_path / "source" / name / "noise").write_bytes(os.urandom(size))
    arguments = [str(tmp_path / name) for name in ("kubeconfig", "source", "there", "back")]
    done = subprocess.run([sys.executable, "-c", _MEMORY, *arguments], check=True, capture_output=True, text=True)
    small, big = ast.literal_eval(done.stdout)
    assert big - small < 16
    assert (tmp_path / "back/big/noise").read_bytes() == (tmp_path / "source/big/noise").read_bytes()


def test_lists_are_those_of_the_tree(tmp_path):
    """Callers need no other module than this one."""
    (tmp_path / "f").touch()
    assert directory_files(tmp_path) == [SourceFile(PurePosixPath("f"), tmp_path / "f")]
