"""
What stands in for images: this machine itself, or a directory with nothing but busybox.

An image's name selects only which of the two; nothing is ever pulled.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from nemo_run.exceptions import ConfigError
from nemo_run.testing._rootfs import TOOLS, Image

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BUSYBOX_PATH = "/bin"


class Images:
    """Finds what a container sees for the name of its image."""

    def __init__(self, home: Path, images: Mapping[str, str]) -> None:
        self.tools = home / "bin"
        self._home = home
        self._images = dict(images)
        self._machine = Image(Path("/"), _search_path(), _python_directories())
        self._made: dict[str, Image] = {}
        _make_tools(self.tools)
        for value in self._images.values():
            self._stand_in(value)

    def find(self, name: str) -> Image:
        """Give what stands in for image *name*: the first pattern that fits, else this machine."""
        for pattern, value in self._images.items():
            if fnmatchcase(name, pattern):
                return self._stand_in(value)
        return self._machine

    def has_tools(self, image: Image) -> bool:
        """Tell if LocalKube's own commands belong into *image*: only where the machine's are, too."""
        return image is self._machine

    def _stand_in(self, value: str) -> Image:
        if value not in self._made:
            self._made[value] = self._make(value)
        return self._made[value]

    def _make(self, value: str) -> Image:
        if value == "busybox":
            return Image(_busybox_root(self._home / "images" / "busybox"), _BUSYBOX_PATH)
        if Path(value).is_absolute() and Path(value).is_dir():
            return Image(Path(value), STANDARD_PATH)
        raise ConfigError("images", value, 'write "busybox" or the absolute path of a directory')


def _search_path() -> str:
    """Put the interpreter's own directory first, so that ``python`` and its scripts are what runs LocalKube."""
    own = str(Path(sys.executable).parent)
    parts = STANDARD_PATH.split(":")
    return ":".join([TOOLS, *([] if own in parts else [own]), *parts])


def _python_directories() -> tuple[Path, ...]:
    """Give what the interpreter needs: its own tree, its virtual environment, where its packages lie."""
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).parent), *sys.path]
    real = [Path(os.path.realpath(place)) for place in places if place]
    shown = [Path(os.path.abspath(place)) for place in places if place]
    return tuple(path for path in dict.fromkeys([*shown, *real]) if path.is_dir() and path != Path("/"))


def _make_tools(directory: Path) -> None:
    """Write ``python`` and, where torch or Ray are absent, ``torchrun`` and ``ray``."""
    directory.mkdir(parents=True, exist_ok=True)
    python = shlex.quote(sys.executable)
    _write_script(directory / "python", f'exec {python} "$@"\n')
    _write_script(directory / "python3", f'exec {python} "$@"\n')
    if not _installed("torch"):
        shutil.copyfile(Path(__file__).with_name("_torchrun.py"), directory / "torchrun.py")
        _write_script(directory / "torchrun", f'exec {python} {TOOLS}/torchrun.py "$@"\n')
    shutil.copyfile(Path(__file__).with_name("_ray_bridge.py"), directory / "ray_bridge.py")
    if not _installed("ray"):
        _make_ray(directory, python)
    directory.chmod(0o755)


def _installed(package: str) -> bool:
    """Tell if a package is there: a directory that happens to have its name is none."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


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
