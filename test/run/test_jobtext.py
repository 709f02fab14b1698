"""A job's text with another state is the text of a job in that state."""

from __future__ import annotations

import fiddle as fdl
import pytest

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.run.job import AppState, Job


@pytest.mark.parametrize("executor", [run.LocalExecutor(), run.KubeflowExecutor(env_vars={"A": "x"})], ids=type)
def test_only_what_changed_differs(executor):
    job = Job("a", run.Script(inline="true"), executor, dependencies=["b"], tail_logs=True)
    job.serialize()
    job.handle, job.launched, job.state = "local_persistent://nemo_run/a-1", True, AppState.FAILED
    changed, _ = job.serialize()
    job._text = None
    read = ZlibJSONSerializer().deserialize(changed)
    assert read == ZlibJSONSerializer().deserialize(job.serialize()[0])
    assert fdl.build(read).state is AppState.FAILED
