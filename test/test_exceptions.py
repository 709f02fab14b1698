"""The error tree: drawn as it is, and readable where it ends up."""

from __future__ import annotations

import inspect
import pickle

import pytest

from nemo_run import exceptions as exc

ALL = {name: value for name, value in vars(exc).items() if inspect.isclass(value) and value.__module__ == exc.__name__}


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_error_stands_in_the_drawing(name):
    assert f" {name} " in f"{exc.__doc__}".replace("\n", " \n ")
    assert issubclass(ALL[name], exc.NemoRunError)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (exc.ConfigError, ValueError),
        (exc.KubeError, RuntimeError),
        (exc.TransferError, RuntimeError),
        (exc.PackagingError, RuntimeError),
        (exc.JobFailed, RuntimeError),
        (exc.WaitTimeout, TimeoutError),
    ],
)
def test_an_except_written_for_the_builtin_goes_on_working(error, builtin):
    assert issubclass(error, builtin)


def test_a_config_error_names_argument_value_and_remedy():
    error = exc.ConfigError("code_subpath", "/abs", "write a relative path")
    assert str(error) == "code_subpath='/abs': write a relative path"


def test_a_kube_error_says_where_it_came_from():
    error = exc.NotAuthorized(
        "create pod x", "no", status=403, reason="Forbidden", server="https://k", context="c", namespace="n"
    )
    assert str(error) == "create pod x: no [403 Forbidden] (server https://k, context c, namespace n)"
    assert str(exc.Unreachable("reach it", "timed out")) == "reach it: timed out"


@pytest.mark.parametrize(
    "error",
    [
        exc.ConfigError("a", 1, "b"),
        exc.KubeError("what", "message"),
        exc.TransferError("broken"),
        exc.WaitTimeout("x", 3, "y"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_the_way_between_processes(error):
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
