"""Archives for a volume, read by both kinds of tar."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path, PurePosixPath

import pytest
from fakes.trees import normal, plant, seen

from nemo_run._kube.pack import Packed, pack
from nemo_run._kube.tree import SourceFile, directory_files
from nemo_run.exceptions import TransferError

TARS = [["tar"], ["busybox", "tar"]]


def packed(files: list[SourceFile], *, compress: bool = False) -> tuple[Packed, bytes]:
    out = BytesIO()
    return pack(files, out, last="last", compress=compress), out.getvalue()


def links(files: list[SourceFile]) -> dict[str, str]:
    with tarfile.open(fileobj=BytesIO(packed(files)[1])) as tar:
        return {member.name: member.linkname for member in tar.getmembers() if member.issym()}


@pytest.mark.parametrize("compress", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("tar", TARS, ids=["gnu", "busybox"])
def test_both_kinds_of_tar_unpack_the_same_tree(tmp_path, tar, compress):
    if not shutil.which(tar[0]):
        pytest.skip(f"needs {tar[0]}")
    source = plant(tmp_path / "source")
    _, data = packed(directory_files(source), compress=compress)
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run([*tar, "xzof" if compress else "xof", "-", "-C", there], input=data, check=True)
    assert (there / "last").read_bytes() == b""
    (there / "last").unlink()
    assert seen(there) == normal(seen(source))


def test_the_same_tree_gives_the_same_bytes(tmp_path):
    source = plant(tmp_path / "source")
    files = directory_files(source)
    assert packed(files, compress=True) == packed(files[::-1], compress=True)


def test_counts_files_bytes_and_directories(tmp_path):
    (tmp_path / "f").write_bytes(b"12345")
    (tmp_path / "l").symlink_to("f")
    files = [
        SourceFile(PurePosixPath("a/b/f"), tmp_path / "f"),
        SourceFile(PurePosixPath("a/b/l"), tmp_path / "l"),
    ]
    assert packed(files)[0] == Packed(2, 5, (PurePosixPath("a"), PurePosixPath("a/b")))


def test_owners_are_left_to_who_unpacks(tmp_path):
    (tmp_path / "f").touch()
    with tarfile.open(fileobj=BytesIO(packed(directory_files(tmp_path))[1])) as tar:
        assert {(member.uid, member.gid, member.uname, member.gname) for member in tar.getmembers()} == {(0, 0, "", "")}


def test_of_two_files_at_one_place_the_later_is_sent(tmp_path):
    (tmp_path / "old").write_text("old")
    (tmp_path / "new").write_text("new")
    place = PurePosixPath("x")
    _, data = packed([SourceFile(place, tmp_path / "old"), SourceFile(place, tmp_path / "new")])
    with tarfile.open(fileobj=BytesIO(data)) as tar:
        assert [member.name for member in tar.getmembers()] == ["x", "last"]
        assert tar.extractfile("x").read() == b"new"


def test_links_inside_the_tree_stay_as_they_are_written(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").touch()
    texts = {"to-file": "d/f", "to-dir": "d", "dotted": "./d/../d/f", "self": ".", "gone": "not/there", "loop": "loop"}
    for name, text in texts.items():
        (tmp_path / name).symlink_to(text)
    (tmp_path / "d/up").symlink_to("../to-file")
    assert links(directory_files(tmp_path)) == {**texts, "d/up": "../to-file"}


def test_an_absolute_link_into_the_tree_becomes_relative(tmp_path):
    """It would lead nowhere over there."""
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/f").touch()
    (tmp_path / "d/e/abs").symlink_to(tmp_path / "d/f")
    (tmp_path / "root").symlink_to(tmp_path)
    assert links(directory_files(tmp_path)) == {"d/e/abs": "../f", "root": "."}


def test_a_link_into_the_tree_follows_a_file_that_is_sent_to_another_place(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/a.yaml").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/current").symlink_to("../configs/a.yaml")
    files = [
        SourceFile(PurePosixPath("settings/a.yaml"), tmp_path / "configs/a.yaml"),
        SourceFile(PurePosixPath("code/run/current"), tmp_path / "run/current"),
    ]
    assert links(files) == {"code/run/current": "../../settings/a.yaml"}


def test_a_link_through_a_linked_directory_leads_to_the_same_file(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real/f").touch()
    (tmp_path / "alias").symlink_to("real")
    (tmp_path / "l").symlink_to("alias/f")
    assert links(directory_files(tmp_path)) == {"alias": "real", "l": "real/f"}


def test_of_a_link_to_a_file_elsewhere_the_content_is_sent_with_a_warning(tmp_path, caplog):
    outside = tmp_path / "outside.sh"
    outside.write_text("content")
    outside.chmod(0o755)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/l").symlink_to(outside)
    with caplog.at_level(logging.WARNING, "nemo_run"):
        _, data = packed(directory_files(tmp_path / "tree"))
    with tarfile.open(fileobj=BytesIO(data)) as tar:
        member = tar.getmember("l")
        assert (member.isreg(), member.mode, tar.extractfile(member).read()) == (True, 0o755, b"content")
    assert caplog.messages == [
        f"{tmp_path}/tree/l is a link to {outside}, which is not among the files to send: sending its content"
    ]


@pytest.mark.parametrize("target", ["/usr", "..", "/not/there", "../../not/there"])
def test_a_link_to_anything_else_elsewhere_is_sent_as_it_is(tmp_path, target, caplog):
    """A container may have ``/lustre/data`` where this machine has not."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "l").symlink_to(target)
    assert links(directory_files(tree)) == {"l": target}
    assert f"{tree}/l is a link to {target}" in caplog.text


def test_pipes_and_sockets_are_left_out_with_a_warning(tmp_path, caplog):
    os.mkfifo(tmp_path / "pipe")
    with caplog.at_level(logging.WARNING, "nemo_run"):
        assert packed(directory_files(tmp_path))[0] == Packed(0, 0, ())
    assert caplog.messages == [f"left out {tmp_path}/pipe: neither a file nor a directory nor a link"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "."])
def test_a_place_outside_the_destination_is_refused(tmp_path, path):
    (tmp_path / "f").touch()
    with pytest.raises(TransferError, match="no path below the destination"):
        packed([SourceFile(PurePosixPath(path), tmp_path / "f")])


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TransferError, match=f"cannot pack {tmp_path}/gone: "):
        packed([SourceFile(PurePosixPath("x"), tmp_path / "gone")])


def test_an_archive_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "f").write_bytes(os.urandom(1 << 20))
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(TransferError, match="No space left"):
        pack(directory_files(tmp_path), full, last="last", compress=False)
