"""
Runs the pods of a store on this machine, and answers for them: logs, exec.

The scheduler's part (one node, which takes every pod) is in it as well.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nemo_run._kube.resources import POD
from nemo_run.testing._container import Runtime
from nemo_run.testing._containerrun import ContainerRun, waiting_reason
from nemo_run.testing._errors import ApiError, bad_request, not_found
from nemo_run.testing._faults import Faults
from nemo_run.testing._images import Images
from nemo_run.testing._logfile import LogFile, LogQuery
from nemo_run.testing._networks import Networks
from nemo_run.testing._pod import PodRun
from nemo_run.testing._podcontext import Node
from nemo_run.testing._process import CannotStart, Process
from nemo_run.testing._store import Event, Store
from nemo_run.testing._volumes import Claims

Json = dict[str, Any]


class Kubelet:
    """The one node of a LocalKube; all its methods are called on one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        home: Path,
        claims: Claims,
        images: Mapping[str, str],
        isolation: str = "auto",
        faults: Faults | None = None,
    ) -> None:
        self.runtime = Runtime(home, Images(home, images), isolation=isolation)
        self._store = store
        self._home = home
        self._claims = claims
        self.faults = faults or Faults()
        self._pods: dict[str, PodRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def check(self) -> None:
        """
        See whether this machine lets us run containers.

        Raises:
            ConfigError: it does not; the error says what to do.
        """
        await self.runtime.check()

    async def run(self) -> None:
        """Run the store's pods until cancelled; then none of them runs any more."""
        networks = Networks(self.runtime)
        node = Node(self._store, self.runtime, networks, self._claims, self.faults, self._home)
        subscription = self._store.subscribe(POD)
        try:
            async for event in subscription:
                self._take(node, event)
        finally:
            subscription.close()
            await self.stop()
            await networks.close()

    async def stop(self) -> None:
        """Kill all containers and forget the pods."""
        for pod in self._pods.values():
            pod.delete(0)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for pod in self._pods.values():
            pod.discard()
        self._pods.clear()

    async def exec(
        self, namespace: str, pod: str, container: str | None, command: Sequence[str], *, stdin: bool = False
    ) -> Process:
        """
        Run *command* in a running container.

        Raises:
            ApiError: there is no such pod (404), it has ended or has no such container (400), the container
                does not run or has no such command (500).
        """
        found = self._pod(namespace, pod)
        if found.ended:
            phase = self._store.get(POD, namespace, pod)["status"]["phase"]
            raise bad_request(f"cannot exec into a container in a completed pod; current phase is {phase}")
        run = _run(found, container)
        if run.container is None:
            raise ApiError(500, "InternalError", f'unable to upgrade connection: container not found ("{run.name}")')
        try:
            return await self.runtime.exec(run.container, command, stdin=stdin)
        except CannotStart as error:
            raise ApiError(
                500,
                "InternalError",
                "Internal error occurred: error executing command in container: failed to exec in container: "
                f"OCI runtime exec failed: exec failed: unable to start container process: {error}: unknown",
            ) from error

    def log(
        self,
        namespace: str,
        pod: str,
        container: str | None,
        *,
        follow: bool = False,
        since_time: datetime.datetime | None = None,
        timestamps: bool = False,
        previous: bool = False,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """
        Give a container's log in pieces.

        Raises:
            ApiError: there is no such pod (404), it has no such container, or that has no log yet (400).
        """
        log = _log(self._pod(namespace, pod), container, previous=previous)
        return log.read(LogQuery(follow, since_time, timestamps, tail_lines, limit_bytes))

    def _take(self, node: Node, event: Event) -> None:
        meta = event.object["metadata"]
        uid = meta["uid"]
        if uid not in self._pods:
            if event.type == "DELETED" or "deletionTimestamp" in meta:
                return  # what is left to tell of a pod that has ended here
            self._pods[uid] = PodRun(node, event.object)
            self._tasks[uid] = asyncio.create_task(self._live(self._pods[uid]), name=f"pod {meta['name']}")
        pod = self._pods[uid]
        if event.type == "DELETED":
            pod.delete(0)
        elif "deletionTimestamp" in meta:
            pod.delete(meta.get("deletionGracePeriodSeconds", 30))

    async def _live(self, pod: PodRun) -> None:
        """Run a pod to its end and wait until it is deleted."""
        uid = pod.pod["metadata"]["uid"]
        try:
            await pod.live()
            await pod.deleted()
            if self._current(pod):
                await pod.noticed()
        finally:
            if uid in self._pods:
                del self._pods[uid]
                pod.discard()
            self._tasks.pop(uid, None)
            if self._current(pod):
                self._store.remove(POD, pod.namespace, pod.name)

    def _current(self, pod: PodRun) -> bool:
        try:
            stored = self._store.get(POD, pod.namespace, pod.name)
        except ApiError:
            return False
        meta = stored["metadata"]
        return meta["uid"] == pod.pod["metadata"]["uid"] and "deletionTimestamp" in meta

    def _pod(self, namespace: str, name: str) -> PodRun:
        for pod in self._pods.values():
            if pod.namespace == namespace and pod.name == name:
                return pod
        raise not_found(POD, name)


def _run(pod: PodRun, container: str | None) -> ContainerRun:
    """Give the container that is meant."""
    main = [each["name"] for each in pod.pod["spec"]["containers"]]
    if not container:
        if len(main) > 1:
            names = " ".join(pod.runs)
            raise bad_request(f"a container name must be specified for pod {pod.name}, choose one of: [{names}]")
        container = main[0]
    if container not in pod.runs:
        raise bad_request(f"container {container} is not valid for pod {pod.name}")
    return pod.runs[container]


def _log(pod: PodRun, container: str | None, *, previous: bool) -> LogFile:
    run = _run(pod, container)
    log = run.log(previous=previous)
    if log is not None:
        return log
    if previous:
        raise bad_request(f'previous terminated container "{run.name}" in pod "{pod.name}" not found')
    raise bad_request(f'container "{run.name}" in pod "{pod.name}" is waiting to start: {waiting_reason(run.state)}')
