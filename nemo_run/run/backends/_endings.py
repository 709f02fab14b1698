"""How the containers of a job ended, noted while they can still be asked."""

from __future__ import annotations

import logging
import threading
from types import TracebackType

from nemo_run._kube.api import KubeApi
from nemo_run._kube.resources import POD
from nemo_run.core.execution._progress import failures
from nemo_run.exceptions import KubeError, ServerError, Unreachable

logger = logging.getLogger("nemo_run")

_SPAN = 600.0
_PAUSE = 2.0


class Endings:
    """
    Watches the pods of a job for as long as the ``with`` block lasts.

    When a Job fails, Kubernetes deletes its pods whose restart policy is
    OnFailure, and with them the exit code: so it has to be caught as it happens.
    """

    def __init__(self, api: KubeApi, namespace: str, labels: str) -> None:
        # Each round is a new try anyway.
        self._api = api.patient(0)
        self._namespace = namespace
        self._labels = labels
        self._found: dict[str, str] = {}
        self._over = threading.Event()

    def __enter__(self) -> Endings:
        threading.Thread(target=self._watch, name=f"endings {self._labels}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    @property
    def failures(self) -> list[str]:
        """Give a line for each pod with a container that ended badly: pod, container, reason, exit code."""
        return list(self._found.values())

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                for event in self._api.watch(POD, self._namespace, labels=self._labels, timeout=_SPAN):
                    if self._over.is_set():
                        return
                    for line in failures([event.object]):
                        self._found[event.object["metadata"]["name"]] = line
            except (ServerError, Unreachable):
                self._over.wait(_PAUSE)
            except KubeError as error:
                logger.info("pods cannot be watched, so exit codes may be missing: %s", error)
                return
