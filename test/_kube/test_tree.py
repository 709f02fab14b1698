"""Which files of a directory are sent."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from nemo_run._kube.tree import SourceFile, directory_files, workdir_files


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(files: list[SourceFile]) -> list[str]:
    return [str(file.path_in_archive) for file in files]


def test_lists_files_directories_and_links_in_order(tmp_path):
    write(tmp_path, **{"b/two": "", "a": "", "b/one": "", "b-": ""})
    (tmp_path / "empty").mkdir()
    (tmp_path / "to-b").symlink_to("b")
    files = directory_files(tmp_path)
    assert names(files) == ["a", "b", "b/one", "b/two", "b-", "empty", "to-b"]
    assert files[2] == SourceFile(PurePosixPath("b/one"), tmp_path / "b/one")


def test_a_prefix_names_the_root_too(tmp_path):
    """So that an empty package is an empty directory there, not a missing one."""
    write(tmp_path, a="")
    assert names(directory_files(tmp_path, prefix="code")) == ["code", "code/a"]


def test_a_directory_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(OSError):
        directory_files(tmp_path / "nowhere")


def test_a_workdir_leaves_out_git_and_what_gitignore_names(tmp_path):
    write(
        tmp_path,
        **{
            ".git/config": "",
            ".gitignore": "data/\n*.log\n!keep.log\n/only-here\n",
            "train.py": "",
            "data/big.bin": "",
            "run.log": "",
            "keep.log": "",
            "only-here": "",
            "src/only-here": "",
            "src/data/too": "",
            "src/.gitignore": "*.tmp\n!special.log\n",
            "src/special.log": "",
            "src/x.tmp": "",
            "x.tmp": "",
            "sub/.git": "gitdir: ../.git/modules/sub\n",
            "sub/y.py": "",
        },
    )
    files, skipped = workdir_files(tmp_path)
    assert names(files) == [
        ".gitignore",
        "keep.log",
        "src",
        "src/.gitignore",
        "src/only-here",
        "src/special.log",
        "sub",
        "sub/y.py",
        "train.py",
        "x.tmp",
    ]
    assert skipped == 5  # data, run.log, only-here, src/data, src/x.tmp


def test_nothing_inside_an_ignored_directory_comes_back(tmp_path):
    """As in git: its files are never looked at."""
    write(tmp_path, **{".gitignore": "build/\n!build/keep\n", "build/keep": "", "build/.gitignore": "!keep\n"})
    assert names(workdir_files(tmp_path)[0]) == [".gitignore"]


def test_the_rules_do_not_depend_on_where_one_stands(tmp_path, monkeypatch):
    write(tmp_path, **{".gitignore": "*.bin\n", "a.bin": "", "a.py": "", "elsewhere/.gitignore": "*.py\n"})
    expected = workdir_files(tmp_path)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert workdir_files(tmp_path) == expected


@pytest.mark.skipif(not shutil.which("git"), reason="asks git itself")
def test_agrees_with_git(tmp_path):
    write(
        tmp_path,
        **{
            ".gitignore": "*.pyc\n__pycache__\n/dist\nlogs/**\n!logs/keep\n**/tmp/*.x\n\\#odd\nfoo/*\n!foo/bar\n# a\n",
            "a.pyc": "",
            "pkg/__pycache__/b": "",
            "pkg/dist/c": "",
            "dist/d": "",
            "logs/keep": "",
            "logs/deep/e": "",
            "p/q/tmp/f.x": "",
            "p/q/tmp/g.y": "",
            "#odd": "",
            "foo/bar/h": "",
            "foo/baz/i": "",
        },
    )
    env = {"HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, env=env, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=tmp_path, env=env, check=True, capture_output=True
    )
    files = [str(file.path_in_archive) for file in workdir_files(tmp_path)[0] if file.local.is_file()]
    assert sorted(files) == sorted(listed.stdout.decode().split("\0")[:-1])
