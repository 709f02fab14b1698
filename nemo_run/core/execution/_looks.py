"""How the TrainJobs of an experiment stand: asked once for all of them that are followed side by side."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nemo_run._kube.names import label_value
from nemo_run._kube.resources import TRAINJOB
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.core.execution import _submit
from nemo_run.core.execution._ownership import EXPERIMENT_LABEL
from nemo_run.exceptions import KubeError, NotAuthorized

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

Json = dict[str, Any]

FRESH = 1.5
"""Seconds for which one answer does for all; each of those who follow asks every two."""


@dataclass
class _Shared:
    """What the threads that follow jobs of one experiment share."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    followers: int = 0
    asked_at: float = float("-inf")
    jobs: dict[str, Json] = field(default_factory=dict)
    error: KubeError | None = None
    may_list: bool = True


_shared: dict[tuple[str, str, str], _Shared] = defaultdict(_Shared)


class Looks:
    """Looks at one TrainJob, again and again, for as long as the ``with`` block lasts."""

    def __init__(
        self, api: KubeApi, namespace: str, name: str, experiment_id: str | None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._experiment_id = experiment_id
        self._clock = clock
        self._all = _shared[api.server, namespace, experiment_id or ""]

    def __enter__(self) -> Looks:
        with self._all.lock:
            self._all.followers += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._all.lock:
            self._all.followers -= 1
            if not self._all.followers:
                self._all.jobs = {}
                self._all.asked_at = float("-inf")

    def job(self) -> Json:
        """
        Give the TrainJob as it was a moment ago.

        Raises:
            NotFound: it is not there.
        """
        if self._experiment_id and (job := self._of_all()):
            return job
        # What a list lacks may have come after it.
        return self._api.get(TRAINJOB, self._namespace, self._name)

    def _of_all(self) -> Json | None:
        everyone = self._all
        with everyone.lock:
            if everyone.followers < 2 or not everyone.may_list:
                return None
            if self._clock.now() - everyone.asked_at >= FRESH:
                self._ask()
            if everyone.error:
                raise everyone.error
            return everyone.jobs.get(self._name)

    def _ask(self) -> None:
        everyone = self._all
        everyone.jobs, everyone.error = {}, None
        labels = {EXPERIMENT_LABEL: label_value(self._experiment_id or "")}
        everyone.asked_at = self._clock.now()
        try:
            everyone.jobs = {job["metadata"]["name"]: job for job in _submit.found(self._api, self._namespace, labels)}
        except NotAuthorized:
            everyone.may_list = False
        except KubeError as error:
            everyone.error = error
            everyone.asked_at = self._clock.now()
