"""What a second copy has to send, and what it may remove."""

from pathlib import PurePosixPath as Path

import pytest

from nemo_run._kube.synced import Changes, Entry, changes, entries, text

FILE = Entry(3, 0o644, "abc")
EDITED = Entry(3, 0o644, "abd")
DIRECTORY = Entry(0, 0o755, "")


def test_only_what_changed_is_sent():
    before = {Path("a"): FILE, Path("b"): FILE, Path("d"): DIRECTORY}
    now = {Path("a"): FILE, Path("b"): EDITED, Path("c"): FILE, Path("d"): DIRECTORY}
    assert changes(before, now) == Changes((Path("b"), Path("c")), ())
    assert not changes(now, now)


def test_another_mode_is_a_change():
    assert changes({Path("a"): FILE}, {Path("a"): Entry(3, 0o755, "abc")}).send == (Path("a"),)


def test_what_is_gone_is_removed_deepest_first():
    before = {Path("d"): DIRECTORY, Path("d/e"): DIRECTORY, Path("d/e/f"): FILE, Path("a"): FILE}
    assert changes(before, {}) == Changes((), (Path("d/e/f"), Path("d/e"), Path("a"), Path("d")))


def test_a_file_where_a_directory_was_takes_its_place():
    before = {Path("x"): DIRECTORY, Path("x/y"): FILE}
    assert changes(before, {Path("x"): FILE}) == Changes((Path("x"),), (Path("x/y"), Path("x")))


def test_a_list_that_is_not_sure_sends_everything_and_still_removes():
    before = {Path("a"): FILE, Path("b"): FILE}
    assert changes(before, {Path("a"): FILE}, trusted=False) == Changes((Path("a"),), (Path("b"),))


def test_a_list_is_read_as_it_was_written():
    given = {Path("a"): FILE, Path("d/é\n\udcff"): EDITED, Path("d"): DIRECTORY}
    assert entries(text(given)) == given


def test_when_a_file_was_changed_is_noted_and_is_no_change():
    noted = {Path("a"): Entry(3, 0o644, "abc", 17)}
    assert entries(text(noted))[Path("a")].mtime_ns == 17
    assert not changes(noted, {Path("a"): FILE})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "files": []}',
        '{"version": 1, "files": [["/etc/passwd", 1, 1, "x", 0]]}',
        '{"version": 1, "files": [["a/../../b", 1, 1, "x", 0]]}',
        '{"version": 1, "files": [["", 1, 1, "x", 0]]}',
        '{"version": 1, "files": [["a", 1]]}',
    ],
)
def test_what_is_no_list_of_ours_is_not_used(content):
    assert entries(content) is None
