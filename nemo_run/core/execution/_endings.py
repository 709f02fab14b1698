"""How the containers of a job ended, noted while they can still be asked."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nemo_run._kube.resources import POD
from nemo_run.exceptions import KubeError, NotAuthorized, ServerError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger("nemo_run")

_SPAN = 10.0
_PAUSE = 2.0
_LONG_PAUSE = 30.0
"""Seconds until a server is asked again that refused."""
_SHOWN = 4
"""Containers that are named; of a thousand nodes most say the same."""

_noted: dict[tuple[str, str, str], dict[str, list[str]]] = defaultdict(dict)
"""Lines by pod, for each server, namespace and TrainJob; in the order in which they ended."""


class Endings:
    """
    Watches the pods of a TrainJob for as long as the ``with`` block lasts.

    When a Job fails, Kubernetes deletes its pods whose restart policy is
    OnFailure, and with them the exit code: so it has to be caught as it happens.
    Without the right to watch, pods are listed every few seconds.
    """

    def __init__(self, api: KubeApi, namespace: str, name: str) -> None:
        # Each round is a new try anyway.
        self._api = api.patient(0)
        self._namespace = namespace
        self._name = name
        self._over = threading.Event()

    def __enter__(self) -> Endings:
        threading.Thread(target=self._run, name=f"endings of {self._name}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def _run(self) -> None:
        look, told = self._watch, False
        while not self._over.is_set():
            try:
                look()
            except (ServerError, Unreachable):
                self._over.wait(_PAUSE)
            except KubeError as error:
                if isinstance(error, NotAuthorized) and look == self._watch:
                    look = self._list
                    continue
                if not told:
                    logger.info("pods cannot be looked at, so exit codes may be missing: %s", error)
                told = True
                self._over.wait(_LONG_PAUSE)

    def _watch(self) -> None:
        for event in self._api.watch(POD, self._namespace, labels=pods_of(self._name), timeout=_SPAN):
            note(self._api, self._namespace, self._name, [event.object])
            if self._over.is_set():
                return

    def _list(self) -> None:
        note(self._api, self._namespace, self._name, self._api.list(POD, self._namespace, labels=pods_of(self._name)))
        self._over.wait(_PAUSE)


def note(api: KubeApi, namespace: str, name: str, pods: Iterable[Mapping[str, Any]]) -> None:
    """Remember which containers of the TrainJob's *pods* ended badly."""
    for pod in pods:
        if lines := failures([pod]):
            _noted[api.server, namespace, name][pod["metadata"]["name"]] = lines


def noted(api: KubeApi, namespace: str, name: str) -> str:
    """Say which containers of the TrainJob have been seen to end badly, the first ones first."""
    lines = [line for found in _noted.get((api.server, namespace, name), {}).values() for line in found]
    more = [f"and {len(lines) - _SHOWN} more containers"] if len(lines) > _SHOWN else []
    return "; ".join(lines[:_SHOWN] + more)


def failures(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Give one line for each container that ended badly: pod, container, reason, exit code."""
    lines = []
    for pod in pods:
        status = pod.get("status") or {}
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            ended = _ended(container)
            if ended:
                reason = ended.get("reason") or "Error"
                line = f"pod {pod['metadata']['name']}, container {container['name']}: {reason}"
                lines.append(f"{line}, exit code {ended.get('exitCode')}")
    return lines


def pods_of(name: str) -> str:
    """Give the labels of all pods of the TrainJob *name*."""
    return f"jobset.sigs.k8s.io/jobset-name={name}"


def _ended(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Give how the container ended badly, this time or the last; an exit code 0 can still be an OOM kill."""
    for state in (container.get("state"), container.get("lastState")):
        ended: Mapping[str, Any] | None = (state or {}).get("terminated")
        if ended and (ended.get("exitCode") or ended.get("reason") == "OOMKilled"):
            return ended
    return None
