"""Packagers: what is in the archive, to the byte."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

import nemo_run as run
from nemo_run.exceptions import ConfigError, NoRepository, PackagingError

IDENTITY = {f"GIT_{who}_{what}": "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": "/nonexistent"}


def git(folder: Path, *args: str) -> str:
    env = {**os.environ, **IDENTITY, **CONFIG}
    argv = ["git", "-c", "protocol.file.allow=always", "-C", str(folder), *args]
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=env).stdout.strip()


def repository(folder: Path, files: dict[str, str]) -> Path:
    """Make a repository with *files* committed."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, files)
    return folder


def commit(folder: Path, files: dict[str, str]) -> None:
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "change")


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def packed(packager: run.Packager, path: Path, job_dir: Path) -> dict[str, str]:
    """Give the files and links of the archive, by name."""
    archive = packager.package(path, str(job_dir), "code")
    assert archive == str(job_dir / "code.tar.gz")
    assert [entry.name for entry in job_dir.iterdir()] == ["code.tar.gz"]
    return contents(Path(archive))


def contents(archive: Path) -> dict[str, str]:
    found = {}
    with tarfile.open(archive, "r:gz") as tar:
        names = tar.getnames()
        assert names == sorted(set(names))
        for info in tar:
            assert (info.uid, info.gid, info.uname, info.gname) == (0, 0, "", "")
            assert info.mode == (0o755 if info.isdir() or info.mode & 0o100 else 0o644)
            if info.issym():
                found[info.name] = f"-> {info.linkname}"
            elif content := tar.extractfile(info):
                found[info.name] = content.read().decode()
    return found


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    return tmp_path / "job"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", {"a.py": "a", "src/b.py": "b", "src/deep/c.py": "c"})


def test_plain_packager_packs_nothing(tmp_path: Path) -> None:
    assert run.Packager().package(tmp_path, str(tmp_path), "code") == ""
    assert list(tmp_path.iterdir()) == []


def test_git_packs_what_is_committed(repo: Path, job_dir: Path) -> None:
    write(repo, {"a.py": "edited", "untracked": "u"})
    assert packed(run.GitArchivePackager(), repo, job_dir) == {"a.py": "a", "src/b.py": "b", "src/deep/c.py": "c"}


def test_git_packs_the_whole_repository_from_inside_it(repo: Path, job_dir: Path) -> None:
    assert "a.py" in packed(run.GitArchivePackager(), repo / "src", job_dir)


def test_equal_content_gives_equal_bytes(repo: Path, job_dir: Path, tmp_path: Path) -> None:
    packager = run.GitArchivePackager(include_pattern=str(repo / "src"), include_pattern_relative_path=str(repo))
    first = Path(packager.package(repo, str(job_dir), "code")).read_bytes()
    assert Path(packager.package(repo, str(tmp_path / "other"), "name")).read_bytes() == first


def test_packaging_again_after_an_edit_gives_the_edit(repo: Path, job_dir: Path) -> None:
    packager = run.GitArchivePackager()
    packed(packager, repo, job_dir)
    commit(repo, {"a.py": "new"})
    assert packed(packager, repo, job_dir)["a.py"] == "new"


def test_repository_is_only_read(repo: Path, job_dir: Path) -> None:
    def state() -> list[tuple[str, int]]:
        return sorted((str(path), path.stat().st_mtime_ns) for path in repo.rglob("*"))

    before = state()
    packager = run.GitArchivePackager(check_uncommitted_changes=True, include_pattern=str(repo / "src/*"))
    packed(packager, repo, job_dir)
    assert state() == before


def test_modes_and_links_are_kept(repo: Path, job_dir: Path) -> None:
    (repo / "run.sh").write_text("#!/bin/sh\n")
    (repo / "run.sh").chmod(0o700)
    (repo / "link").symlink_to("run.sh")
    commit(repo, {})
    assert packed(run.GitArchivePackager(), repo, job_dir)["link"] == "-> run.sh"
    with tarfile.open(job_dir / "code.tar.gz") as tar:
        assert {name: tar.getmember(name).mode for name in ("run.sh", "a.py", "src")} == {
            "run.sh": 0o755,
            "a.py": 0o644,
            "src": 0o755,
        }


@pytest.mark.parametrize("subpath", ["src", "src/", "./src"])
def test_subpath_becomes_the_top(repo: Path, job_dir: Path, subpath: str) -> None:
    assert packed(run.GitArchivePackager(subpath=subpath), repo, job_dir) == {"b.py": "b", "deep/c.py": "c"}


def test_export_rules_of_the_root_hold_in_a_subpath(repo: Path, job_dir: Path) -> None:
    commit(
        repo,
        {".gitattributes": "src/secret export-ignore\n", "src/secret": "s", "src/.gitattributes": "b.py export-ignore"},
    )
    assert packed(run.GitArchivePackager(subpath="src"), repo, job_dir) == {
        ".gitattributes": "b.py export-ignore",
        "deep/c.py": "c",
    }


@pytest.mark.parametrize("subpath", ["/etc", "../x", "a/../.."])
def test_subpath_stays_in_the_repository(repo: Path, job_dir: Path, subpath: str) -> None:
    with pytest.raises(ConfigError) as caught:
        packed(run.GitArchivePackager(subpath=subpath), repo, job_dir)
    assert caught.value.argument == "subpath"


def test_missing_subpath_is_named(repo: Path, job_dir: Path) -> None:
    with pytest.raises(PackagingError, match="'nope'"):
        packed(run.GitArchivePackager(subpath="nope"), repo, job_dir)


def test_ref(repo: Path, job_dir: Path) -> None:
    git(repo, "tag", "old")
    commit(repo, {"a.py": "new"})
    assert packed(run.GitArchivePackager(ref="old"), repo, job_dir)["a.py"] == "a"


@pytest.mark.parametrize("ref", ["nope", "--output=/tmp/x", ""])
def test_unknown_ref_is_named(repo: Path, job_dir: Path, ref: str) -> None:
    with pytest.raises(ConfigError) as caught:
        packed(run.GitArchivePackager(ref=ref), repo, job_dir)
    assert (caught.value.argument, caught.value.value) == ("ref", ref)


def test_basepath_names_the_repository(repo: Path, job_dir: Path, tmp_path: Path) -> None:
    assert "a.py" in packed(run.GitArchivePackager(basepath=str(repo)), tmp_path, job_dir)


def test_worktree(repo: Path, job_dir: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    commit(tmp_path / "tree", {"a.py": "other"})
    assert packed(run.GitArchivePackager(), tmp_path / "tree", job_dir)["a.py"] == "other"


def test_awkward_names(tmp_path: Path, job_dir: Path) -> None:
    files = {
        "a b": "1",
        "it's": "2",
        '"q"$X`id`': "3",
        "new\nline": "4",
        "-x": "5",
        "é": "6",
        ":(glob)y/z": "7",
        "x" * 200: "8",
    }
    awkward = repository(tmp_path / "a 'b' $c", files)
    assert packed(run.GitArchivePackager(), awkward, job_dir) == files
    assert packed(run.GitArchivePackager(subpath=":(glob)y"), awkward, job_dir) == {"z": "7"}


def test_inside_a_git_hook(repo: Path, job_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git names the hook's repository by variables there."""
    other = repository(tmp_path / "other", {"o.py": "o"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    assert "a.py" in packed(run.GitArchivePackager(), repo, job_dir)


@pytest.fixture
def nested(tmp_path: Path) -> Path:
    """Give a repository with a submodule that has one itself."""
    inner = repository(tmp_path / "inner", {"i.py": "i"})
    middle = repository(tmp_path / "middle", {"m.py": "m", "hidden": "h", ".gitattributes": "hidden export-ignore"})
    git(middle, "submodule", "add", "-q", str(inner), "third party/inner")
    commit(middle, {})
    outer = repository(tmp_path / "outer", {"o.py": "o"})
    git(outer, "submodule", "add", "-q", str(middle), "lib/middle")
    git(outer, "submodule", "update", "-q", "--init", "--recursive")
    commit(outer, {})
    return outer


def without_git_files(files: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in files.items() if "/.git" not in f"/{name}"}


def test_nested_submodules_are_where_they_belong(nested: Path, job_dir: Path) -> None:
    assert without_git_files(packed(run.GitArchivePackager(), nested, job_dir)) == {
        "o.py": "o",
        "lib/middle/m.py": "m",
        "lib/middle/third party/inner/i.py": "i",
    }
    assert without_git_files(packed(run.GitArchivePackager(subpath="lib"), nested, job_dir)) == {
        "middle/m.py": "m",
        "middle/third party/inner/i.py": "i",
    }
    assert without_git_files(packed(run.GitArchivePackager(include_submodules=False), nested, job_dir)) == {"o.py": "o"}


def test_submodule_is_packed_as_checked_out(nested: Path, job_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As upstream; it says so when that is not what the repository records."""
    commit(nested / "lib/middle", {"m.py": "new"})
    assert packed(run.GitArchivePackager(), nested, job_dir)["lib/middle/m.py"] == "new"
    assert "lib/middle is packed as checked out" in caplog.text
    head = git(nested, "rev-parse", "HEAD")
    assert packed(run.GitArchivePackager(ref=head), nested, job_dir)["lib/middle/m.py"] == "m"


def test_submodule_that_is_not_checked_out_is_an_error(nested: Path, job_dir: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(nested), "clone")
    with pytest.raises(PackagingError, match=r"lib/middle is not checked out.*git submodule update --init"):
        packed(run.GitArchivePackager(), tmp_path / "clone", job_dir)


def test_checks_list_the_files(repo: Path, job_dir: Path) -> None:
    strict = run.GitArchivePackager(check_uncommitted_changes=True, check_untracked_files=True)
    assert packed(strict, repo, job_dir)
    write(repo, {"new file": "n"})
    with pytest.raises(RuntimeError, match=r"Your repo has untracked files\..*new file"):
        packed(strict, repo, job_dir)
    write(repo, {"a.py": "edited", "src/b.py": "edited"})
    with pytest.raises(RuntimeError, match=r"Your repo has uncommitted changes\..*a\.py, src/b\.py"):
        packed(strict, repo, job_dir)


def test_ignored_files_are_not_untracked(repo: Path, job_dir: Path) -> None:
    commit(repo, {".gitignore": "*.log"})
    write(repo, {"x.log": "x"})
    assert packed(run.GitArchivePackager(check_untracked_files=True), repo, job_dir)


def test_no_repository_is_an_error_of_its_own(tmp_path: Path, job_dir: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NoRepository, match="in no git repository"):
            packed(run.GitArchivePackager(), path, job_dir)


def test_git_is_missing(repo: Path, job_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(PackagingError, match="git is not installed"):
        packed(run.GitArchivePackager(), repo, job_dir)


def test_lfs_pointers_are_told(repo: Path, job_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    commit(repo, {"w.bin": pointer, "doc.md": f"see {pointer}"})
    packed(run.GitArchivePackager(), repo, job_dir)
    assert [record.getMessage() for record in caplog.records] == [
        "1 files are Git LFS pointers, not their content (run `git lfs pull`): w.bin"
    ]


def test_git_packs_more_by_pattern(repo: Path, job_dir: Path, tmp_path: Path) -> None:
    write(repo, {"data/x y.json": "x", "data/it's": "i", "a.py": "edited"})
    write(tmp_path / "outside", {"cfg/z.yaml": "z"})
    packager = run.GitArchivePackager(
        include_pattern=[str(repo / "data/*"), str(tmp_path / "outside/cfg"), str(repo / "a.py"), ""],
        include_pattern_relative_path=["", str(tmp_path / "outside"), "", "ignored"],
    )
    before = packager.to_config()
    files = packed(packager, repo, job_dir)
    assert files == {
        "a.py": "edited",
        "src/b.py": "b",
        "src/deep/c.py": "c",
        "data/x y.json": "x",
        "data/it's": "i",
        "cfg/z.yaml": "z",
    }
    assert packager.to_config() == before


def test_patterns(tmp_path: Path, job_dir: Path) -> None:
    write(tmp_path / "t", {"a/1.py": "1", "a/b/2.py": "2", "a/b/3.txt": "3", "c d/4.py": "4"})
    (tmp_path / "t/a/link").symlink_to("1.py")
    root = str(tmp_path / "t")

    def files(pattern: str | list[str], relative: str | list[str]) -> dict[str, str]:
        return packed(run.PatternPackager(include_pattern=pattern, relative_path=relative), tmp_path, job_dir)

    assert files(f"{root}/**/*.py", root) == {"a/1.py": "1", "a/b/2.py": "2", "c d/4.py": "4"}
    assert files(f"{root}/a", f"{root}/a") == {"1.py": "1", "b/2.py": "2", "b/3.txt": "3", "link": "-> 1.py"}
    assert files([f"{root}/c d/*", f"{root}/a/*.py"], [f"{root}/c d", root]) == {"4.py": "4", "a/1.py": "1"}


def test_patterns_relative_to_where_python_runs(tmp_path: Path, job_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "t", {"a/1.py": "1"})
    monkeypatch.chdir(tmp_path)
    packager = run.PatternPackager(include_pattern="t/a/*.py", relative_path="t")
    assert packed(packager, Path("elsewhere"), job_dir) == {"a/1.py": "1"}


def test_pattern_is_read_again_each_time(tmp_path: Path, job_dir: Path) -> None:
    write(tmp_path / "t", {"a": "1"})
    packager = run.PatternPackager(include_pattern=str(tmp_path / "t/*"), relative_path=str(tmp_path / "t"))
    assert packed(packager, tmp_path, job_dir) == {"a": "1"}
    write(tmp_path / "t", {"a": "2"})
    assert packed(packager, tmp_path, job_dir) == {"a": "2"}


def test_one_pattern_of_several_without_a_match_is_told(
    tmp_path: Path, job_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, {"a.py": "1"})
    patterns = [str(tmp_path / "*.nope"), str(tmp_path / "*.py")]
    packager = run.PatternPackager(include_pattern=patterns, relative_path=[str(tmp_path)] * 2)
    assert packed(packager, tmp_path, job_dir) == {"a.py": "1"}
    assert "*.nope" in caplog.text


@pytest.mark.parametrize("pattern", ["*.nope", "src/*.py", "empty"])
def test_patterns_without_any_match_are_an_error(tmp_path: Path, job_dir: Path, pattern: str) -> None:
    """The job would start without its code."""
    (tmp_path / "empty").mkdir()
    packager = run.PatternPackager(include_pattern=str(tmp_path / pattern), relative_path=str(tmp_path))
    with pytest.raises(PackagingError, match=f"no file matches .*{re.escape(pattern)}"):
        packed(packager, tmp_path, job_dir)


def test_no_pattern_at_all_packs_nothing(tmp_path: Path, job_dir: Path) -> None:
    assert packed(run.PatternPackager(include_pattern="", relative_path=""), tmp_path, job_dir) == {}


@pytest.mark.parametrize(
    ("pattern", "relative", "message"),
    [(["a", "b"], ["."], "another length"), ("{tmp}/t/*", "{tmp}/t/sub", "not below")],
)
def test_wrong_patterns(
    tmp_path: Path, job_dir: Path, pattern: str | list[str], relative: str | list[str], message: str
) -> None:
    write(tmp_path / "t", {"a": "1"})
    if isinstance(pattern, str) and isinstance(relative, str):
        pattern, relative = pattern.format(tmp=tmp_path), relative.format(tmp=tmp_path)
    with pytest.raises(ConfigError, match=message):
        packed(run.PatternPackager(include_pattern=pattern, relative_path=relative), tmp_path, job_dir)


class Foreign(run.Packager):
    """A user's own, which writes a tar that is not packed."""

    def package(self, path: Path, job_dir: str, name: str) -> str:
        archive = Path(job_dir, f"{name}.tar")
        with tarfile.open(archive, "w") as tar:
            tar.add(path / "a.py", "./z/foreign.py")
            tar.add(path / "a.py", "a.py")
        return str(archive)


def test_hybrid_puts_each_into_its_folder(repo: Path, job_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    patterns = run.PatternPackager(include_pattern=str(repo / "src/*.py"), relative_path=str(repo / "src"))
    parts = {"it's": run.GitArchivePackager(subpath="src"), "p": patterns, "f": Foreign(), "none": run.Packager()}
    assert packed(run.HybridPackager(sub_packagers=parts), repo, job_dir) == {
        "it's/b.py": "b",
        "it's/deep/c.py": "c",
        "p/b.py": "b",
        "f/z/foreign.py": "a",
        "f/a.py": "a",
    }
    assert caplog.records == []


def test_hybrid_at_the_root_lets_the_later_one_win(repo: Path, job_dir: Path) -> None:
    write(repo, {"a.py": "edited"})
    patterns = run.PatternPackager(include_pattern=str(repo / "a.py"), relative_path=str(repo))
    packager = run.HybridPackager(sub_packagers={"g": run.GitArchivePackager(), "p": patterns}, extract_at_root=True)
    assert packed(packager, repo, job_dir) == {"a.py": "edited", "src/b.py": "b", "src/deep/c.py": "c"}
    first = (job_dir / "code.tar.gz").read_bytes()
    packed(packager, repo, job_dir)
    assert (job_dir / "code.tar.gz").read_bytes() == first


def test_failure_leaves_the_former_archive_and_nothing_else(tmp_path: Path, job_dir: Path) -> None:
    write(tmp_path / "t", {"a": "1"})
    packager = run.PatternPackager(include_pattern=str(tmp_path / "t/*"), relative_path=str(tmp_path / "t"))
    packed(packager, tmp_path, job_dir)
    os.mkfifo(tmp_path / "t" / "b")
    (tmp_path / "t" / "c").symlink_to("d")
    (tmp_path / "t" / "e").mkdir()
    with pytest.raises(PackagingError, match="neither a file, a link nor a directory"):
        packager.package(tmp_path, str(job_dir), "code")
    assert contents(job_dir / "code.tar.gz") == {"a": "1"}
    assert len(list(job_dir.iterdir())) == 1
