from __future__ import annotations

import pytest
from fakes.clock import FakeClock

from nemo_run._kube.waiting import poll_until
from nemo_run.exceptions import WaitTimeout


def test_time_passes_only_by_sleeping():
    clock = FakeClock(time=100)
    assert (clock.now(), clock.now()) == (100, 100)
    clock.sleep(2.5)
    clock.sleep(0)
    assert (clock.time, clock.sleeps) == (102.5, [2.5, 0])


def test_refuses_to_go_back():
    with pytest.raises(ValueError, match=r"sleep\(-1\)"):
        FakeClock().sleep(-1)


def test_shows_that_a_wait_sleeps_between_looks():
    """A wait of ten minutes takes ten minutes, not one busy loop."""
    clock = FakeClock()
    with pytest.raises(WaitTimeout, match="last seen: pending"):
        poll_until(lambda: "pending", "up".__eq__, what="head", timeout=600, interval=5, clock=clock)
    assert clock.time == 600
    assert set(clock.sleeps) == {5}
