"""Names, labels and annotations: what the API server allows, and how it says no."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from nemo_run._kube.resources import Resource
from nemo_run.testing._errors import FieldError
from nemo_run.testing._kinds import NAMESPACE, SERVICE

Json = dict[str, Any]

KNOWN = frozenset(
    (
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    )
)

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_DNS_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_LABEL_SAYS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_SAYS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_DNS_1035_SAYS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation "
    f"is '{_DNS_1035}')"
)
_VALUE_SAYS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '{_VALUE}')"
)
_KEY_SAYS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_KEY}')"
)


def label_faults(text: str) -> list[str]:
    """Give what keeps *text* from being an RFC 1123 label."""
    return _faults(text, _LABEL, _LABEL_SAYS, 63)


def subdomain_faults(text: str) -> list[str]:
    """Give what keeps *text* from being an RFC 1123 subdomain."""
    return _faults(text, _SUBDOMAIN, _SUBDOMAIN_SAYS, 253)


def dns_1035_faults(text: str) -> list[str]:
    """Give what keeps *text* from being a DNS-1035 label."""
    return _faults(text, _DNS_1035, _DNS_1035_SAYS, 63)


def problems(kind: Resource, meta: Json) -> Iterator[FieldError]:
    """Tell all that is wrong with an object's metadata."""
    faults = label_faults if kind == NAMESPACE else dns_1035_faults if kind == SERVICE else subdomain_faults
    for fault in faults(meta["name"]):
        yield wrong("metadata.name", meta["name"], fault)
    yield from label_problems(meta, "metadata")


def label_problems(meta: Json, path: str) -> Iterator[FieldError]:
    """Tell what is wrong with the labels and annotations of an object or of a pod template."""
    for key, value in (meta.get("labels") or {}).items():
        for fault in _key_faults(key):
            yield wrong(f"{path}.labels", key, fault)
        for fault in _faults(value, _VALUE, _VALUE_SAYS, 63):
            yield wrong(f"{path}.labels", value, fault)
    for key in meta.get("annotations") or {}:
        for fault in _key_faults(key.lower()):
            yield wrong(f"{path}.annotations", key, fault)


def wrong(path: str, value: Any, why: str) -> FieldError:
    """Give the error that shows the wrong value."""
    return FieldError(path, f"Invalid value: {json.dumps(value, separators=(',', ':'))}: {why}")


def _faults(text: str, pattern: str, says: str, limit: int) -> list[str]:
    found = []
    if len(text) > limit:
        found.append(f"must be no more than {limit} characters")
    if not re.fullmatch(pattern, text):
        found.append(says)
    return found


def _key_faults(key: str) -> list[str]:
    prefix, slash, name = key.rpartition("/")
    found = [f"prefix part {fault}" for fault in subdomain_faults(prefix)] if slash else []
    if not name:
        return [*found, "name part must be non-empty"]
    if len(name) > 63:
        found.append("name part must be no more than 63 characters")
    if not re.fullmatch(_KEY, name):
        found.append(_KEY_SAYS)
    return found
