"""What waits for what decides the order, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_run.exceptions import ConfigError
from nemo_run.run._dag import blocked, generations


def test_jobs_that_wait_for_nothing_are_one_generation_in_their_own_order():
    assert generations({"c": [], "a": [], "b": []}) == [["c", "a", "b"]]


def test_a_diamond_takes_three_generations():
    graph = {"join": ["left", "right"], "left": ["root"], "right": ["root"], "root": []}
    assert generations(graph) == [["root"], ["left", "right"], ["join"]]


def test_nothing_to_do_is_no_generation():
    assert generations({}) == []


def test_a_circle_is_refused_by_naming_it():
    with pytest.raises(ConfigError, match="in a circle") as error:
        generations({"a": ["b"], "b": ["a"]})
    assert set(error.value.value.split(" -> ")) == {"a", "b"}


def test_a_dependency_that_is_not_there_is_named_with_what_is():
    with pytest.raises(ConfigError) as error:
        generations({"a": [], "b": ["x"]})
    assert str(error.value) == "dependencies=['x']: job b waits for jobs that are not there; there are: a, b"


def test_a_job_is_blocked_by_what_failed_among_its_own_dependencies():
    graph = {"a": [], "b": [], "c": ["b", "a"]}
    assert blocked("c", graph, ["a", "z"]) == ["a"]
    assert blocked("c", graph, []) == []


@given(st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=12))
def test_each_job_comes_once_and_after_all_that_it_waits_for(shape):
    graph = {f"j{index}": sorted({f"j{w}" for w in wanted if w < index}) for index, wanted in enumerate(shape)}
    order = generations(graph)
    place = {job: index for index, jobs in enumerate(order) for job in jobs}
    assert sorted(job for jobs in order for job in jobs) == sorted(graph)
    assert all(place[wanted] < place[job] for job, needed in graph.items() for wanted in needed)
