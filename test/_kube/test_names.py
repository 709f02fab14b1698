"""Names that Kubernetes takes, with the part that tells them apart kept whole."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_run._kube.names import check_dns_label, dns_label, label_value, stable_label
from nemo_run.exceptions import InvalidName

RFC_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


@pytest.mark.parametrize(
    ("text", "suffix", "limit", "expected"),
    [
        pytest.param("train", "-ab12", 33, "train-ab12", id="plain"),
        pytest.param("Run_A.x", "", 63, "run-a-x", id="mapped"),
        pytest.param("70b-run", "", 63, "j-70b-run", id="leading digit"),
        pytest.param("x" * 40, "-abcdef", 33, "x" * 26 + "-abcdef", id="only the text is cut"),
        pytest.param("aaaa-bbbb", "-z", 7, "aaaa-z", id="no double dash where it is cut"),
        pytest.param("日本", "-q", 33, "job-q", id="nothing usable"),
        pytest.param("", "", 63, "job", id="empty"),
    ],
)
def test_dns_label(text, suffix, limit, expected):
    assert dns_label(text, suffix=suffix, limit=limit) == expected


@given(st.text(), st.from_regex(r"-[a-z0-9]{1,8}", fullmatch=True), st.integers(10, 63))
def test_a_label_is_valid_and_ends_with_its_suffix(text, suffix, limit):
    name = dns_label(text, suffix=suffix, limit=limit)
    assert RFC_1035.fullmatch(name)
    assert len(name) <= limit
    assert name.endswith(suffix)


@pytest.mark.parametrize("name", ["", "A", "1a", "a-", "a.b", "a" * 64, "a\n"])
def test_an_invalid_name_is_refused_before_anything_is_sent(name):
    with pytest.raises(InvalidName, match="starts with a letter"):
        check_dns_label(name)


def test_a_suffix_that_leaves_no_room_is_refused():
    with pytest.raises(InvalidName):
        dns_label("abc", suffix="-123456789", limit=8)


@given(st.text(), st.text())
def test_two_texts_never_share_a_stable_label(one, other):
    assert (stable_label(one) == stable_label(other)) == (one == other)


@given(st.text(), st.text())
def test_two_texts_never_share_a_label_value(one, other):
    assert LABEL_VALUE.fullmatch(label_value(one))
    assert len(label_value(one)) <= 63
    assert (label_value(one) == label_value(other)) == (one == other)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("alice", "alice"), ("Alice.B_1", "Alice.B_1"), ("", ""), ("a@b.c", "a-b.c-d648b2"), ("@", "c3641f")],
)
def test_label_value(text, expected):
    assert label_value(text) == expected
