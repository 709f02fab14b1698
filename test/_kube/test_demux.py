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


def taken(resume: Resume, *lines: LogLine) -> list[str]:
    return [item.text for item in lines if resume.is_new(item)]


class TestResume:
    def test_asks_for_the_second_of_the_line_seen_last(self):
        resume = Resume()
        assert resume.since is None
        resume.is_new(line("2026-01-01T01:00:01.9+01:00"))
        assert resume.since == "2026-01-01T00:00:01Z"

    def test_lines_with_one_timestamp_are_told_apart_by_their_number(self):
        resume = Resume()
        same = [line(at(5), text) for text in "abc"]
        assert taken(resume, *same[:2]) == ["a", "b"]
        resume.reattach()
        assert taken(resume, *same) == ["c"]

    def test_a_later_line_without_the_one_seen_last_is_not_taken(self):
        """Something lies between; once let go, what is later is new, and nothing comes twice."""
        resume = Resume()
        old, later, latest = line(at(5), "old"), line(at(9), "later"), line(at(10), "latest")
        resume.is_new(old)
        resume.reattach()
        assert (taken(resume, later), resume.missed) == ([], True)
        resume.let_go()
        assert (resume.since, resume.missed, resume.seeking) == (None, False, False)
        resume.reattach()
        assert taken(resume, old, later, latest) == ["later", "latest"]
        resume.reattach()
        assert (taken(resume, later, latest), resume.seeking) == ([], False)

    def test_a_log_that_became_empty_leaves_it_seeking(self):
        resume = Resume()
        resume.is_new(line(at(5)))
        resume.reattach()
        assert (resume.seeking, resume.missed) == (True, False)

    def test_an_empty_log_read_again_misses_nothing(self):
        resume = Resume()
        resume.reattach()
        assert not resume.seeking
        assert taken(resume, line(at(1), "a")) == ["a"]

    def test_what_has_no_timestamp_is_passed_on(self):
        resume = Resume()
        resume.is_new(line(at(5)))
        resume.reattach()
        assert taken(resume, line("", "a")) == ["a"]

    def test_what_is_older_than_all_that_was_seen_is_new(self):
        """A container restarted before we knew: its first log is read after its second one."""
        resume = Resume()
        second = [line(at(moment), str(moment)) for moment in (7, 8)]
        first = [line(at(moment), str(moment)) for moment in (1, 2, 3)]
        taken(resume, *second)
        for expected in (["1", "2", "3"], []):
            resume.reattach()
            assert taken(resume, *first) == expected
        resume.reattach()
        assert taken(resume, *second, line(at(9), "9")) == ["9"]

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
            got += taken(resume, *[item for item in log if item.at[:19] >= since[:19]][:cut])
            assert not resume.missed
        assert got == [item.text for item in log]

    @given(st.permutations(range(6)), st.integers(1, 6))
    def test_lines_out_of_order_come_once_too(self, moments, cut):
        """Standard output and error are stamped by two writers, so that neighbours may be swapped."""
        log = [line(at(moment), str(moment)) for moment in moments]
        resume = Resume()
        got = taken(resume, *log[:cut])
        resume.reattach()
        got += taken(resume, *log)
        assert sorted(got) == sorted(item.text for item in log)


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
