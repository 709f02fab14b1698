"""What a task may be called with: kept, or refused when it is added, with its place and what to write instead."""

from __future__ import annotations

import datetime
import functools
import math
import sys
import traceback
from dataclasses import dataclass, field

import pytest

import nemo_run as run
from nemo_run.exceptions import ExperimentError


@dataclass
class Model:
    size: int = 3
    options: dict[str, object] = field(default_factory=dict)

    def grow(self) -> None:
        self.size += 1


def train(*args: object, **values: object) -> None:
    """Stand for a user's task."""


def unnamed(function):
    def inner():
        function()

    return inner


@unnamed
def hidden() -> None:
    """Have a name that leads to nothing."""


REFUSED = {
    "an object": (object(), "no file can hold a value of type object; have the function that the job runs make it"),
    "an open file": (sys.__stdout__, "let the job open it: pass the path"),
    "a time": (datetime.timedelta(1), "no file can hold a value of type timedelta; have the job make it: run.Config("),
    "a dataclass in a list": (
        Model(),
        "no file can hold a value of type Model; have the job make it: run.Config(Model, ",
    ),
    "a lambda": (lambda: 0, "a lambda has no name that a job could import; define a function"),
    "a decorated function": (hidden, "functools.wraps keeps the name of a decorated one"),
    "a method": (Model().grow, "give its object, as run.Config(its class, …), and call it there"),
    "a partial": (functools.partial(train, 1), "write run.Partial(function, its arguments)"),
    "Python's own class": (ValueError, "name it in a function of your own"),
}


@pytest.mark.parametrize(("value", "hint"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_no_file_can_hold_is_named_with_its_place(value, hint):
    task = run.Partial(train, model=run.Config(Model, options={"a b": [0, value]}))
    with run.Experiment("demo") as exp, pytest.raises(ExperimentError) as caught:
        exp.add(task, name="t")
    assert str(caught.value).startswith("Failed to validate task t: model.options['a b'][1]=")
    assert hint in str(caught.value)
    assert "direct cause" not in "".join(traceback.format_exception(caught.value))
    assert exp.jobs == []


CALLED = {
    "built-in": (sum, "call it in a function of your own"),
    "lambda": (lambda: 0, "a lambda has no name that a job could import; define a function"),
    "decorated": (hidden, "functools.wraps keeps the name of a decorated one"),
    "method": (Model().grow, "call it in a function that takes run.Config(its class, …)"),
    "partial": (functools.partial(train, 1), "give the function, and its arguments to run.Partial"),
}


@pytest.mark.parametrize(("function", "hint"), CALLED.values(), ids=CALLED)
def test_what_no_job_can_call_is_refused(function, hint):
    with run.Experiment("demo") as exp:
        for task, place in ((run.Partial(function), "task"), (run.Partial(train, run.Partial(function)), "<[0]>")):
            with pytest.raises(ExperimentError) as caught:
                exp.add(task, name="t")
            assert str(caught.value).startswith(f"Failed to validate task t: {place.strip('<>')}=")
            assert hint in str(caught.value)


def test_one_bad_task_of_a_list_is_found():
    tasks = [run.Partial(train, 1), run.Partial(train, x=object())]
    with run.Experiment("demo") as exp, pytest.raises(ExperimentError, match=r"Failed to validate task t.*: x=<object"):
        exp.add(tasks, name="t", executor=run.LocalExecutor())


@pytest.mark.parametrize("value", [math.nan, math.inf, Model(4), (1, (2,)), b"\0", 2**70, {1: {"a"}}, list, dict])
def test_a_value_that_comes_back_is_taken(value):
    with run.Experiment("demo") as exp:
        assert exp.add(run.Partial(train, value, x=value), name="t") == "t"


@pytest.mark.parametrize(
    "task", [train, Model(), "train.sh", None, [train]], ids=["function", "object", "text", "None", "list"]
)
def test_what_is_no_task_is_refused(task):
    with run.Experiment("demo") as exp, pytest.raises(TypeError, match=r"a task is a run\.Partial or a run\.Script"):
        exp.add(task, name="t")
    if not isinstance(task, list):
        with pytest.raises(TypeError, match=r"a task is a run\.Partial or a run\.Script"):
            run.run(task, executor=run.LocalExecutor())
