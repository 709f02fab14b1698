"""Config and Partial: fiddle's, with what clients call on them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import fiddle as fdl
import pytest

import nemo_run as run
from nemo_run import config
from nemo_run.config import OptionalDefaultConfig, OptionalDefaultPartial, get_nemorun_home, set_nemorun_home
from nemo_run.exceptions import ConfigError, SetValueError


@dataclasses.dataclass
class Optim:
    lr: float = 0.1
    betas: list[float] = dataclasses.field(default_factory=lambda: [0.9])


@dataclasses.dataclass
class Model:
    size: int
    name: str = "m"
    optim: OptionalDefaultConfig[Optim] = None  # type: ignore[type-arg]
    make: OptionalDefaultPartial[Optim] = None  # type: ignore[type-arg]
    extra: Any = None


def train(model: Any, steps: int = 10, *rest: Any, **options: Any) -> None:
    """Stand for a user's task."""


class Plain(config.ConfigurableMixin):
    pass


def test_are_fiddle_buildables() -> None:
    cfg = run.Config(Model, size=2)
    assert isinstance(cfg, fdl.Config)
    assert isinstance(run.Partial(train), fdl.Partial)
    assert fdl.build(run.Config(Optim, lr=0.5)) == Optim(0.5)


@pytest.mark.parametrize("kind", [run.Config, run.Partial], ids=["config", "partial"])
@pytest.mark.parametrize("source", [fdl.Config, fdl.Partial, run.Config, run.Partial])
def test_casts_without_a_warning(kind: Any, source: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert type(fdl.cast(kind, source(Optim, lr=1.0))) is kind
    assert caplog.records == []


def test_names_its_public_module() -> None:
    """Saved experiments hold these names."""
    names = [(cls.__module__, cls.__qualname__) for cls in (run.Config, run.Partial, run.Script)]
    assert names == [("nemo_run.config", "Config"), ("nemo_run.config", "Partial"), ("nemo_run.config", "Script")]


def test_asked_for_defaults_become_configs() -> None:
    cfg = run.Config(Model, size=1)
    assert (type(cfg.optim), type(cfg.make)) == (run.Config, run.Partial)
    assert fdl.build(cfg).optim == Optim()


@pytest.mark.parametrize("value", [None, 0, "", False, [], {}], ids=repr)
def test_falsy_arguments_are_kept(value: Any) -> None:
    cfg = run.Config(Model, size=0, name="", optim=value)
    assert (cfg.size, cfg.name, cfg.optim) == (0, "", value)


def test_positional_argument_is_not_replaced_by_a_default() -> None:
    assert run.Config(Model, 1, "n", None).optim is None


def test_dataclass_arguments_become_configs() -> None:
    task = run.Partial(train, model=Model(1, optim=Optim(0.5)))
    optim = run.Config(Optim, lr=0.5, betas=[0.9])
    assert task.model == run.Config(Model, size=1, name="m", optim=optim, make=None)
    assert run.Partial(train, Optim(0.0)).model == run.Config(Optim, lr=0.0, betas=[0.9])


def test_dataclass_arguments_stay_when_told() -> None:
    assert run.Partial(train, model=Optim(), bind_args=False).model == Optim()


def test_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="sise"):
        run.Config(Model, sise=1)


@pytest.mark.parametrize("kind", [{}, dict, dict[str, int]], ids=["empty", "dict", "generic"])
def test_dicts_are_configurable(kind: Any) -> None:
    cfg = run.Config(kind, a=0, b=run.Config(Optim))
    assert fdl.build(cfg) == {"a": 0, "b": Optim()}
    assert cfg.clone() == copy.copy(cfg) == cfg


def test_clone_is_deep() -> None:
    cfg = run.Config(Optim, betas=[1.0])
    cfg.clone().betas.append(2.0)
    assert cfg.betas == [1.0]


def test_configs_pickle() -> None:
    cfg = run.Config(Model, size=1)
    assert pickle.loads(pickle.dumps(cfg)) == cfg


def test_broadcast_reaches_nested_configs_in_place() -> None:
    cfg = run.Partial(train, model=run.Config(Model, size=1, extra=run.Config(Optim)))
    assert cfg.broadcast(lr=0.0, name="") is cfg
    assert (cfg.model.optim.lr, cfg.model.make.lr, cfg.model.extra.lr, cfg.model.name) == (0.0, 0.0, 0.0, "")


def test_broadcast_leaves_lists_alone() -> None:
    """As upstream: what a script sets in a model does not leak into its callbacks."""
    cfg = run.Config(Model, size=1, extra=[run.Config(Optim)])
    assert cfg.broadcast(lr=9.0).extra[0].lr == 0.1


def test_walk_calls_each_function_once_for_each_config() -> None:
    shared = run.Config(Optim, lr=1.0)
    cfg = run.Config(Model, size=2, optim=shared, make=None, extra=shared)
    cfg.walk(lr=lambda node: node.lr * 2, size=lambda node: node.size + 1)
    assert (cfg.size, shared.lr) == (3, 2.0)


def test_drawings() -> None:
    cfg, new = run.Config(Optim, lr=0.1), run.Config(Optim, lr=0.2)
    assert "Optim" in cfg.visualize().source
    assert "0.2" in new.diff(cfg).source
    assert "Script" in run.Script("a.sh").diff(run.Script("b.sh")).source


def test_image_is_a_png(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=r"ends in \.png"):
        run.Config(Optim).save_config_img(str(tmp_path / "x.svg"))


def test_jupyter_gets_the_repr_where_graphviz_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run.Config(Optim)._repr_svg_() is None
    assert capsys.readouterr() == ("", "")


def test_object_and_its_config_share_nothing() -> None:
    model = Model(1, extra={"list": [1], "set": {1}})
    built = fdl.build(config.ConfigurableMixin.to_config(model))  # type: ignore[arg-type]
    assert built == model
    built.extra["list"].append(2)
    built.extra["set"].add(2)
    assert model.extra == {"list": [1], "set": {1}}


def test_other_classes_say_how_to_convert_them() -> None:
    with pytest.raises(NotImplementedError, match="Override the `to_config` method"):
        Plain().to_config()


@pytest.mark.parametrize(
    ("key", "read"),
    [
        ("model.size", lambda cfg: cfg.model.size),
        (".steps", lambda cfg: cfg.steps),
        ("model.optim.betas[0]", lambda cfg: cfg.model.optim.betas[0]),
        ("model.extra['a']", lambda cfg: cfg.model.extra["a"]),
    ],
)
def test_set_value(key: str, read: Any) -> None:
    cfg = run.Partial(train, model=run.Config(Model, size=1, optim=run.Config(Optim, betas=[1.0]), extra={"a": 1}))
    config.set_value(cfg, key, 0)
    assert read(cfg) == 0


@pytest.mark.parametrize("key", ["model.nope", "nope.size", "model.extra[3]", "model[", ""])
def test_set_value_says_which_key(key: str) -> None:
    with pytest.raises(SetValueError) as caught:
        config.set_value(run.Config(dict, model=run.Config(Model, size=1)), key, 0)
    assert caught.value.argument == key


def test_from_dict() -> None:
    raw = {"path": "a.sh", "args": ["1"], "env": {"A": "1"}}
    assert config.from_dict(raw, run.Script) == run.Script("a.sh", args=["1"], env={"A": "1"})
    assert config.from_dict([{"lr": 0.0}], list[Optim]) == [Optim(0.0)]
    assert config.from_dict({"lr": 1.0}, Optim | None) == Optim(1.0)
    assert config.from_dict({}, Model) == Model(size=None)  # type: ignore[arg-type]
    assert config.from_dict(None, Optim) is None
    with pytest.raises(ConfigError, match="union"):
        config.from_dict({}, Optim | Model)


def test_underlying_types() -> None:
    assert config.get_underlying_types(int | None) == {int, type(None)}
    assert config.get_underlying_types(OptionalDefaultConfig[Optim]) == {Optim, type(None)}  # type: ignore[misc]
    assert config.get_underlying_types(list[int] | str) == {list[int], str}


def test_type_namespace() -> None:
    name = f"{__name__}.Optim"
    assert config.get_type_namespace(Optim) == config.get_type_namespace(run.Config(Optim)) == name


def test_home_is_read_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "_NEMORUN_HOME", None)
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.delenv("NEMORUN_HOME", raising=False)
    assert get_nemorun_home() == "/home/alice/.nemo_run"
    monkeypatch.setenv("NEMORUN_HOME", "/a")
    assert get_nemorun_home() == "/a"
    set_nemorun_home("~/b")
    assert get_nemorun_home() == "/home/alice/b"


def test_inline_text_is_text():
    with pytest.raises(ConfigError, match="half a surrogate pair") as caught:
        run.Script(inline="echo \udcff")
    assert caught.value.argument == "inline"
