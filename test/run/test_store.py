"""Records survive other writers, killed writers and broken files."""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import subprocess
import time

import pytest
from children import PATIENCE, python

from nemo_run.run._store import Records, locked, write_private, write_text

_WRITER = """
import sys
from pathlib import Path
from nemo_run.run._store import Records
records, name, count = Records(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
for number in range(count):
    records.put(f"{name}-{number}", {"by": name, "filler": "x" * 2000})
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "home" / ".kubeflow_jobs.json"


@pytest.fixture
def writer(path, start_child):
    return lambda name, count: start_child(*python(_WRITER, str(path), name, str(count)), stdout=subprocess.PIPE)


def test_what_was_put_is_read_by_anyone(path):
    Records(path).put("a", {"state": "RUNNING"})
    Records(path).put("b", [1, "é"])
    assert Records(path).read() == {"a": {"state": "RUNNING"}, "b": [1, "é"]}
    assert Records(path).get("c") is None


def test_merging_keeps_what_it_does_not_name(path):
    Records(path).put("a", {"state": "RUNNING", "uid": "1"})
    Records(path).merge("a", {"state": "FAILED"})
    Records(path).merge("b", {"state": "PENDING"})
    assert Records(path).read() == {"a": {"state": "FAILED", "uid": "1"}, "b": {"state": "PENDING"}}


def test_a_home_without_records_has_none_and_stays_untouched(path):
    assert Records(path).read() == {}
    assert not path.parent.exists()


def test_only_the_owner_may_read_records(path):
    Records(path).put("a", {"env": "secret"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_other_files_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "shared", "x")
        write_private(tmp_path / "private", "x")
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("shared", "private")}
    assert modes == {"shared": 0o640, "private": 0o600}


def test_eight_writers_lose_none_of_each_others_records(path, writer):
    writers = [writer(f"w{number}", 15) for number in range(8)]
    assert [process.wait(PATIENCE) for process in writers] == [0] * 8
    assert set(Records(path).read()) == {f"w{number}-{count}" for number in range(8) for count in range(15)}


def test_a_writer_killed_in_the_middle_costs_nobody_anything(path, writer):
    """Whenever it is killed, the file is whole, the lock is free and no scrap stays."""
    for attempt in range(5):
        victim = writer(f"victim{attempt}", 100_000)
        for _ in range(3 + attempt):
            victim.stdout.readline()
        victim.send_signal(signal.SIGKILL)
        told = [int(line) for line in victim.stdout.read().split()]
        victim.wait(PATIENCE)
        json.loads(path.read_text())
        Records(path).put(f"survivor{attempt}", True)
        kept = Records(path).read()
        assert kept[f"survivor{attempt}"] is True
        assert all(f"victim{attempt}-{number}" in kept for number in told)
    assert [file.name for file in path.parent.iterdir() if file.name.endswith(".tmp")] == []


@pytest.mark.parametrize("broken", ['{"a": 1', "[1, 2]", "\x00\x00"], ids=["cut", "a list", "zeros"])
def test_a_broken_file_is_reported_and_kept(path, broken, caplog):
    path.parent.mkdir()
    path.write_text(broken)
    with caplog.at_level(logging.ERROR, logger="nemo_run"):
        assert Records(path).read() == {}
        assert path.read_text() == broken, "reading changes nothing"
        Records(path).put("new", 1)
    assert Records(path).read() == {"new": 1}
    (kept,) = path.parent.glob(".kubeflow_jobs.json.corrupt-*")
    assert kept.read_text() == broken
    assert str(path) in caplog.text


def test_a_write_that_fails_leaves_the_old_text(tmp_path):
    target = tmp_path / "file"
    write_text(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(target, "new \udc80")
    assert target.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_the_lock_lets_one_in_at_a_time(path, start_child):
    script = (
        "import sys, time; from pathlib import Path; from nemo_run.run._store import locked\n"
        "with locked(Path(sys.argv[1])): print('in', flush=True); time.sleep(0.3); print('out', flush=True)"
    )
    with locked(path):
        other = start_child(*python(script, str(path)), stdout=subprocess.PIPE, text=False)
        os.set_blocking(other.stdout.fileno(), False)
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            assert other.stdout.read() is None
            time.sleep(0.05)
    os.set_blocking(other.stdout.fileno(), True)
    assert other.stdout.read() == b"in\nout\n"
    assert other.wait(PATIENCE) == 0
