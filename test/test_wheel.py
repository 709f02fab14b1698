"""What users install: the wheel, without the checkout beside it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

USE = """
import sys
from pathlib import Path
import nemo_run as run
executor = run.KubeflowExecutor()
executor.assign("exp_1", sys.argv[1], "train", "train")
executor.materialize_launch_script(["true"])
print(Path(sys.argv[1], "train", "launch.sh").read_text().splitlines()[-1])
from nemo_run.testing import LocalKube
with LocalKube():
    print(executor.launch("train", ["true"])[1].value)
assert str(Path(sys.argv[2])) in run.__file__
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (built,) = tmp_path.glob("*.whl")
    return built


def test_it_has_all_that_is_read_at_run_time_and_no_tests(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    tops = {name.split("/")[0] for name in names}
    assert tops == {"nemo_run", next(top for top in tops if top.endswith(".dist-info"))}
    shipped = {path.relative_to(ROOT).as_posix() for path in (ROOT / "nemo_run").rglob("*") if path.is_file()}
    assert {name for name in shipped if not name.endswith((".py", ".pyc")) and ".mypy_cache" not in name} <= set(names)
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tmp_path / "exp"), str(tmp_path / "site")],
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (done.stdout.splitlines(), done.returncode) == (["exec true", "Created"], 0), done.stderr
