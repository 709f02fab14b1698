"""The file of all ranks has each line once, however often and from wherever a job is followed."""

from __future__ import annotations

import pytest

from nemo_run._kube.demux import GAP, LogLine, gap
from nemo_run.core.execution._ranklog import ALL_RANKS, RankLog


def follow(job_dir, *lines):
    with RankLog(job_dir, "node") as log:
        for pod, text in lines:
            log.write(LogLine(pod, 0, text))
    return (job_dir / ALL_RANKS).read_text()


def written(*lines):
    return "".join(f"[pod/{pod}/node] {text}\n" for pod, text in lines)


ONE = [("a", "1"), ("b", "1"), ("a", "2"), ("a", "2"), ("b", "2")]


def test_lines_say_where_they_come_from_as_kubectl_does(tmp_path):
    assert follow(tmp_path / "job", *ONE) == written(*ONE)


def test_following_anew_adds_only_what_is_new(tmp_path):
    follow(tmp_path, *ONE)
    other_order = sorted([*ONE, ("a", "3"), ("c", "1")])
    assert follow(tmp_path, *other_order) == written(*ONE, ("a", "3"), ("c", "1"))


def test_a_log_that_was_rotated_meanwhile_begins_in_the_middle(tmp_path):
    follow(tmp_path, *ONE)
    assert follow(tmp_path, ("a", "2"), ("b", "2"), ("b", "3")) == written(*ONE, ("b", "3"))


def test_a_pod_that_is_gone_keeps_its_lines(tmp_path):
    follow(tmp_path, *ONE)
    assert follow(tmp_path) == written(*ONE)


@pytest.mark.parametrize(
    "text", ["[pod/a/no", "x" * 100_000, "line\n[pod/a/node] 1\n[pod"], ids=["short", "long", "last"]
)
def test_half_a_line_of_a_killed_writer_is_written_again_whole(tmp_path, text):
    (tmp_path / ALL_RANKS).write_text(text)
    whole = text[: text.rfind("\n") + 1]
    assert follow(tmp_path, ("a", "1")) == (whole or written(("a", "1")))


def test_a_lone_surrogate_is_replaced(tmp_path):
    assert follow(tmp_path, ("a", "\udcff")) == written(("a", "?"))


def test_what_cannot_be_had_any_more_is_no_gap_where_the_file_has_it(tmp_path):
    follow(tmp_path, *ONE)
    with RankLog(tmp_path, "node") as log:
        log.write(gap("a", 0, 1, 1))
        log.write(LogLine("a", 0, "2"))
        log.write(gap("b", 0, 1, 1))
        log.write(LogLine("b", 0, "3"))
        log.write(gap("c", 0, 1, 2))
        assert log.pods() == {"a", "b"}
    lost = ("b", f"{GAP} pod b, attempt 1"), ("b", "3"), ("c", f"{GAP} pod c, attempts 1 to 2")
    assert (tmp_path / ALL_RANKS).read_text() == written(*ONE, *lost)
