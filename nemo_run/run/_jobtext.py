"""Jobs as text: what ``_TASKS`` holds of each."""

from __future__ import annotations

import base64
import copy
import json
import zlib
from typing import TYPE_CHECKING, Any

from nemo_run.config import Script
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer, unpacked

if TYPE_CHECKING:
    from nemo_run.run.job import AppState, Job, JobGroup


def rest_text(job: Job | JobGroup, part: str, empty: Any) -> str:
    """Give *job* without its task, its attribute *part*, for which *empty* stands."""
    rest = copy.copy(job)
    setattr(rest, part, empty)
    rest.plugins = None
    return ZlibJSONSerializer().serialize(rest.to_config())


def task_text(task: Any) -> str:
    """Give a task, or a list of them; a job that was loaded has it as text already."""
    return task if isinstance(task, str) else ZlibJSONSerializer().serialize(_as_configs(task))


def with_state(text: str, *, handle: str, launched: bool, state: AppState) -> str:
    """
    Give the text of a job with what has changed since it was made.

    An experiment writes all its jobs when they have ended, and little of each is new then.
    """
    document = json.loads(unpacked(text))
    new = {
        "Attr(name='handle')": {"type": "leaf", "value": handle},
        "Attr(name='launched')": {"type": "leaf", "value": launched},
        "Attr(name='state')": {"type": "pyref", "module": type(state).__module__, "name": f"AppState.{state.name}"},
    }
    items = document["objects"][document["root"]["key"]]["items"]
    for attribute, value in items:
        value.update(new.get(attribute, {}))
    return base64.urlsafe_b64encode(zlib.compress(json.dumps(document).encode())).decode("ascii")


def _as_configs(task: Any) -> Any:
    if isinstance(task, list):
        return [_as_configs(one) for one in task]
    return task.to_config() if isinstance(task, Script) else task
