"""
Names and label values as Kubernetes wants them.

Random parts come from outside and are never what gets cut: they are what tells
two objects apart.
"""

from __future__ import annotations

import hashlib
import re

from nemo_run.exceptions import InvalidName

LABEL_MAX = 63
"""Longest DNS label, label value, container and Service name (RFC 1035; Kubernetes validation.go)."""
TRAINJOB_MAX = 33
"""Longest TrainJob name that every stock runtime's JobSet takes (JobSet v0.12 jobset_webhook.go)."""
RAYCLUSTER_MAX = 53
"""Longest RayCluster name (KubeRay v1.4+ constant.go)."""
RAYJOB_MAX = 47
"""Longest RayJob name (KubeRay v1.4+ constant.go)."""

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]+")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_NOT_IN_VALUE = re.compile(r"[^-A-Za-z0-9_.]+")


def digest(text: str, length: int = 6) -> str:
    """Give the first *length* hex digits of *text*'s sha256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def check_dns_label(name: str, *, argument: str = "name", limit: int = LABEL_MAX) -> str:
    """
    Return *name* if it is an RFC 1035 label of at most *limit* characters.

    Raises:
        InvalidName: it is not; nothing was sent.
    """
    if len(name) > limit or not _LABEL.fullmatch(name):
        raise InvalidName(
            argument,
            name,
            f"write a name of at most {limit} lower-case letters, digits and '-' that starts with a letter"
            " and does not end with '-'",
        )
    return name


def check_namespace(name: object, *, argument: str = "namespace") -> None:
    """
    Check that a namespace can be called *name*: an RFC 1123 label, which may start with a digit.

    Raises:
        InvalidName: none can; nothing was sent.
    """
    if not isinstance(name, str) or len(name) > LABEL_MAX or not _NAMESPACE.fullmatch(name):
        raise InvalidName(
            argument,
            name,
            f"write a namespace: at most {LABEL_MAX} lower-case letters, digits and '-', with a letter or digit at"
            " both ends",
        )


def dns_label(text: str, *, suffix: str = "", limit: int = LABEL_MAX) -> str:
    """
    Turn *text* into an RFC 1035 label that ends with *suffix* whole.

    Only *text* is shortened to fit *limit*. A text without a usable letter or
    digit becomes ``job``; one that starts with a digit gets ``j-`` before it.

    Raises:
        InvalidName: *suffix* leaves no room or is no part of a label.
    """
    stem = _NOT_IN_LABEL.sub("-", text.lower()).strip("-") or "job"
    if not stem[0].isalpha():
        stem = f"j-{stem}"
    stem = stem[: max(limit - len(suffix), 1)].rstrip("-")
    return check_dns_label(f"{stem}{suffix}", limit=limit)


def stable_label(text: str, *, limit: int = LABEL_MAX) -> str:
    """
    Turn *text* into an RFC 1035 label, the same each time and another for another text.

    A text that is a label already stays; any other gets 6 hex digits of its sha256.
    """
    if len(text) <= limit and _LABEL.fullmatch(text):
        return text
    return dns_label(text, suffix=f"-{digest(text)}", limit=limit)


def label_value(text: str) -> str:
    """
    Turn *text* into a label value (at most 63 of ``A-Za-z0-9-_.``), another for another text.

    A text that is a label value already stays; any other gets 6 hex digits of its sha256.
    """
    if len(text) <= LABEL_MAX and _VALUE.fullmatch(text):
        return text
    suffix = f"-{digest(text)}"
    stem = _NOT_IN_VALUE.sub("-", text).strip("-_.")[: LABEL_MAX - len(suffix)].rstrip("-_.")
    return f"{stem}{suffix}" if stem else suffix[1:]
