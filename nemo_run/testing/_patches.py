"""JSON patches (RFC 6902), as far as ``kubectl`` and controllers send them."""

from __future__ import annotations

from typing import Any

from nemo_run.testing._errors import bad_request
from nemo_run.testing._store import copied

Json = dict[str, Any]


def applied(obj: Json, operations: list[Json]) -> Json:
    """
    Give *obj* with *operations* applied in order.

    Raises:
        ApiError: a path does not exist, a test fails, or an operation is unknown (400).
    """
    result: Json = copied(obj)
    for operation in operations:
        try:
            _apply(result, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise bad_request(f"the server rejected our request due to an error in our request: {error}") from error
    return result


def _apply(obj: Json, operation: Json) -> None:
    *parents, last = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
    holder: Any = obj
    for step in parents:
        holder = holder[int(step)] if isinstance(holder, list) else holder[step]
    verb, value = operation["op"], copied(operation.get("value"))
    if isinstance(holder, list):
        at = len(holder) if last == "-" else int(last)
        if verb == "add":
            holder.insert(at, value)
            return
        key: Any = at
    else:
        key = last
    if verb == "replace" and isinstance(holder, dict) and key not in holder:
        raise KeyError(operation["path"])
    if verb in ("add", "replace"):
        holder[key] = value
    elif verb == "remove":
        del holder[key]
    elif verb == "test":
        if holder[key] != value:
            raise ValueError(f"testing value {operation['path']} failed")
    else:
        raise ValueError(f"unexpected kind: {verb}")
