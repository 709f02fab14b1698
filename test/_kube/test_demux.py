"""Log lines put right, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_run._kube.demux import GAP, Lines, LogLine, RankFilter, Resume, stamped


def line(at: str, text: str = "x", node: int | None = 0) -> LogLine:
    return LogLine("p", node, text, at)


def at(nanoseconds: int) -> str:
    """Give a time of the first minutes of 2026."""
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    seconds, fraction = divmod(rest, 10**9)
    return f"2026-01-01T00:{minutes:02d}:{seconds:02d}.{fraction:09d}Z"


class TestLines:
    @given(st.binary(), st.data())
    def test_come_out_the_same_however_the_bytes_are_cut(self, data, choose):
        expected = [part.decode("utf-8", "replace") for part in data.split(b"\n")]
        if not expected[-1]:
            expected.pop()
        lines, got = Lines(), []
        while data:
            size = choose.draw(st.integers(1, len(data)))
            got += lines.feed(data[:size])
            data = data[size:]
        assert [*got, *lines.finish()] == expected

    def test_one_bad_byte_spoils_only_itself(self):
        assert list(Lines().feed(b"ok\n\xe4\n\xff\xfe\nend\n")) == ["ok", "\ufffd", "\ufffd\ufffd", "end"]

    def test_a_character_cut_in_two_is_whole(self):
        lines = Lines()
        assert [*lines.feed("é\n".encode()[:1]), *lines.feed("é\n".encode()[1:])] == ["é"]

    def test_a_line_without_an_end_does_not_fill_the_memory(self):
        lines = Lines(longest=4)
        assert [*lines.feed(b"abc"), *lines.feed(b"de"), *lines.feed(b"f\n")] == ["abcde", "f"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:01.000000002Z hello  you", ("2026-01-01T00:00:01.000000002Z", "hello  you")),
        ("2026-01-01T00:00:01Z  indented", ("2026-01-01T00:00:01Z", " indented")),
        ("2026-01-01T01:00:01.5+01:00 x", ("2026-01-01T01:00:01.5+01:00", "x")),
        ("2026-01-01T00:00:01Z ", ("2026-01-01T00:00:01Z", "")),
        ("2026-01-01T00:00:01Z", ("2026-01-01T00:00:01Z", "")),
        ("2026-01-01T00:00:01Z a\rb", ("2026-01-01T00:00:01Z", "a\rb")),
        ("unable to retrieve", ("", "unable to retrieve")),
        ("", ("", "")),
    ],
)
def test_timestamps_are_split_off(text, expected):
    assert stamped(text) == expected


def test_moments_are_the_same_in_every_zone():
    assert (
        line("2026-01-01T01:00:01.5+01:00").moment == line("2026-01-01T00:00:01.500Z").moment == (1767225601, 5 * 10**8)
    )
    assert line("").moment is None


class TestResume:
    def test_asks_for_the_second_of_the_line_seen_last(self):
        resume = Resume()
        assert resume.since is None
        resume.feed(line("2026-01-01T01:00:01.9+01:00"))
        assert resume.since == "2026-01-01T00:00:01Z"

    def test_lines_with_one_timestamp_are_told_apart_by_their_number(self):
        resume = Resume()
        same = [line(at(5), text) for text in "abc"]
        assert [resume.feed(item) for item in same[:2]] == [[same[0]], [same[1]]]
        resume.reattach()
        assert [resume.feed(item) for item in same] == [[], [], [same[2]]]

    def test_a_rotated_log_tells_of_the_gap_once(self):
        resume = Resume()
        resume.feed(line(at(5)))
        resume.reattach()
        assert resume.feed(line(at(9), "new")) == [LogLine("p", 0, GAP, at(9), gap=True), line(at(9), "new")]
        assert resume.feed(line(at(10))) == [line(at(10))]
        resume.reattach()
        assert [resume.feed(line(at(9), "new")), resume.feed(line(at(10)))] == [[], []]
        assert not resume.is_lost()

    def test_a_log_that_became_empty_is_a_gap_too(self):
        resume = Resume()
        resume.feed(line(at(5)))
        resume.reattach()
        assert (resume.is_lost(), resume.is_lost()) == (True, False)
        resume.reattach()
        assert resume.feed(line(at(9))) == [line(at(9))]

    def test_an_empty_log_read_again_is_none(self):
        resume = Resume()
        resume.reattach()
        assert not resume.is_lost()
        assert resume.feed(line(at(1))) == [line(at(1))]

    def test_what_has_no_timestamp_is_passed_on(self):
        resume = Resume()
        resume.feed(line(at(5)))
        resume.reattach()
        assert resume.feed(line("")) == [line("")]

    @given(
        st.lists(st.integers(0, 3 * 10**9), min_size=1, max_size=40).map(sorted),
        st.lists(st.integers(0, 40), max_size=5),
    )
    def test_every_line_comes_once_wherever_the_stream_breaks(self, moments, cuts):
        """Read again from whole seconds on, as the API gives it, and cut after any number of lines."""
        log = [line(at(moment), str(number)) for number, moment in enumerate(moments)]
        resume, got = Resume(), []
        for cut in [*cuts, len(log)]:
            resume.reattach()
            since = resume.since or ""
            for item in [item for item in log if item.at[:19] >= since[:19]][:cut]:
                got += resume.feed(item)
        assert got == log

    @given(st.permutations(range(6)), st.integers(1, 6))
    def test_lines_out_of_order_come_once_too(self, moments, cut):
        """Standard output and error are stamped by two writers, so that neighbours may be swapped."""
        log = [line(at(moment), str(moment)) for moment in moments]
        resume, got = Resume(), []
        for item in log[:cut]:
            got += resume.feed(item)
        resume.reattach()
        for item in log:
            got += resume.feed(item)
        assert [item for item in got if item.gap] == []
        assert got == log


class TestRankFilter:
    def shown(self, ranks: RankFilter, *lines: tuple[int | None, str]) -> list[str]:
        return [text for node, text in lines if ranks.shows(LogLine("p", node, text))]

    def test_first_and_last_rank_of_what_torchrun_prefixes(self):
        lines = [(node, f"[default{local}]:node {node}") for node in range(3) for local in range(2)]
        assert self.shown(RankFilter(3, 2), *lines) == ["[default0]:node 0", "[default1]:node 2"]

    def test_one_node_shows_both(self):
        lines = [(0, f"[default{local}]:x") for local in range(4)]
        assert self.shown(RankFilter(1, 4), *lines) == ["[default0]:x", "[default3]:x"]

    def test_without_prefixes_the_first_node(self):
        lines = [(0, "zero"), (1, "one"), (None, "a pod without a number"), (0, "[rank3]: Traceback")]
        assert self.shown(RankFilter(2, 1), *lines) == ["zero", "a pod without a number", "[rank3]: Traceback"]

    def test_an_unknown_number_of_ranks_is_learnt(self):
        lines = [(1, "[default0]:a"), (1, "[default1]:b"), (1, "[default0]:c"), (1, "[default1]:d")]
        assert self.shown(RankFilter(2), *lines) == ["[default0]:a", "[default1]:b", "[default1]:d"]

    def test_gaps_of_the_shown_nodes(self):
        ranks = RankFilter(3, 1)
        assert [ranks.shows(LogLine("p", node, GAP, gap=True)) for node in (0, 1, 2, None)] == [True, False, True, True]
