"""What executors share about their workdir: the default place, and the word about deprecated arguments."""

from __future__ import annotations

import sys
import warnings

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.mounts import claim_of

JOB_SUBPATH = "{user}/{experiment_id}/{job_name}/code"
"""Where a job's code lies unless told otherwise: two jobs never meet."""

_INSIDE = ("nemo_run", "contextlib")
"""Packages whose frames are not the caller's; verbs open ``with`` blocks of their own."""

_warned: set[tuple[str, str]] = set()


def warn_replaced(layout: WorkdirLayout | None, *, deprecated: str) -> None:
    """
    Warn that *layout* comes from *deprecated* arguments, once per process for each claim and path.

    To be called where a layout is used for a launch or a manifest: when an
    executor is built, a user's call, a clone and a load look alike.
    """
    if layout is None or layout.replaced is None:
        return
    key = (claim_of(layout.volume) or str(layout.volume["name"]), str(layout.mount["mountPath"]))
    if key in _warned:
        return
    _warned.add(key)
    warnings.warn(
        f"{deprecated} is deprecated; write instead: {layout.replaced}",
        DeprecationWarning,
        stacklevel=_outside(),
    )


def _outside() -> int:
    """Give the stack level of the first caller outside nemo_run: Python shows this warning only to its author."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        frame = frame.f_back
        level += 1
    return level
