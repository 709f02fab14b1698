"""One pod on the node: from being scheduled to having ended."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
from typing import Any

from nemo_run._kube.resources import POD
from nemo_run.testing import _podstatus as statuses
from nemo_run.testing._containerrun import RETRY, ContainerRun
from nemo_run.testing._errors import ApiError
from nemo_run.testing._faults import Pod as PodFault
from nemo_run.testing._podcontext import Ending, Node, PodContext, Stopped
from nemo_run.testing._process import CannotStart
from nemo_run.testing._volumes import CannotMount, Volumes

Json = dict[str, Any]


class PodRun:
    """Brings one pod to its end and keeps its status up to date."""

    def __init__(self, node: Node, pod: Json) -> None:
        self._node = node
        directory = node.home / "pods" / pod["metadata"]["uid"]
        self._context = PodContext(
            node=node,
            pod=pod,
            directory=directory,
            volumes=Volumes(pod, directory / "volumes", node.claims, node.store.get),
            ending=Ending(),
            tell=self._tell,
            publish=self._publish,
            fault=self._fault,
        )
        self._early = [spec["name"] for spec in pod["spec"].get("initContainers") or []]
        self.runs = {
            spec["name"]: ContainerRun(self._context, spec, statuses.initial(spec, waits=bool(self._early)))
            for spec in (*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"])
        }
        self._policy = str(pod["spec"].get("restartPolicy", "Always"))
        self._scheduled: Json = {"status": "False", "reason": "Unschedulable"}
        self._status: Json = {}
        self._initialized = not self._early
        self._init_failed = False
        self._verdict: Json = {}
        self._asked = asyncio.Event()

    @property
    def pod(self) -> Json:
        """Give the pod as it was scheduled."""
        return self._context.pod

    @property
    def name(self) -> str:
        """Give the pod's name."""
        return str(self.pod["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Give the pod's namespace."""
        return str(self.pod["metadata"]["namespace"])

    @property
    def ended(self) -> bool:
        """Tell if the pod has come to its end."""
        return self._status.get("phase") in ("Succeeded", "Failed")

    async def live(self) -> None:
        """Run the pod to its end; :meth:`delete` ends it early."""
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        timers = [asyncio.create_task(self._expire(limit))] if limit else []
        try:
            await self._schedule()
            await self._mount()
            await self._join()
            if fault := self._fault("Evicted"):
                timers.append(asyncio.create_task(self._evict(fault.after)))
            await self._run_all()
        except Stopped:
            pass
        finally:
            for timer in timers:
                timer.cancel()
            self._publish()
            await self._node.networks.leave(self.pod)

    def delete(self, grace: float) -> None:
        """End the pod within *grace* seconds and let :meth:`deleted` return."""
        self._asked.set()
        self._context.ending.begin(grace)

    async def deleted(self) -> None:
        """Wait until somebody has asked for the pod's deletion."""
        await self._asked.wait()

    async def noticed(self) -> None:
        """Wait until the kubelet has heard of the end of each container that ended by itself."""
        await asyncio.gather(*(run.noticed() for run in self.runs.values()))

    def discard(self) -> None:
        """Delete the pod's logs and what else it leaves on the node."""
        shutil.rmtree(self._context.directory, ignore_errors=True)

    async def _schedule(self) -> None:
        while (problem := self._unschedulable()) is not None:
            self._scheduled = {"status": "False", "reason": "Unschedulable", "message": problem}
            self._publish()
            self._tell("FailedScheduling", problem, component="default-scheduler")
            await self._context.ending.pause(RETRY)
        try:
            current = self._node.store.get(POD, self.namespace, self.name)
            current["spec"]["nodeName"] = statuses.NODE
            self._context.pod = self._node.store.update(POD, current)
        except ApiError as gone:
            raise Stopped from gone
        self._scheduled = {"status": "True"}
        self._publish()
        text = f"Successfully assigned {self.namespace}/{self.name} to {statuses.NODE}"
        self._tell("Scheduled", text, "Normal", component="default-scheduler")

    def _unschedulable(self) -> str | None:
        none = "0/1 nodes are available: "
        help_none = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        if self._fault("Unschedulable"):
            return f"{none}1 Insufficient nvidia.com/gpu. {help_none}"
        if (claim := self._context.volumes.missing_claim()) is not None:
            return f'{none}persistentvolumeclaim "{claim}" not found. {help_none}'
        return None

    async def _mount(self) -> None:
        while True:
            try:
                if self._fault("FailedMount"):
                    name = next((volume["name"] for volume in self.pod["spec"].get("volumes") or []), "work")
                    raise CannotMount(f'MountVolume.SetUp failed for volume "{name}" : mount failed: exit status 32')
                self._context.volumes.set_up()
                return
            except CannotMount as problem:
                self._tell("FailedMount", str(problem))
            await self._context.ending.pause(RETRY)

    async def _join(self) -> None:
        while self._context.network is None:
            try:
                self._context.network = await self._node.networks.join(self.pod)
            except CannotStart as problem:
                self._tell("FailedCreatePodSandBox", f"Failed to create pod sandbox: {problem}")
                await self._context.ending.pause(RETRY)

    async def _run_all(self) -> None:
        """Run the init containers one after another, then the others together; sidecars beside them."""
        sidecars: dict[asyncio.Task[None], ContainerRun] = {}
        try:
            for name in self._early:
                run = self.runs[name]
                if run.spec.get("restartPolicy") == "Always":
                    sidecars[asyncio.create_task(run.supervise("Always"))] = run
                    continue
                await run.supervise("OnFailure" if self._policy == "Always" else self._policy)
                if run.state.exit_code:
                    self._init_failed = True
                if run.state.exit_code != 0:
                    return
            self._initialized = True
            main = [run for name, run in self.runs.items() if name not in self._early]
            await asyncio.gather(*(run.supervise(self._policy) for run in main))
        finally:
            await self._retire(sidecars)

    async def _retire(self, sidecars: dict[asyncio.Task[None], ContainerRun]) -> None:
        """End the sidecars as the pod's grace period has it."""
        for run in sidecars.values():
            run.retired = True
        grace = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, None)):
            for run in sidecars.values():
                if run.container is not None:
                    run.container.signal(number)
            if sidecars:
                await asyncio.wait(sidecars, timeout=patience)

    async def _expire(self, limit: int) -> None:
        await asyncio.sleep(limit)
        message = "Pod was active on the node longer than the specified deadline"
        self._verdict = {"phase": "Failed", "reason": "DeadlineExceeded", "message": message}
        self._tell("DeadlineExceeded", message, "Normal")
        self._context.ending.begin(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def _evict(self, after: float) -> None:
        await asyncio.sleep(after)
        message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 92Mi."
        self._verdict = {"phase": "Failed", "reason": "Evicted", "message": message}
        self._tell("Evicted", message)
        self._context.ending.begin(0)

    def _fault(self, kind: str) -> PodFault | None:
        """Give the fault of this kind that the pod meets now."""
        return self._node.faults.for_pod(self.pod, kind)

    def _tell(self, reason: str, message: str, type: str = "Warning", *, component: str = "kubelet") -> None:
        with contextlib.suppress(ApiError):
            self._node.store.event(self.pod, reason, message, type, component=component)

    def _publish(self) -> None:
        """Write the pod's status, if the pod is still there."""
        states = [run.state for name, run in self.runs.items() if name not in self._early]
        over = self._context.ending.begun
        stage = statuses.phase(states, init_failed=self._init_failed, policy="Never" if over else self._policy)
        status: Json = {
            "phase": stage,
            "conditions": statuses.conditions(
                self._status.get("conditions", []),
                self._scheduled,
                states,
                initialized=self._initialized,
                ended=stage in ("Succeeded", "Failed"),
            ),
            "qosClass": "Burstable",
        }
        if self._scheduled["status"] == "True":
            status |= {
                "hostIP": statuses.ADDRESS,
                "podIP": statuses.ADDRESS,
                "podIPs": [{"ip": statuses.ADDRESS}],
                "startTime": self._status.get("startTime") or statuses.now(),
                "containerStatuses": [state.status() for state in states],
            }
            if self._early:
                status["initContainerStatuses"] = [self.runs[name].state.status() for name in self._early]
        self._status = status | self._verdict
        meta = self.pod["metadata"]
        with contextlib.suppress(ApiError):
            if self._node.store.get(POD, self.namespace, self.name)["metadata"]["uid"] == meta["uid"]:
                self._node.store.patch_status(POD, self.namespace, self.name, self._status, merge=False)
