"""What a subclass of an executor says of a job, where it overrides ``status``, which NeMo-Run asked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.kubeflow import JobReport, KubeflowExecutor
from nemo_run.exceptions import NemoRunError
from nemo_run.run.backends.base import AppRecord


def overrides_status(executor: Executor | None) -> bool:
    """Tell whether the executor's class has a ``status`` of its own."""
    return isinstance(executor, KubeflowExecutor) and type(executor).status is not KubeflowExecutor.status


def told(executor: KubeflowExecutor, record: AppRecord) -> JobReport | None:
    """Give the state that the executor's own ``status`` tells, and the cluster's words if they are about that state."""
    state = executor.status(record.job_name)
    if state is None:
        return None
    uid, launch_id = (record.facts.get(key) or "" for key in ("uid", "launch_id"))
    bare = JobReport(state, "", "", uid, record.job_name, launch_id=launch_id)
    with suppress(NemoRunError):
        report = executor.report(record.job_name)
        if report is not None:
            return report if report.state is state else replace(bare, uid=report.uid, launch_id=report.launch_id)
    return bare
