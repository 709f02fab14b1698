"""Keeping a job's output although the cluster refuses to give it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.clock import FakeClock

import nemo_run as run
from nemo_run._kube.demux import GAP, LogLine
from nemo_run.core.execution.kubeflow import KubeflowJobState
from nemo_run.exceptions import NotAuthorized
from nemo_run.run.backends._following import Following
from nemo_run.run.backends.base import AppRecord


class Refused(run.KubeflowExecutor):
    """Its logs are refused some times; its state is what *states* say one after the other."""

    refusals = 0
    states: tuple = ()

    def follow_logs(self, job_name, *, write, on_state):
        if self.refusals:
            self.refusals -= 1
            raise NotAuthorized("read log", "no rights", status=403)
        write(LogLine("p", 0, "said"))

    def status(self, job_name):
        first, *self.states = self.states
        if isinstance(first, Exception):
            raise first
        return first


class Seen:
    def __init__(self):
        self.lines, self.states = [], []

    def line(self, source, text):
        self.lines.append(text)

    def state(self, text):
        self.states.append(text)


@pytest.fixture
def followed(tmp_path):
    def followed(refusals, *states):
        executor = Refused()
        executor.refusals, executor.states = refusals, states
        record = AppRecord("id", "kubeflow", "train", "train-1", str(tmp_path), executor)
        whole, seen, clock = [], Seen(), FakeClock()
        following = Following(record, executor, launched=True, whole=lambda: whole.append(1), clock=clock)
        following.attach(seen)
        following.start()
        following.wait()
        return seen, Path(tmp_path, "log-allranks_0.out").read_text(), bool(whole), clock.time

    return followed


def test_it_begins_anew_for_as_long_as_the_job_may_go_on(followed):
    """Later and later: half a minute is the longest pause."""
    states = [KubeflowJobState.RUNNING, NotAuthorized("get", "no rights"), *[KubeflowJobState.RUNNING] * 4]
    seen, log, whole, waited = followed(6, *states)
    assert (seen.lines, log, whole) == (["said"], "[pod/p/node] said\n", True)
    assert waited == 2 + 4 + 8 + 16 + 30 + 30


@pytest.mark.parametrize("end", [KubeflowJobState.FAILED, None], ids=["failed", "gone"])
def test_after_the_jobs_end_it_is_read_once_more(followed, end):
    seen, log, whole, _ = followed(1, end)
    assert (seen.lines, log, whole) == (["said"], "[pod/p/node] said\n", True)
    assert seen.states == ["its output cannot be read now: read log: no rights [403]; trying again"]


def test_what_is_refused_to_the_end_may_be_missing(followed):
    seen, log, whole, _ = followed(2, KubeflowJobState.SUCCEEDED)
    lost = f"{GAP} the job's output could not be read: no rights"
    assert (seen.lines, log.strip(), whole) == ([lost], lost, False)
