"""A directory copied again and again, with real shells of both kinds."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest
from fakes.clock import FakeClock
from fakes.exec_server import V4, V5, ExecServer, Play, kubeconfig, serving

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.exec import PodRef
from nemo_run._kube.resync import Local, Resent, local_entries, resync
from nemo_run._kube.tree import SourceFile, workdir_files
from nemo_run.exceptions import TransferError

POD = PodRef("team", "mover-1", "mover")
APPLETS = ("sh", "tar", "head", "rm", "mkdir", "gzip", "gunzip", "cat", "mv", "rmdir")


@pytest.fixture(params=["busybox", "gnu"])
def far(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ExecServer]:
    """A server whose pods have just what a small image has."""
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


@pytest.fixture
def here(tmp_path: Path) -> Path:
    path = tmp_path / "here"
    path.mkdir()
    return path


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there" / "a b"


@pytest.fixture
def copy(api, here, there, tmp_path):
    def copy(**how):
        spool = tmp_path / "spool"
        spool.mkdir(exist_ok=True)
        return resync(api, POD, workdir_files(here)[0], PurePosixPath(there), spool_dir=spool, clock=FakeClock(), **how)

    return copy


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def seen(root: Path) -> dict[str, str]:
    """Give what lies below *root*, without our own."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not name.startswith(".nemo_run"):
            found[name] = f"-> {os.readlink(path)}" if path.is_symlink() else "" if path.is_dir() else path.read_text()
    return found


@pytest.mark.parametrize("protocols", [(V5, V4), (V4,)], ids=["v5", "v4"])
def test_only_an_edit_is_sent(far, copy, here, there, protocols):
    far.protocols = protocols
    write(here, a="1", d__b="22", d__c="3")
    assert copy() == Resent(sent=4, bytes=pytest.approx(4, abs=400), removed=0, unchanged=0)
    far.commands.clear()
    write(here, a="9")
    assert copy() == Resent(sent=1, bytes=pytest.approx(1, abs=400), removed=0, unchanged=3)
    assert seen(there) == {"a": "9", "d": "", "d/b": "22", "d/c": "3"}
    far.commands.clear()
    assert copy() == Resent(0, 0, 0, 4)
    assert len(far.commands) == 1


def test_what_we_sent_goes_and_what_others_wrote_stays(copy, here, there):
    write(here, keep="1", gone="1", old__b="1", old__deep__c="1", empty__d="1")
    copy()
    write(there, ckpt="weights", old__made="by a job")
    for name in ("gone", "old/b", "old/deep/c", "empty/d"):
        (here / name).unlink()
    for name in ("old/deep", "old", "empty"):
        (here / name).rmdir()
    assert copy().removed == 7
    assert seen(there) == {"ckpt": "weights", "keep": "1", "old": "", "old/made": "by a job"}


def test_nothing_is_removed_where_that_was_not_asked_for(copy, here, there):
    write(here, keep="1", gone="1")
    copy(removing=False)
    (here / "gone").unlink()
    assert copy(removing=False).removed == 0
    assert seen(there) == {"gone": "1", "keep": "1"}


def test_odd_names_are_removed_as_well(copy, here, there):
    names = ["a b", "it's", '"q"', "$HOME", "back\\slash", "new\nline", "-rf", "é", "*", "f:x"]
    for name in names:
        (here / name).write_text("x")
    (here / "stays").write_text("x")
    copy()
    for name in names:
        (here / name).unlink()
    assert copy().removed == len(names)
    assert seen(there) == {"stays": "x"}


def test_a_directory_that_became_a_link_is_not_followed(copy, here, there, tmp_path):
    write(here, d__a="1", e="1")
    copy()
    elsewhere = tmp_path / "elsewhere"
    write(elsewhere, a="precious")
    shutil.rmtree(there / "d")
    (there / "d").symlink_to(elsewhere)
    shutil.rmtree(here / "d")
    copy()
    assert (elsewhere / "a").read_text() == "precious"


def test_files_and_directories_change_places(copy, here, there):
    write(here, x="a file", y__z="in a directory")
    copy()
    (here / "x").unlink()
    shutil.rmtree(here / "y")
    write(here, x__z="in a directory", y="a file")
    copy()
    assert seen(there) == {"x": "", "x/z": "in a directory", "y": "a file"}


def test_a_changed_link_stays_a_link(copy, here, there):
    write(here, one="1", two="2")
    (here / "link").symlink_to("one")
    copy()
    (here / "link").unlink()
    (here / "link").symlink_to("two")
    copy()
    assert seen(there) == {"link": "-> two", "one": "1", "two": "2"}


def test_an_executable_bit_is_a_change(copy, here, there):
    write(here, run="#!/bin/sh\n")
    copy()
    (here / "run").chmod(0o755)
    assert copy().sent == 1
    assert os.access(there / "run", os.X_OK)


def test_a_copy_that_broke_off_is_not_trusted(far, copy, here, there):
    """Between it and the next one an edit may have been taken back."""
    write(here, a="old", b="1")
    copy()
    write(here, a="new")
    far.plays = [Play(), *[Play(cut_in=10) for _ in range(3)]]
    with pytest.raises(TransferError):
        copy()
    write(here, a="old")
    assert copy() == Resent(sent=2, bytes=pytest.approx(4, abs=400), removed=0, unchanged=0)
    assert seen(there) == {"a": "old", "b": "1"}
    assert copy().sent == 0


@pytest.mark.parametrize("content", ["", "{", '{"version": 1, "files": [["../up", 1, 420, "x", 0]]}'])
def test_a_list_that_cannot_be_read_is_not_used(copy, here, there, content, tmp_path):
    write(there.parent, up="precious")
    write(there, **{".nemo_run__manifest.json": content})
    write(here, a="1")
    assert copy().sent == 1
    assert (there.parent / "up").read_text() == "precious"


def test_our_own_directory_is_ours(copy, here, there):
    write(here, **{".nemo_run__manifest.json": "theirs", "a": "1"})
    texts = {PurePosixPath(".nemo_run/job.sh"): "echo é\n"}
    copy(extra=texts)
    assert (there / ".nemo_run" / "job.sh").read_text() == "echo é\n"
    document = json.loads((there / ".nemo_run" / "manifest.json").read_text())
    assert [row[0] for row in document["files"]] == ["a"]
    assert sorted(path.name for path in (there / ".nemo_run").iterdir()) == ["job.sh", "manifest.json"]
    before = (there / ".nemo_run" / "manifest.json").read_text()
    assert copy(extra=texts, only_extra=True).sent == 0
    assert (there / ".nemo_run" / "manifest.json").read_text() == before


def test_what_has_not_changed_since_is_not_read_again():
    """This file is older than the tick of any file system's clock."""
    files = [Local("a", SourceFile(PurePosixPath("a"), Path(__file__)), os.lstat(__file__))]
    noted = {path: replace(entry, sha256="noted") for path, entry in local_entries(files).items()}
    assert local_entries(files, noted)["a"].sha256 == "noted"
    moved = {path: replace(entry, stamp=f"1{entry.stamp}") for path, entry in noted.items()}
    assert local_entries(files, moved) == local_entries(files)


def test_a_change_that_leaves_size_and_time_alone_is_sent(copy, here, there):
    write(here, a="1")
    os.utime(here / "a", ns=(10**18, 10**18))
    copy()
    (here / "a").write_text("2")
    os.utime(here / "a", ns=(10**18, 10**18))
    assert copy().sent == 1
    assert seen(there) == {"a": "2"}


def test_what_was_lost_or_changed_there_is_sent_again(copy, here, there, caplog):
    write(here, **{"gone": "1", "edited": "1", "d__e__f": "1", "back\\slash": "1", "stays": "1", "became a link": "1"})
    (here / "link").symlink_to("stays")
    (here / "empty").mkdir()
    copy()
    for name in ("gone", "link", "back\\slash", "became a link"):
        (there / name).unlink()
    (there / "became a link").symlink_to("stays")
    (there / "empty").rmdir()
    shutil.rmtree(there / "d")
    later = time.time() + 60
    write(there, edited="by hand", made="by a job")
    os.utime(there / "edited", (later, later))
    os.utime(there / "made", (later, later))
    with caplog.at_level("INFO", "nemo_run"):
        assert copy().removed == 0
    assert "9 entries in" in caplog.text
    assert seen(there) == {**seen(here), "made": "by a job"}
    assert copy().sent == 0


def test_below_a_directory_that_was_replaced_there_all_is_sent_again(copy, here, there, tmp_path):
    write(here, d__a="1", d__b__c="1")
    write(tmp_path, elsewhere__a="precious", elsewhere__b__c="precious")
    copy()
    shutil.rmtree(there / "d")
    (there / "d").symlink_to(tmp_path / "elsewhere")
    assert copy().sent == 4
    assert seen(there) == seen(here)
    assert seen(tmp_path / "elsewhere") == {"a": "precious", "b": "", "b/c": "precious"}


def test_another_clock_here_changes_nothing(copy, here, there):
    """Files bear the time of this machine; what is younger than the last copy is told by the other one's."""
    write(here, a="1")
    old = time.time() - 3600
    os.utime(here / "a", (old, old))
    copy()
    write(there, a="x")
    os.utime(there / "a", (old + 7200, old + 7200))
    assert copy().sent == 1


def test_a_change_in_the_tick_of_the_copy_is_seen(copy, here, there):
    write(here, a="1")
    facts = (here / "a").stat()
    copy()
    (here / "a").write_text("2")
    os.utime(here / "a", ns=(facts.st_mtime_ns, facts.st_mtime_ns))
    assert copy().sent == 1
