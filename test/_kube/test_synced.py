"""What a second copy has to send, and what it may remove."""

import pytest

from nemo_run._kube.synced import Changes, Entry, changes, entries, text

FILE = Entry(3, 0o644, "abc")
EDITED = Entry(3, 0o644, "abd")
DIRECTORY = Entry(0, 0o755, "")


def test_only_what_changed_is_sent():
    before = {"a": FILE, "b": FILE, "d": DIRECTORY}
    now = {"a": FILE, "b": EDITED, "c": FILE, "d": DIRECTORY}
    assert changes(before, now) == Changes(("b", "c"), ())
    assert not changes(now, now)


def test_another_mode_is_a_change():
    assert changes({"a": FILE}, {"a": Entry(3, 0o755, "abc")}).send == ("a",)


def test_what_is_gone_is_removed_deepest_first():
    before = {"d": DIRECTORY, "d/e": DIRECTORY, "d/e/f": FILE, "a": FILE}
    assert changes(before, {}) == Changes((), ("d/e/f", "d/e", "a", "d"))


def test_a_file_where_a_directory_was_takes_its_place():
    before = {"x": DIRECTORY, "x/y": FILE}
    assert changes(before, {"x": FILE}) == Changes(("x",), ("x/y", "x"))


def test_what_is_stale_is_sent_again_and_all_below_it():
    there = {"a": FILE, "d": DIRECTORY, "d/e": FILE, "d.py": FILE}
    assert changes(there, there, stale={"d"}).send == ("d", "d/e")
    assert changes(there, there, stale={"d/e"}).send == ("d/e",)


def test_a_list_that_is_not_sure_sends_everything_and_still_removes():
    before = {"a": FILE, "b": FILE}
    assert changes(before, {"a": FILE}, trusted=False) == Changes(("a",), ("b",))


def test_a_list_is_read_as_it_was_written():
    given = {"a": FILE, "d/é\n\udcff": EDITED, "d": DIRECTORY}
    assert entries(text(given)) == given


def test_when_a_file_was_changed_is_noted_and_is_no_change():
    noted = {"a": Entry(3, 0o644, "abc", "17 4")}
    assert entries(text(noted))["a"].stamp == "17 4"
    assert not changes(noted, {"a": FILE})


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
