"""In what a RayCluster differs from what it is to be; no I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nemo_run.core._masking import masked

HASH_ANNOTATION = "nemo-run/spec-hash"
"""Of the spec as it was sent: the server adds defaults to what it stores."""


def spec_hash(body: Mapping[str, Any]) -> str:
    """Give a short hash of the object's spec."""
    text = json.dumps(body["spec"], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def differences(wanted: Mapping[str, Any], found: Mapping[str, Any], *, secrets: Sequence[str] = ()) -> list[str]:
    """
    Name each field of *wanted*'s spec that *found* has otherwise, with both values; none if they are alike.

    What the server or the operator added is no difference, and neither is what the autoscaler has changed.
    """
    before = (found["metadata"].get("annotations") or {}).get(HASH_ANNOTATION)
    mine, theirs = masked(wanted["spec"], secrets=secrets), masked(found["spec"], secrets=secrets)
    lines = list(_differ("spec", wanted["spec"], found["spec"], mine, theirs))
    if wanted["spec"].get("enableInTreeAutoscaling"):
        lines = [line for line in lines if not line.partition(":")[0].endswith("].replicas")]
    if not lines and before is not None and before != spec_hash(wanted):
        lines = ["spec: fields that it was made with are not asked for any more"]
    return lines


def _differ(path: str, mine: Any, theirs: Any, shown: Any, shown_theirs: Any) -> Iterator[str]:
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        for key, value in mine.items():
            here = f"{path}.{key}"
            if key in theirs:
                yield from _differ(here, value, theirs[key], shown[key], shown_theirs[key])
            elif value not in (None, {}, []):
                yield f"{here}: not there, {shown[key]!r} now"
    elif isinstance(mine, list) and isinstance(theirs, list):
        if len(mine) != len(theirs):
            yield f"{path}: {len(theirs)} entries there, {len(mine)} now"
            return
        for number, pair in enumerate(zip(mine, theirs, shown, shown_theirs, strict=True)):
            yield from _differ(f"{path}[{number}]", *pair)
    elif mine != theirs:
        yield f"{path}: {shown_theirs!r} there, {shown!r} now"
