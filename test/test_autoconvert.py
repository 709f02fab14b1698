"""Functions that build objects, turned into functions that give configs."""

from __future__ import annotations

import dataclasses
from typing import Any

import fiddle as fdl
import pytest

import nemo_run as run


@dataclasses.dataclass
class Model:
    layers: int = 1
    inner: Any = None


@run.autoconvert
def small(layers: int = 2) -> Model:
    return Model(layers=layers, inner=Model(0))


@run.autoconvert(partial=True)
def later() -> Model:
    return Model(layers=0, inner=small(5))


@run.autoconvert
def configured() -> run.Config[Model]:
    return run.Config(Model, layers=0)


@run.autoconvert
def several() -> list[Model]:
    return [Model(1), Model(2)]


def test_gives_the_config() -> None:
    assert type(small()) is run.Config
    assert fdl.build(small(0)) == Model(0, Model(0))  # type: ignore[arg-type]


def test_gives_a_partial_with_configs_inside() -> None:
    task: Any = later()
    assert type(task) is run.Partial
    assert fdl.build(task)() == Model(0, Model(5, Model(0)))


def test_configs_stay() -> None:
    assert configured() == run.Config(Model, layers=0)


def test_lists_are_converted_item_by_item() -> None:
    assert several() == [run.Config(Model, layers=1), run.Config(Model, layers=2)]  # type: ignore[comparison-overlap]


def test_function_keeps_its_name_and_the_original() -> None:
    made: Any = small
    assert (made.__name__, made.wrapped(1)) == ("small", Model(1, Model(0)))


def test_dry_run_shows_the_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    run.dryrun_fn(run.Partial(Model, layers=0))
    assert "layers = 0" in capsys.readouterr().out


def test_dry_run_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError):
        run.dryrun_fn(Model())
