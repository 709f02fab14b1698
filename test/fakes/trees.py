"""Trees of files with everything in them that makes a copy go wrong, and what a tree looks like afterwards."""

from __future__ import annotations

import os
import stat
from pathlib import Path

ALL_BYTES = bytes(range(256)) * 4096
ODD_NAMES = (
    "a b",
    "line\nbreak",
    "-rf",
    "é",
    "tab\tand\\backslash",
    "back\\nslash",
    "'quote\"",
    "$HOME`id`",
    "*",
    " ",
    "trailing\n",
    os.fsdecode(b"not-utf8-\xff\xfe"),
    "n" * 255,
)


def plant(root: Path, *, many: int = 0) -> Path:
    """Make such a tree at *root*."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "all-bytes.bin").write_bytes(ALL_BYTES)
    (root / "empty").touch()
    script = root / "run.sh"
    script.write_text("#!/bin/sh\necho hello\n")
    script.chmod(0o700)
    (root / "secret").write_text("mode 0600 here")
    (root / "secret").chmod(0o600)
    (root / "link").symlink_to("run.sh")
    deep = root.joinpath(*["d" * 60] * 5)
    deep.mkdir(parents=True)
    (deep / "up").symlink_to("../" * 5 + "run.sh")
    (deep / ("f" * 200)).write_text("a path beyond what an old tar header holds")
    (root / "linked").symlink_to("odd", target_is_directory=True)
    (root / "dangling").symlink_to("nowhere/to/be/found")
    for name in ODD_NAMES:
        (root / "odd" / name).mkdir(parents=True)
        (root / "odd" / name / name).write_text(name, "utf-8", "surrogateescape")
    (root / "hollow" / "deeper").mkdir(parents=True)
    for index in range(many):
        place = root / "many" / f"{index % 40:02}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{index}.py").write_bytes(f"x = {index}\n".encode() * (index % 2000))
    return root


def seen(root: Path) -> dict[str, tuple[object, ...]]:
    """Give for each path below *root* its kind, its mode or target, and its content."""
    return {str(path.relative_to(root)): _facts(path) for path in sorted(root.rglob("*"))}


def _facts(path: Path) -> tuple[object, ...]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return ("link", os.readlink(path))
    if stat.S_ISDIR(mode):
        return ("directory", oct(mode & 0o777))
    return ("file", oct(mode & 0o777), path.read_bytes())


def normal(tree: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """Give *tree* with the modes that a copy gives: 0755 for directories and what can be executed, else 0644."""

    def fact(facts: tuple[object, ...]) -> tuple[object, ...]:
        if facts[0] == "link":
            return facts
        executable = facts[0] == "directory" or int(str(facts[1]), 8) & 0o111
        return (facts[0], "0o755" if executable else "0o644", *facts[2:])

    return {path: fact(facts) for path, facts in tree.items()}
