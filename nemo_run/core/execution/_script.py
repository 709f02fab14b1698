"""
The launch script: what a container's bash runs to start one node's task.

Its values are shell-quoted here and nowhere else, so each argument reaches the
process as it was written. One thing expands: ``$NAME`` and ``${NAME}`` of a
variable that the container has, as in NeMo-Run's scripts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nemo_run.core.execution._env import Export, references
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    import jinja2

LINK = PurePosixPath("/nemo_run")
"""Where a task may expect its files, whatever the workdir is mounted at."""

ARGUMENT_MAX = 128 * 1024 - 1
"""Bytes that Linux takes for one argument (MAX_ARG_STRLEN, less the NUL at its end)."""

START_MAX = 2 * 1024 * 1024
"""Bytes that Linux takes for all arguments and variables of a process with the usual stack limit of 8 MiB."""

_ROOT = "_nemo_run_root"
"""The script's own variable: /nemo_run where it is our link, else the code directory."""

_VARIABLE = re.compile(r"\$\$|\$(?:(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)\})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINKED = re.compile(r"(?P<option>[^=/]*=)?/nemo_run/(?P<rest>(?:code|configs|scripts)/.+)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Surrogates that stand for no byte; those between them do (``os.fsdecode``)."""
_IN_DOUBLE_QUOTES = re.compile(r'[\\"`$]')


@dataclass(frozen=True, kw_only=True)
class Workdir:
    """Where the task's files are in the container."""

    code_dir: PurePosixPath
    mount_paths: Collection[PurePosixPath] = ()
    """Each path that something is mounted at."""
    sent: Collection[str] = ()
    """The files and directories that lie below *code_dir*, relative to it."""
    local: Collection[str] = ()
    """Local names of the directory whose contents were copied to *code_dir*."""

    @property
    def links(self) -> bool:
        """Tell whether the script may try to link /nemo_run: nothing is mounted there or below it."""
        return not any(path.is_relative_to(LINK) for path in self.mount_paths)

    @property
    def packed(self) -> bool:
        """Tell whether the packager gave files."""
        return any(path.startswith("code/") for path in self.sent)


def launch_script(
    command: Sequence[str],
    *,
    exports: Iterable[Export],
    max_retries: int = 0,
    workdir: Workdir | None = None,
    files: Mapping[str, str] | None = None,
) -> str:
    """
    Give the text of ``launch.sh`` for *command*, a list of arguments.

    Args:
        exports: variables that the script sets, in this order.
        workdir: None where the container has no files of ours.
        files: texts that the script itself writes, by their path below ``$NEMO_RUN_DIR``; only without a workdir.

    Raises:
        ConfigError: an argument that no process can be given.
    """
    if not command:
        raise ConfigError("command", list(command), "give the program to run")
    for argument in command:
        _check_argument(argument)
    return _template().render(
        files={_below(path): shlex.quote(text) for path, text in (files or {}).items()},
        directories=sorted({_below(PurePosixPath(path).parent) for path in files or ()}),
        code_dir=workdir and shlex.quote(str(workdir.code_dir)),
        root=_ROOT if workdir and workdir.links else "",
        directory=workdir and workdir.packed and shlex.quote(str(workdir.code_dir / "code")),
        max_retries=int(max_retries),
        exports=[assignment(export) for export in exports],
        command=" ".join(_argument(argument, workdir) for argument in command),
    )


def _below(path: str | PurePosixPath) -> str:
    """Give *path* below ``$NEMO_RUN_DIR`` as one word of bash."""
    return f'"$NEMO_RUN_DIR"/{shlex.quote(str(path))}'


def quoted(text: str) -> str:
    """
    Give *text* as one word of bash in which variables that are set expand.

    ``$NAME`` of a variable that is not set stays as written, and ``$$`` does.
    """
    if not _VARIABLE.search(text.replace("$$", "")):
        return shlex.quote(text)
    return _double_quoted(text, _VARIABLE, _expansion)


def _argument(argument: str, workdir: Workdir | None) -> str:
    if workdir is None:
        return quoted(argument)
    option, rest = _sent_path(argument, workdir)
    if rest is None:
        return quoted(argument)
    root = f'"${_ROOT}"' if workdir.links and argument[len(option) :].startswith(f"{LINK}/") else None
    if root is None:
        return (shlex.quote(option) if option else "") + shlex.quote(str(workdir.code_dir / rest))
    return (shlex.quote(option) if option else "") + root + shlex.quote(f"/{rest}")


def _sent_path(argument: str, workdir: Workdir) -> tuple[str, str | None]:
    """Split *argument* into ``--option=`` and a path below the code directory; None where it names nothing we send."""
    if (match := _LINKED.fullmatch(argument)) and match["rest"].rstrip("/") in workdir.sent:
        return match["option"] or "", match["rest"]
    option, equals, value = argument.partition("=")
    for head, path in (("", argument), (option + equals, value)):
        for local in workdir.local:
            rest = path[len(local) :].lstrip("/")
            if path.startswith(f"{local}/") and rest.rstrip("/") in workdir.sent:
                return head, rest
    return "", None


def assignment(export: Export) -> str:
    """Give ``NAME=value`` for bash, with references to its former value and to other variables expanded."""

    def expansion(match: re.Match[str]) -> str | None:
        name = export.name if match["own"] else match["other"]
        if name is None or not (match["own"] or name in export.references):
            return None
        # A shell has no name for a variable such as my-var, but passes it on.
        return f"${{{name}-}}" if _NAME.fullmatch(name) else f"$(printenv {shlex.quote(name)})"

    return f"{export.name}={_double_quoted(export.value, references(export.name), expansion)}"


def _expansion(match: re.Match[str]) -> str | None:
    name = match["bare"] or match["braced"]
    # `_` is bash's own: the last argument of the command before.
    if name is None or name == "_":
        return None
    return rf"${{{name}-\${name}}}" if match["bare"] else rf"${{{name}-\${{{name}\}}}}"


def _double_quoted(text: str, pattern: re.Pattern[str], expansion: Callable[[re.Match[str]], str | None]) -> str:
    parts: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        expanded = expansion(match)
        parts += [_escaped(text[end : match.start()]), _escaped(match[0]) if expanded is None else expanded]
        end = match.end()
    return f'"{"".join(parts)}{_escaped(text[end:])}"'


def _escaped(text: str) -> str:
    return _IN_DOUBLE_QUOTES.sub(r"\\\g<0>", text)


def _check_argument(argument: str) -> None:
    if not isinstance(argument, str):
        raise ConfigError("command", argument, "each argument must be a string")
    if "\0" in argument:
        raise ConfigError("command", "…", "an argument holds NUL, which no process can be given")
    if _NO_BYTE.search(argument):
        raise ConfigError("command", f"{argument[:60]!a}", "an argument holds half a surrogate pair, which is no text")
    if (size := size_of(argument)) > ARGUMENT_MAX:
        raise ConfigError(
            "command",
            f"{argument[:20]}…",
            f"an argument has {size} bytes and Linux takes {ARGUMENT_MAX}; put it into a file that is sent along",
        )


def check_start(command: Iterable[str], variables: Mapping[str, str]) -> None:
    """
    Check that Linux starts a process with these arguments and variables.

    Raises:
        ConfigError: a variable, or all together, are too long.
    """
    texts = [*command, *(f"{name}={value}" for name, value in variables.items())]
    for name, value in variables.items():
        if (size := size_of(f"{name}={value}")) > ARGUMENT_MAX:
            raise ConfigError("env_vars", name, f"it has {size} bytes and Linux takes {ARGUMENT_MAX}; use a file")
    # Each ends with NUL and has a pointer to it.
    if (size := sum(size_of(text) + 9 for text in texts)) > START_MAX:
        hint = f"arguments and variables have {size} bytes in all, and Linux takes {START_MAX}; put some into a file"
        raise ConfigError("command", f"{' '.join(texts)[:60]}…", hint)


def is_utf8(text: str) -> bool:
    """Tell whether *text* can be sent as UTF-8."""
    return not _SURROGATE.search(text)


def size_of(text: str) -> int:
    """Give the bytes that *text* takes."""
    return len(text.encode("utf-8", "ignore")) + len(_SURROGATE.findall(text))


def with_parents(paths: Iterable[PurePosixPath]) -> frozenset[str]:
    """Give *paths* and each directory above them, as text."""
    found: set[str] = set()
    for path in paths:
        found.update(str(part) for part in (path, *path.parents) if part != PurePosixPath("."))
    return frozenset(found)


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=False,  # noqa: S701  # a shell script, quoted by this module
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("kubeflow.sh.j2")
