"""A wait sleeps between looks, says what it last saw, and ends."""

from __future__ import annotations

import pytest

from nemo_run._kube.waiting import SYSTEM_CLOCK, poll_until
from nemo_run.exceptions import WaitTimeout


class Clock:
    def __init__(self):
        self.time = 0.0
        self.sleeps = []

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.time += seconds


def test_a_wait_of_ten_minutes_takes_ten_minutes_not_one_busy_loop():
    clock = Clock()
    with pytest.raises(WaitTimeout, match=r"head did not happen within 600 s; last seen: pending"):
        poll_until(lambda: "pending", "up".__eq__, what="head", timeout=600, interval=5, clock=clock)
    assert clock.time == 600
    assert set(clock.sleeps) == {5}


def test_the_last_look_is_at_the_deadline():
    clock = Clock()
    seen = iter(["a", "b", "up"])
    assert poll_until(lambda: next(seen), "up".__eq__, what="x", timeout=7, interval=5, clock=clock) == "up"
    assert clock.sleeps == [5, 2]


def test_what_holds_already_is_not_waited_for():
    assert poll_until(lambda: 1, bool, what="x", timeout=0) == 1


def test_the_system_clock_goes_forward():
    before = SYSTEM_CLOCK.now()
    SYSTEM_CLOCK.sleep(0)
    assert SYSTEM_CLOCK.now() >= before


def test_what_may_be_over_soon_is_looked_at_soon():
    clock = Clock()
    with pytest.raises(WaitTimeout):
        poll_until(lambda: 0, bool, what="x", timeout=10, interval=4, first=1, clock=clock)
    assert clock.sleeps == [1, 2, 4, 3]
