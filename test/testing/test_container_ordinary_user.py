"""The tests of containers, pods and TrainJobs once more, as a user who is not root."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
UID = 1000
AS_USER = ("setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", "env")
"""``env`` makes a second exec: the first is still done with root's right to pass through any directory."""

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="these tests run as an ordinary user already"),
    pytest.mark.timeout(900),
]


def _environment(home: Path) -> dict[str, str]:
    packages = sysconfig.get_path("purelib")
    return {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), packages]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _python(home: Path) -> str:
    """Give a Python that the user may run: ours, or the machine's of the same version with our packages."""
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        command = [*AS_USER, candidate, "-c", "import aiohttp, pytest, xdist, nemo_run.testing"]
        try:
            subprocess.run(command, env=_environment(home), check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    pytest.skip(f"there is no Python that uid {UID} may run with our packages")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of the user's own, at a path that it may enter, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="nemo-run-ordinary-") as name:
        os.chown(name, UID, UID)
        yield Path(name)


@pytest.mark.parametrize(
    ("file", "chosen"),
    [
        ("test_container.py", ""),
        ("test_kubelet.py", "claim or mount or environment or command or logs or term or restarted"),
        ("test_trainer.py", "meet and 2.3 or deleted_trainjob"),
    ],
)
def test_an_ordinary_user_can_do_it_too(home, file, chosen):
    pytest_command = [_python(home), "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", chosen]
    place = ["--rootdir", str(HERE.parents[1]), "-c", str(HERE.parents[1] / "pyproject.toml"), str(HERE / file)]
    with (home / "log").open("w+") as log:  # a pipe would be held open by whatever a failing test leaves
        command = [*AS_USER, *pytest_command, "--basetemp", str(home / "tmp"), *place]
        code = subprocess.run(command, env=_environment(home), cwd=home, stdout=log, stderr=log, timeout=800).returncode
        log.seek(0)
        text = log.read()
    assert (code, " passed" in text) == (0, True), text[-8000:]
