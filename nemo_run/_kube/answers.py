"""What the API server's answers mean: every HTTP answer that is no success becomes one of our errors, here only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from nemo_run.exceptions import Conflict, KubeError, NotAuthorized, NotFound, Rejected, ServerError, Unreachable

_BY_ADMISSION = re.compile(r"violates PodSecurity|exceeded quota|failed quota|admission webhook", re.IGNORECASE)
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_LONGEST = 2000


def error_for(
    what: str,
    status: int,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    *,
    server: str = "",
    context: str = "",
    namespace: str = "",
) -> KubeError:
    """
    Give the error that an answer means; *what* says what was being done.

    A 404 is NotFound only where the server says which object is missing. A bare
    one (an API that is not installed, a proxy on the way) says nothing about
    the object, and must not be taken for "it is gone".
    """
    told = _status_object(body)
    reason = str(told.get("reason") or "")
    message = str(told.get("message") or "") or _plain(body) or f"HTTP status {status}"
    kind: type[KubeError] = _CLASSES.get(status, ServerError if status >= 500 else Rejected)
    if status == 403 and _BY_ADMISSION.search(message):
        kind = Rejected
    elif status == 401:
        message += "; the server does not know us (any more): log in again"
    elif status == 404 and not (told.get("details") or {}).get("name"):
        kind = Rejected
        message += "; the server does not serve this API: is what provides it installed?"
    elif status < 400:
        kind = Unreachable
        message = f"no Kubernetes API server answers there: {message}"
    return kind(
        what,
        message,
        status=status,
        reason=reason,
        server=server,
        context=context,
        namespace=namespace,
        retry_after=_seconds((headers or {}).get("Retry-After")),
    )


def warnings_in(headers: Mapping[str, str]) -> list[str]:
    """Give the texts of the answer's ``Warning`` headers (code 299, as the API server writes them)."""
    return [re.sub(r"\\(.)", r"\1", text) for text in _WARNING.findall(headers.get("Warning", ""))]


_CLASSES: dict[int, type[KubeError]] = {
    401: NotAuthorized,
    403: NotAuthorized,
    404: NotFound,
    409: Conflict,
    410: ServerError,
    429: ServerError,
}


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) and told.get("kind") == "Status" else {}


def _plain(body: bytes) -> str:
    text = re.sub(r"<[^>]*>", " ", body[: 4 * _LONGEST].decode("utf-8", "replace"))
    return " ".join(text.split())[:_LONGEST]


def _seconds(text: str | None) -> float | None:
    """Read ``Retry-After``: seconds, or (from proxies) a date, which is then taken as a short while."""
    if not text:
        return None
    try:
        return max(float(text), 0.0)
    except ValueError:
        pass
    try:
        parsedate_to_datetime(text)
    except ValueError:
        return None
    return 5.0
