"""
Directory names out of templates: ``{user}/{experiment_id}/{job_name}/code`` and the like.

Whatever a value is called, it becomes one directory name and cannot climb out
of the tree that the template is put under.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from nemo_run._kube.names import digest
from nemo_run.exceptions import ConfigError

PLACEHOLDERS = ("user", "experiment_id", "job_name", "workdir")
"""What a template may name."""

_LONGEST = 200
"""Bytes that a value may take; Linux file systems end a name at 255, and a segment may hold more than one value."""


def safe_segment(text: str) -> str:
    """
    Turn *text* into one directory name, another for another text.

    What cannot stand in one is replaced, and then 6 hex digits of the text's sha256 are appended.

    Raises:
        ConfigError: *text* is ``.`` or ``..``, which name a directory already.
    """
    if text in (".", ".."):
        raise ConfigError("code_subpath", text, "a value may not be '.' or '..': it would name another directory")
    safe = "".join("-" if char == "/" or is_control(char) else char for char in text)
    if len(safe.encode()) > _LONGEST:
        safe = safe.encode()[: _LONGEST - 7].decode(errors="ignore")
    return text if safe == text else f"{safe}-{digest(text)}"


def is_control(char: str) -> bool:
    """Tell whether *char* is a control character, half a surrogate pair, or ends a line."""
    return unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")


def render(template: str, values: Mapping[str, str | None], *, argument: str = "code_subpath") -> PurePosixPath:
    """
    Fill in *template*: a relative path that never leaves the directory it is put under.

    A placeholder without a value takes its whole segment with it.

    Raises:
        ConfigError: the template is absolute, climbs with ``..``, or asks for what there is not.
    """
    if not isinstance(template, str):
        raise ConfigError(argument, template, "write a string such as '{user}/{experiment_id}/{job_name}/code'")
    if template.startswith("/"):
        raise ConfigError(argument, template, "write it relative to the mount path, without the leading '/'")
    if any(is_control(char) for char in template):
        raise ConfigError(argument, template, "remove the control characters")
    segments: list[str | None] = [""]
    for literal, field in _parsed(template, argument):
        head, *rest = literal.split("/")
        segments[-1] = None if segments[-1] is None else segments[-1] + head
        segments += rest
        if field is not None and segments[-1] is not None:
            value = values.get(field)
            segments[-1] = segments[-1] + safe_segment(value) if value else None
    if ".." in segments:
        raise ConfigError(argument, template, "remove '..': the code must stay below the mount path")
    return PurePosixPath(*(segment for segment in segments if segment))


def _parsed(template: str, argument: str) -> Iterator[tuple[str, str | None]]:
    allowed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    hint = f"allowed are {allowed}, nothing else in braces; write '{{{{' and '}}}}' for braces themselves"
    try:
        for literal, field, spec, conversion in string.Formatter().parse(template):
            if spec or conversion or (field is not None and field not in PLACEHOLDERS):
                raise ConfigError(argument, template, hint)
            yield literal, field
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(argument, template, f"{error}; {hint}") from None
