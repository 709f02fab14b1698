"""What every test has: a home of its own and no way to a real cluster; and ``kube`` for those that want one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import Start, children

from nemo_run.testing import LocalKube


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kubeconfig", help="run test/e2e on the cluster that this file names, not on LocalKube")
    parser.addoption("--namespace", default="default", help="with --kubeconfig: the namespace to use")
    parser.addoption(
        "--with-ray",
        nargs="?",
        const="",
        metavar="PYTHON",
        help="run test/run/test_real_ray.py with the Ray of this Python's environment; without PYTHON, with one that"
        " the test makes and keeps (~/.cache/nemo_run). Write it last, or --with-ray=PYTHON",
    )
    parser.addoption("--image", default="python:3.12", help="with --kubeconfig: an image with python and bash")


def pytest_configure() -> None:
    """Let Ctrl-C reach what tests start, also where they run behind ``&`` or nohup, which keep it from all children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_state_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMORUN_HOME", str(tmp_path / "nemorun"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("NEMO_RUN_LOCAL_KUBE", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def start_child() -> Iterator[Start]:
    """Start processes as ``subprocess.Popen`` does; what of them is left when the test ends is ended."""
    with children() as start:
        yield start


@pytest.fixture
def kube() -> Iterator[LocalKube]:
    """A started LocalKube with the claim ``shared``, where ``alpine`` images run on busybox."""
    with LocalKube(images={"alpine*": "busybox"}, claims=["shared"]) as kube:
        yield kube
