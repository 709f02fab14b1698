"""
What stands in for images: this machine itself, with this Python or another, or a directory such as busybox's.

An image's name selects only which of them; nothing is ever pulled.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from nemo_run.exceptions import ConfigError
from nemo_run.testing._rootfs import TOOLS, Image

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BUSYBOX_PATH = "/bin"


class Images:
    """Finds what a container sees for the name of its image."""

    def __init__(self, home: Path, images: Mapping[str, str]) -> None:
        self._home = home
        self._images = dict(images)
        self._machine = _on_machine(_this_python(), home / "bin")
        self._made: dict[str, Image] = {}
        for value in self._images.values():
            self._stand_in(value)

    def find(self, name: str) -> Image:
        """Give what stands in for image *name*: the first pattern that fits, else this machine."""
        for pattern, value in self._images.items():
            if fnmatchcase(name, pattern):
                return self._stand_in(value)
        return self._machine

    def _stand_in(self, value: str) -> Image:
        if value not in self._made:
            self._made[value] = self._make(value)
        return self._made[value]

    def _make(self, value: str) -> Image:
        path = Path(value)
        if value == "busybox":
            return Image(_busybox_root(self._home / "images" / "busybox"), _BUSYBOX_PATH)
        if path.is_absolute() and path.is_dir():
            return Image(path, STANDARD_PATH)
        if path.is_absolute() and os.access(path, os.X_OK):
            return _on_machine(_other_python(path), self._home / "images" / f"python-{len(self._made)}")
        raise ConfigError("images", value, 'write "busybox", or the absolute path of a directory or of a python')


@dataclass(frozen=True)
class _Python:
    """An interpreter, and what is said of it."""

    program: Path
    places: tuple[Path, ...]
    """Its own tree, its virtual environment, where its packages lie."""
    packages: frozenset[str]
    """Which of ``torch`` and ``ray`` it has."""


_PACKAGES = ("torch", "ray")
_QUESTION = f"""
import importlib.util, json, sys
found = {{name: importlib.util.find_spec(name) for name in {_PACKAGES!r}}}
packages = [name for name, spec in found.items() if spec and spec.origin]
print(json.dumps([[sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path], packages]))
"""


def _this_python() -> _Python:
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    return _python(Path(sys.executable), places, filter(_installed, _PACKAGES))


def _other_python(program: Path) -> _Python:
    try:
        asked = subprocess.run([program, "-I", "-c", _QUESTION], check=True, capture_output=True, text=True, timeout=60)
        places, packages = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError("images", str(program), f"it is no python that works: {error}") from error
    return _python(program, places, packages)


def _python(program: Path, places: Iterable[str], packages: Iterable[str]) -> _Python:
    named = [place for place in (*places, *map(str, _directories(program))) if place]
    real = [Path(os.path.realpath(place)) for place in named]
    shown = [Path(os.path.abspath(place)) for place in named]
    there = (path for path in dict.fromkeys([*shown, *real]) if path.is_dir() and path != Path("/"))
    return _Python(program, tuple(there), frozenset(packages))


def _directories(program: Path) -> Iterator[Path]:
    """Give where *program* lies, and each link on the way to it: an environment's python can be another one's."""
    yield program.parent
    while program.is_symlink():
        program = program.parent / os.readlink(program)
        yield program.parent


def _installed(package: str) -> bool:
    """Tell if a package is there: a directory that happens to have its name is none."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def _on_machine(python: _Python, tools: Path) -> Image:
    """Give this machine as an image, on which ``python`` and its scripts are those of *python*."""
    _make_tools(tools, python)
    own = str(python.program.parent)
    parts = STANDARD_PATH.split(":")
    path = ":".join([TOOLS, *([] if own in parts else [own]), *parts])
    return Image(Path("/"), path, python.places, tools)


def _make_tools(directory: Path, interpreter: _Python) -> None:
    """Write ``python`` and, where torch or Ray are absent, ``torchrun`` and ``ray``."""
    directory.mkdir(parents=True, exist_ok=True)
    python = shlex.quote(str(interpreter.program))
    _write_script(directory / "python", f'exec {python} "$@"\n')
    _write_script(directory / "python3", f'exec {python} "$@"\n')
    if "torch" not in interpreter.packages:
        shutil.copyfile(Path(__file__).with_name("_torchrun.py"), directory / "torchrun.py")
        _write_script(directory / "torchrun", f'exec {python} {TOOLS}/torchrun.py "$@"\n')
    shutil.copyfile(Path(__file__).with_name("_ray_bridge.py"), directory / "ray_bridge.py")
    if "ray" not in interpreter.packages:
        _make_ray(directory, python)
    directory.chmod(0o755)


def _make_ray(directory: Path, python: str) -> None:
    for name in ("node", "job"):
        shutil.copyfile(Path(__file__).with_name(f"_ray_{name}.py"), directory / f"ray_{name}.py")
    job = f'[ "$1" = job ] && shift && exec {python} -I {TOOLS}/ray_job.py "$@"\n'
    _write_script(directory / "ray", f'{job}exec {python} -I {TOOLS}/ray_node.py "$@"\n')


def _write_script(path: Path, text: str) -> None:
    # Not sh: some of them drop variables with names that no shell variable can have, such as "A.B".
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)


def _busybox_root(root: Path) -> Path:
    """Make a root filesystem whose only commands are busybox's."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise ConfigError("images", "busybox", "install busybox on this machine (apt-get install busybox)")
    if (root / "bin" / "sh").is_symlink():
        return root
    for name in ("bin", "etc", "root", "var"):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(0o755)
    shutil.copy(busybox, root / "bin" / "busybox")
    for library in _libraries(busybox):
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
    (root / "etc" / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (root / "etc" / "hosts").touch()
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    for applet in {*applets, "sh"} - {"busybox"}:
        (root / "bin" / applet).symlink_to("busybox")
    return root


def _libraries(program: str) -> list[Path]:
    """Give the libraries that *program* is linked against; none if it stands alone."""
    told = subprocess.run(["ldd", program], check=False, capture_output=True, text=True).stdout
    return [Path(word) for line in told.splitlines() for word in line.split() if word.startswith("/")]
