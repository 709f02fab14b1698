"""Archives from a volume: what is safe appears, what is not leaves no trace."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tarfile
from io import BytesIO
from pathlib import PurePosixPath
from tempfile import TemporaryFile

import pytest
from fakes.trees import normal, plant, seen

from nemo_run._kube.unpack import Fetched, unpack
from nemo_run.exceptions import TransferError

SOURCE = PurePosixPath("/nemo_run/alice/code")


def archive(*members: tarfile.TarInfo | tuple[str, bytes]) -> BytesIO:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, BytesIO(member[1]))
    return out


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def link(name: str, target: str) -> tarfile.TarInfo:
    return special(name, tarfile.SYMTYPE, target)


def directory(name: str) -> tarfile.TarInfo:
    return special(name, tarfile.DIRTYPE)


@pytest.mark.parametrize("tar", [["tar"], ["busybox", "tar"]], ids=["gnu", "busybox"])
def test_unpacks_what_both_kinds_of_tar_pack(tmp_path, tar):
    if not shutil.which(tar[0]):
        pytest.skip(f"needs {tar[0]}")
    source = plant(tmp_path / "source")
    with TemporaryFile() as spool:
        subprocess.run([*tar, "cf", "-", "."], cwd=source, stdout=spool, check=True)
        fetched = unpack(spool, tmp_path / "here", source=SOURCE)
    there = normal(seen(source))
    assert seen(tmp_path / "here") == there
    files = [facts for facts in there.values() if facts[0] != "directory"]
    assert fetched == Fetched(len(files), sum(len(facts[2]) for facts in files if facts[0] == "file"), 0)


def test_a_hard_link_becomes_a_file_of_its_own(tmp_path):
    """Even where its first name is skipped."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("content")
    os.link(source / "a", source / "b")
    with TemporaryFile() as spool:
        subprocess.run(["tar", "cf", "-", "--sort=name", "."], cwd=source, stdout=spool, check=True)
        fetched = unpack(spool, tmp_path / "here", source=SOURCE, skip=lambda path, member: path.name == "a")
    assert seen(tmp_path / "here") == {"b": ("file", "0o644", b"content")}
    assert (fetched, (tmp_path / "here/b").stat().st_nlink) == (Fetched(1, 7, 1), 1)


def test_keeps_times_and_executable_bits(tmp_path):
    info = tarfile.TarInfo("run.sh")
    info.mode, info.mtime = 0o4755, 1_700_000_000
    unpack(archive(info), tmp_path, source=SOURCE)
    facts = (tmp_path / "run.sh").stat()
    assert (stat.S_IMODE(facts.st_mode), facts.st_mtime) == (0o755, 1_700_000_000)


def test_links_below_the_source_become_relative(tmp_path):
    unpack(
        archive(("ckpt/100", b"x"), link("ckpt/latest", f"{SOURCE}/ckpt/100"), link("deep/er/l", f"{SOURCE}//ckpt/.")),
        tmp_path,
        source=SOURCE,
    )
    assert (os.readlink(tmp_path / "ckpt/latest"), os.readlink(tmp_path / "deep/er/l")) == ("100", "../../ckpt")


def test_what_is_skipped_stays_as_it_is_and_is_counted(tmp_path):
    (tmp_path / "log.out").write_text("ours")
    asked = []

    def skip(path: PurePosixPath, member: tarfile.TarInfo) -> bool:
        asked.append((str(path), member.size))
        return str(path) in ("log.out", "cache")

    fetched = unpack(
        archive(
            ("./log.out", b"theirs"), directory("./cache"), ("./cache/a", b""), ("./cache/b", b""), ("./kept", b"k")
        ),
        tmp_path,
        source=SOURCE,
        skip=skip,
    )
    assert fetched == Fetched(1, 1, 3)
    assert asked == [("log.out", 6), ("cache", 0), ("kept", 1)]
    assert seen(tmp_path) == {"log.out": ("file", "0o644", b"ours"), "kept": ("file", "0o644", b"k")}


def test_replaces_files_and_links_that_are_there(tmp_path):
    (tmp_path / "target").write_text("untouched")
    (tmp_path / "f").symlink_to("target")
    (tmp_path / "l").write_text("a file")
    unpack(archive(("f", b"new"), link("l", "f")), tmp_path, source=SOURCE)
    assert seen(tmp_path) == {
        "f": ("file", "0o644", b"new"),
        "l": ("link", "f"),
        "target": ("file", "0o644", b"untouched"),
    }


@pytest.mark.parametrize(
    ("members", "why"),
    [
        pytest.param([("/etc/cron.d/x", b"")], "leads out of the destination", id="absolute"),
        pytest.param([("a/../../x", b"")], "leads out of the destination", id="dots"),
        pytest.param([link("l", "/etc"), ("l/x", b"")], "would be written through a link", id="through a link out"),
        pytest.param([link("l", "."), ("l/x", b"")], "would be written through a link", id="through a link"),
        pytest.param([("l/x", b""), link("l", ".")], "would be written through a link", id="through a later link"),
        pytest.param([special("h", tarfile.LNKTYPE, "/etc/passwd")], "is a hard link to", id="hard link out"),
        pytest.param([special("h", tarfile.LNKTYPE, "h")], "is a hard link to", id="hard link to itself"),
    ],
)
def test_unsafe_members_are_refused_before_anything_is_written(tmp_path, members, why):
    dest = tmp_path / "dest"
    with pytest.raises(TransferError, match=f"refused to unpack .*{why}"):
        unpack(archive(("good", b"good"), *members), dest, source=SOURCE)
    assert not dest.exists()


@pytest.mark.parametrize(
    ("member", "why"),
    [
        pytest.param(link("l", "/etc/passwd"), "a link that leads out, to '/etc/passwd'", id="absolute link"),
        pytest.param(link("l", "../x"), "a link that leads out, to '../x'", id="link upwards"),
        pytest.param(link("d/l", "../../x"), "a link that leads out, to '../../x'", id="link upwards from below"),
        pytest.param(link("l", "/nemo_run/alice/codex"), "a link that leads out, to '/nemo", id="link to a neighbour"),
        pytest.param(special("d", tarfile.CHRTYPE), "a device or a pipe", id="device"),
        pytest.param(special("d", tarfile.BLKTYPE), "a device or a pipe", id="disk"),
        pytest.param(special("p", tarfile.FIFOTYPE), "a device or a pipe", id="pipe"),
        pytest.param(special("h", tarfile.LNKTYPE, "s"), "a hard link to 's', which is no plain file", id="hard link"),
    ],
)
def test_what_cannot_come_along_stays_there_and_all_else_comes(tmp_path, caplog, member, why):
    """A job that leaves a pipe beside its checkpoints must not cost the checkpoints."""
    dest = tmp_path / "dest"
    fetched = unpack(archive(("a", b"a"), member, link("s", "a"), ("z", b"z")), dest, source=SOURCE)
    assert fetched == Fetched(3, 2, 1)
    assert seen(dest) == {"a": ("file", "0o644", b"a"), "s": ("link", "a"), "z": ("file", "0o644", b"z")}
    (record,) = caplog.records
    assert record.getMessage().startswith(f"1 left behind in {SOURCE}: {member.name!r} ({why}")


def test_one_warning_tells_of_all_that_stays_there(tmp_path, caplog):
    pipes = [special(f"p{number}", tarfile.FIFOTYPE) for number in range(8)]
    assert unpack(archive(*pipes), tmp_path, source=SOURCE) == Fetched(0, 0, 8)
    (record,) = caplog.records
    assert record.getMessage().startswith(f"8 left behind in {SOURCE}: 'p0' (a device or a pipe), 'p1'")
    assert record.getMessage().endswith("'p4' (a device or a pipe), 3 more")


def test_an_unsafe_member_that_is_skipped_does_not_matter(tmp_path, caplog):
    unpack(archive(link("l", "/etc"), ("f", b"")), tmp_path, source=SOURCE, skip=lambda path, member: path.name == "l")
    assert list(seen(tmp_path)) == ["f"]
    assert not caplog.records


def test_links_that_lead_out_only_together_are_taken_back(tmp_path, caplog):
    """`sub/up/..` reads as `sub`, but `sub/up` is the destination itself."""
    dest = tmp_path / "dest"
    fetched = unpack(archive(directory("sub"), link("sub/up", ".."), link("out", "sub/up/../..")), dest, source=SOURCE)
    assert fetched == Fetched(1, 0, 1)
    assert seen(dest) == {"sub": ("directory", "0o755"), "sub/up": ("link", "..")}
    assert "1 left behind in /nemo_run/alice/code: 'out' (a link that leads out, by way of others)" in caplog.text


def test_a_link_of_the_user_is_never_written_through(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dest").mkdir()
    (tmp_path / "dest/d").symlink_to("../elsewhere")
    with pytest.raises(TransferError, match=f"refused to write through the link {tmp_path}/dest/d"):
        unpack(archive(("d/x", b"")), tmp_path / "dest", source=SOURCE)
    assert seen(tmp_path / "elsewhere") == {}


@pytest.mark.parametrize("size", [0, 1, 511, 512, 700, 1024, 1500])
def test_a_cut_archive_is_refused_before_anything_is_written(tmp_path, size):
    data = archive(("a", b"x"), ("b", b"y")).getvalue()
    with pytest.raises(TransferError, match="no whole tar archive"):
        unpack(BytesIO(data[:size]), tmp_path / "dest", source=SOURCE)
    assert not (tmp_path / "dest").exists()


def test_garbage_between_members_is_no_end(tmp_path):
    data = bytearray(archive(("a", b"x"), ("b", b"y")).getvalue())
    data[1024:1536] = b"\xff" * 512
    with pytest.raises(TransferError, match="no whole tar archive"):
        unpack(BytesIO(bytes(data)), tmp_path / "dest", source=SOURCE)


def test_a_file_where_a_directory_is_stays_out_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "d").mkdir()
    with pytest.raises(TransferError, match="cannot write what came"):
        unpack(archive(("d", b"file")), tmp_path, source=SOURCE)
    assert seen(tmp_path) == {"d": ("directory", "0o755")}
