"""
Secrets kept out of what nemo_run itself shows: printed dry runs, manifests, messages.

What counts is the name: ``HF_TOKEN``, ``DB_PASSWORD``, ``--api-key``. A job's
own output is never touched, nor what is sent to a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

MASK = "***"
"""What stands in a secret's place."""

_WORD = re.compile(r"[_\-.\s]+")
_ENDINGS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY", "SECRETKEY")
_WORDS = ("KEY", "SECRETS", "PASSWORDS", "AUTH")
_KUBERNETES_FIELDS = ("key", "secret", "secrets")
"""Field names of Kubernetes objects (``tolerations[].key``, ``volumes[].secret``) that hold no secret."""

# A name begins where a word does: begun at each letter of a long word, a search would take time by its square.
_ASSIGNED = re.compile(
    r"""(?<![\w.])(?P<name>\w[\w.\-]*)(?P<sep>['"]?[^\S\n]*[=:][^\S\n]*)(?P<value>'[^']*'|"(?:\\.|[^"\\])*"|[^\s'",}\]]+)"""
)
_FLAG = re.compile(
    r"""(?<![\w\-])(?P<name>--?[A-Za-z][\w.\-]*)(?P<sep>['"]?,?\s+)(?P<value>'[^']*'|"(?:\\.|[^"\\])*"|[^\s'",}\]]+)"""
)


def is_secret(name: str) -> bool:
    """Tell whether a variable or option of this *name* is likely to hold a secret."""
    if name in _KUBERNETES_FIELDS:
        return False
    words = [word for word in _WORD.split(name.upper()) if word]
    return any(word in _WORDS or word.endswith(_ENDINGS) for word in words)


def masked(value: T, *, secrets: Iterable[str] = ()) -> T:
    """
    Give *value*, a text or plain data, with what its names say is secret replaced.

    *secrets* are known values that are replaced wherever they stand.
    """
    known = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
    result: T = _masked(value, known)
    return result


def _masked(value: Any, known: list[str]) -> Any:
    if isinstance(value, str):
        return _masked_text(value, known)
    if isinstance(value, Mapping):
        return _masked_mapping(value, known)
    if isinstance(value, (list, tuple)):
        items = [_masked(item, known) for item in value]
        for index, item in enumerate(value[:-1]):
            if isinstance(item, str) and item.startswith("-") and "=" not in item and is_secret(item.lstrip("-")):
                items[index + 1] = MASK
        return items if isinstance(value, list) else tuple(items)
    return value


def _masked_mapping(value: Mapping[Any, Any], known: list[str]) -> dict[Any, Any]:
    result = {
        key: MASK if isinstance(key, str) and is_secret(key) and _is_plain(inner) else _masked(inner, known)
        for key, inner in value.items()
    }
    name = value.get("name")
    if isinstance(name, str) and is_secret(name) and _is_plain(value.get("value")):
        result["value"] = MASK
    return result


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool) and value != ""


def _masked_text(text: str, known: list[str]) -> str:
    for secret in known:
        text = text.replace(secret, MASK)
    for pattern in (_ASSIGNED, _FLAG):
        text = pattern.sub(_masked_match, text)
    return text


def _masked_match(match: re.Match[str]) -> str:
    if not is_secret(match["name"].lstrip("-")):
        return match[0]
    value = match["value"]
    quote = value[0] if value[0] in "'\"" else ""
    return f"{match['name']}{match['sep']}{quote}{MASK}{quote}"
