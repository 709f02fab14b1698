"""Plays KubeRay: looks after the RayClusters and RayJobs of a store whenever they, or what they own, change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from nemo_run._kube.resources import POD, RAYCLUSTER, RAYJOB, Resource
from nemo_run.testing._kinds import JOB
from nemo_run.testing._kuberay_cluster import RayClusters
from nemo_run.testing._kuberay_dashboard import Dashboards, Key, Node
from nemo_run.testing._kuberay_job import RayJobs
from nemo_run.testing._kuberay_pods import CLUSTER, ORIGIN
from nemo_run.testing._store import Event, Store

Json = dict[str, Any]
Due = tuple[str, str, str]
"""A kind, a namespace and a name."""


class KubeRayController:
    """The operator; *node* lets it reach the dashboards of the heads."""

    def __init__(self, store: Store, node: Node, *, version: str = "1.7") -> None:
        self._store = store
        self._due: asyncio.Queue[Due] = asyncio.Queue()
        self._timers: dict[Due, asyncio.TimerHandle] = {}
        self._dashboards = Dashboards(node, self._jobs_changed)
        self._clusters = RayClusters(store, version=version, later=self._later)
        self._jobs = RayJobs(store, self._dashboards, version=version, later=self._later)

    async def run(self) -> None:
        """Work until cancelled."""
        subscription = self._store.subscribe()
        listener = asyncio.create_task(self._listen(subscription))
        try:
            while True:
                due = {await self._due.get()}
                while not self._due.empty():
                    due.add(self._due.get_nowait())
                for kind, namespace, name in sorted(due):
                    if kind == RAYCLUSTER.kind:
                        self._clusters.reconcile(namespace, name)
                    else:
                        self._jobs.reconcile(namespace, name)
        finally:
            subscription.close()
            listener.cancel()
            for timer in self._timers.values():
                timer.cancel()
            await asyncio.gather(listener, return_exceptions=True)
            await self._dashboards.close()

    async def _listen(self, events: Any) -> None:
        async for event in events:
            for due in self._concerned(event):
                self._due.put_nowait(due)

    def _concerned(self, event: Event) -> Iterator[Due]:
        """Give the objects that a change concerns."""
        meta = event.object["metadata"]
        labels = meta.get("labels") or {}
        if event.kind in (RAYCLUSTER, RAYJOB):
            yield event.kind.kind, meta["namespace"], meta["name"]
        if event.kind == RAYCLUSTER:
            yield from self._users(meta["namespace"], meta["name"])
        elif event.kind == POD and (cluster := labels.get(CLUSTER)):
            yield RAYCLUSTER.kind, meta["namespace"], cluster
            yield from self._users(meta["namespace"], cluster)
        elif event.kind in (POD, JOB) and (job := labels.get(ORIGIN)):
            yield RAYJOB.kind, meta["namespace"], job

    def _users(self, namespace: str, cluster: str) -> Iterator[Due]:
        """Give the RayJobs that run on a cluster."""
        for job in self._store.list(RAYJOB, namespace):
            if (job.get("status") or {}).get("rayClusterName") == cluster:
                yield RAYJOB.kind, namespace, job["metadata"]["name"]

    def _jobs_changed(self, users: set[Key]) -> None:
        for namespace, name in users:
            self._due.put_nowait((RAYJOB.kind, namespace, name))

    def _later(self, kind: Resource, namespace: str, name: str, seconds: float) -> None:
        """Look at an object again in *seconds*, or earlier if that was asked for already."""
        key = (kind.kind, namespace, name)
        loop = asyncio.get_running_loop()
        waiting = self._timers.get(key)
        if waiting is not None and loop.time() < waiting.when() <= loop.time() + seconds:
            return
        if waiting is not None:
            waiting.cancel()
        self._timers[key] = loop.call_later(seconds, self._due.put_nowait, key)
