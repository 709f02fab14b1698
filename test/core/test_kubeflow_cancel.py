"""Which TrainJob a cancel means, and that no other is touched."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from nemo_run._kube.resources import TRAINJOB
from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.exceptions import ConfigError
from nemo_run.testing import LocalKube


def executor() -> KubeflowExecutor:
    """Give an executor whose jobs no pod is started for."""
    made = KubeflowExecutor(spec_kwargs={"suspend": True})
    made.assign("exp_1", "/nonexistent", "train", "train")
    return made


def names(kube: LocalKube) -> list[str]:
    return [job["metadata"]["name"] for job in kube.do(lambda store: store.list(TRAINJOB, "default"))]


def replace(kube: LocalKube, name: str, **metadata: Any) -> str:
    """Let someone delete the TrainJob and create another of its name; give that one's uid."""
    body = copy.deepcopy(kube.do(lambda store: store.get(TRAINJOB, "default", name)))
    body.pop("status", None)
    body["metadata"] = {"name": name, **metadata}
    kube.do(lambda store: store.delete(TRAINJOB, "default", name))
    made = kube.do(lambda store: store.create(TRAINJOB, "default", body))
    return str(made["metadata"]["uid"])


def end(kube: LocalKube, name: str) -> None:
    condition = {"type": "Complete", "status": "True", "reason": "AllJobsCompleted", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    kube.do(lambda store: store.patch_status(TRAINJOB, "default", name, {"conditions": [condition]}))


def test_two_launches_of_a_task_are_named(kube):
    """Neither is taken for the other, and when one is left it is that one."""
    made = executor()
    first, second = (made.launch("train", ["true"])[0] for _ in range(2))
    with pytest.raises(ConfigError) as caught:
        made.cancel("train")
    assert first in str(caught.value)
    assert second in str(caught.value)
    assert sorted(names(kube)) == sorted([first, second])
    made.cancel(second)
    assert made.cancel("train", wait=True, poll_interval=1) is True
    assert names(kube) == []
    assert made.cancel("train", wait=True) is None


def test_a_launch_that_has_ended_is_not_meant(kube):
    made = executor()
    first, second = (made.launch("train", ["true"])[0] for _ in range(2))
    end(kube, first)
    made.cancel("train")
    assert names(kube) == [first]
    assert second != first


@pytest.mark.parametrize("by", ["name", "task"])
def test_another_job_of_the_name_is_left_alone(kube, caplog, by):
    made = executor()
    name, _ = made.launch("train", ["true"])
    replace(kube, name)
    assert made.cancel(name if by == "name" else "train", wait=True) is None
    assert names(kube) == [name]
    assert by == "task" or "is another job's by now: it is left alone" in caplog.text


def test_the_end_of_ours_is_not_the_end_of_another_of_the_name(kube):
    """A wait for the end does not go on for a job that came after it."""
    made = executor()
    name, _ = made.launch("train", ["true"])
    (ours,) = made._session.launched["train"]
    replace(kube, name)
    from nemo_run._kube.api import connect
    from nemo_run.core.execution import _submit

    assert _submit.gone(connect(), ours, timeout=0, interval=1) is True
