"""What is asked of ``git``: argument lists only, nothing that writes into the repository."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nemo_run.exceptions import ConfigError, NoRepository, PackagingError

# A repository is named by its path here; inside a git hook these would name another one.
_NAMES_ANOTHER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


@dataclass(frozen=True)
class Repository:
    """A checkout, submodule or worktree."""

    root: Path

    @classmethod
    def around(cls, path: Path) -> Repository:
        """
        Give the repository that *path* lies in.

        Raises:
            NoRepository: it lies in none.
            PackagingError: git refuses to work there.
        """
        try:
            top = _git(path, "rev-parse", "--show-toplevel")
        except PackagingError as error:
            if "not a git repository" in str(error) or not path.is_dir():
                raise NoRepository(f"{path} is in no git repository, so there is no code to pack from it") from error
            raise
        return cls(Path(os.fsdecode(top).rstrip("\n")))

    def tree(self, ref: str) -> str:
        """
        Give the id of what *ref* names.

        Raises:
            ConfigError: it names nothing here.
        """
        try:
            return _git(self.root, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}").decode().strip()
        except PackagingError as error:
            raise ConfigError("ref", ref, f"is no commit in {self.root}") from error

    def submodules(self, commit: str, subpath: str) -> dict[str, str]:
        """Give the commit of each submodule that *commit* records below *subpath*, by its path."""
        listed = _git(self.root, "ls-tree", "-r", "-z", "--full-tree", commit, "--", *([subpath] if subpath else []))
        found = {}
        for line in os.fsdecode(listed).split("\0"):
            facts, _, path = line.partition("\t")
            if facts.startswith("160000 "):
                found[path] = facts.split()[2]
        return found

    def archive(self, commit: str, subpath: str, target: IO[bytes]) -> None:
        """Write *commit*, or what it has below *subpath*, to *target* as tar; export rules of every level hold."""
        _git(self.root, "archive", "--format=tar", commit, *(["--", subpath] if subpath else []), output=target)

    def uncommitted(self) -> list[str]:
        """Give the files that git tracks and that were changed since the last commit."""
        lines = self._status("--untracked-files=no")
        return [line[3:] for line in lines if line[2:3] == " "]

    def untracked(self) -> list[str]:
        """Give the files that git neither tracks nor ignores."""
        listed = _git(self.root, "ls-files", "-z", "--others", "--exclude-standard")
        return os.fsdecode(listed).split("\0")[:-1]

    def _status(self, *options: str) -> list[str]:
        return os.fsdecode(_git(self.root, "status", "--porcelain", "--no-renames", "-z", *options)).split("\0")


def _git(folder: Path, command: str, *args: str, output: IO[bytes] | None = None) -> bytes:
    """
    Run git in *folder* and give what it prints, unless it goes to *output*.

    Raises:
        PackagingError: it fails, or is not installed.
    """
    argv = ["git", "--no-optional-locks", "--literal-pathspecs", "-C", str(folder), command, *args]
    env = {name: value for name, value in os.environ.items() if name not in _NAMES_ANOTHER} | {"LC_ALL": "C"}
    try:
        done = subprocess.run(argv, stdout=output or subprocess.PIPE, stderr=subprocess.PIPE, env=env, check=False)
    except FileNotFoundError as error:
        raise PackagingError("git is not installed, and GitArchivePackager needs it") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise PackagingError(f"`git {command}` failed in {folder}: {said}")
    return done.stdout or b""
