"""What git packs is what runs, with the variables of task and executor."""

from __future__ import annotations

import subprocess

import nemo_run as run

MAIN = """
import os
from pathlib import Path
from pkg import part
print("RAN", part.WHAT, os.environ["TASK"], os.environ["BOTH"], Path.cwd() == Path(os.environ["NEMO_RUN_DIR"], "code"))
"""


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


def test_committed_code_runs_from_its_root_whatever_the_image_has(cluster, tmp_path, monkeypatch):
    package = tmp_path / "repo" / "src" / "pkg"
    package.mkdir(parents=True)
    (package / "part.py").write_text("WHAT = 'committed'\n")
    (package.parent / "main.py").write_text(MAIN)
    git(tmp_path, "init", "-q", "repo")
    git(tmp_path / "repo", "add", "-A")
    git(tmp_path / "repo", "commit", "-q", "-m", "first")
    (package / "part.py").write_text("WHAT = 'edited'\n")
    monkeypatch.chdir(tmp_path / "repo")
    executor = cluster.executor(packager=run.GitArchivePackager(subpath="src"), env_vars={"BOTH": "executor"})
    script = run.Script(path="main.py", entrypoint="python", env={"TASK": "a b", "BOTH": "task"})
    outcome = cluster.run(executor, script)
    assert outcome.status == "SUCCEEDED", outcome.log
    assert "RAN committed a b task True" in outcome.log
