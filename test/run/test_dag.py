"""What waits for what decides the order, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_run.exceptions import ConfigError
from nemo_run.run._dag import Graph, dependents

DIAMOND = {"join": ["left", "right"], "left": ["root"], "right": ["root"], "root": []}


def test_jobs_that_wait_for_nothing_are_ready_at_once_in_their_own_order():
    assert Graph({"c": [], "a": [], "b": []}).ready() == ["c", "a", "b"]


def test_a_job_is_ready_as_soon_as_its_own_dependencies_have_succeeded():
    graph = Graph({**DIAMOND, "after": ["left"]})
    assert graph.ready() == ["root"]
    assert graph.ready() == []
    graph.succeeded("root")
    assert graph.ready() == ["left", "right"]
    graph.succeeded("left")
    assert graph.ready() == ["after"]
    graph.succeeded("right")
    assert graph.ready() == ["join"]


def test_what_waits_for_a_failure_never_gets_ready():
    graph = Graph(DIAMOND)
    graph.ready()
    graph.succeeded("root")
    graph.ready()
    assert graph.failed("left") == ["join"]
    graph.succeeded("right")
    assert (graph.ready(), graph.failed("right")) == ([], [])


def test_nothing_to_do_is_never_ready():
    assert Graph({}).ready() == []


def test_dependents_are_those_that_wait_also_by_way_of_others():
    assert dependents("root", DIAMOND) == ["join", "left", "right"]
    assert dependents("left", DIAMOND) == ["join"]
    assert dependents("join", DIAMOND) == []


def test_a_circle_is_refused_by_naming_it():
    with pytest.raises(ConfigError, match="in a circle") as error:
        Graph({"a": ["b"], "b": ["a"]})
    assert set(error.value.value.split(" -> ")) == {"a", "b"}


def test_a_dependency_that_is_not_there_is_named_with_what_is():
    with pytest.raises(ConfigError) as error:
        Graph({"a": [], "b": ["x"]})
    assert str(error.value) == "dependencies=['x']: job b waits for jobs that are not there; there are: a, b"


@given(st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=12), st.lists(st.integers(0, 11), max_size=4))
def test_each_job_ends_once_after_all_that_it_waits_for(shape, failing):
    wanted = {f"j{index}": sorted({f"j{w}" for w in waits if w < index}) for index, waits in enumerate(shape)}
    graph, succeeded, failed, withheld = Graph(wanted), [], [], []
    while ready := graph.ready():
        for job in ready:
            assert set(wanted[job]) <= set(succeeded)
            if int(job[1:]) not in failing:
                succeeded.append(job)
                graph.succeeded(job)
                continue
            failed.append(job)
            lost = [job]
            while lost:
                more = graph.failed(lost.pop())
                withheld += more
                lost += more
    assert sorted(succeeded + failed + withheld) == sorted(wanted)
    assert set(withheld) == {other for job in failed for other in dependents(job, wanted)}
