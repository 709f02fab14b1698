"""One pod on the node: from being scheduled to having ended."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from nemo_run._kube.resources import POD
from nemo_run.testing import _podstatus as statuses
from nemo_run.testing._container import CannotStart, Command, Container, Network, Rootfs, Runtime
from nemo_run.testing._environment import BadConfig, environment, expand
from nemo_run.testing._errors import ApiError
from nemo_run.testing._faults import Faults
from nemo_run.testing._faults import Pod as PodFault
from nemo_run.testing._identity import home_of, identity
from nemo_run.testing._logfile import LogFile
from nemo_run.testing._podstatus import ContainerState
from nemo_run.testing._store import Store
from nemo_run.testing._volumes import CannotMount, Claims, Volumes

Json = dict[str, Any]

RETRY = 0.25
"""Seconds until what stops a pod is looked at again."""
FIRST_BACK_OFF, LONGEST_BACK_OFF = 0.1, 2.0
"""Seconds between restarts: a real kubelet's 10 s and 300 s would try a user's patience."""


POD_FAULTS = ("Unschedulable", "FailedMount", "ImagePullBackOff", "OOMKilled", "never-ready")
"""In the order in which a pod meets them."""


class NetworkPool(Protocol):
    """Gives each pod the network of its workload."""

    async def join(self, pod: Json) -> Network:
        """Give the pod its network; the first of a workload makes it."""

    async def leave(self, pod: Json) -> None:
        """Take the pod out; the last one closes the network."""


@dataclass(frozen=True)
class Node:
    """What all pods of a kubelet share."""

    store: Store
    runtime: Runtime
    networks: NetworkPool
    claims: Claims
    faults: Faults
    home: Path


@dataclass
class Run:
    """The starts of one container: the log of each, and the one that runs now."""

    spec: Json
    state: ContainerState
    logs: list[LogFile] = field(default_factory=list)
    container: Container | None = None
    oom_killed: bool = False


class Stopped(Exception):
    """The pod is to end: nothing more is started."""


class PodRun:
    """Brings one pod to its end and keeps its status up to date."""

    def __init__(self, node: Node, pod: Json) -> None:
        self.node = node
        self.pod = pod
        self.runs = {name: Run(_container(pod, name), state) for name, state in statuses.initial(pod).items()}
        self._directory = node.home / "pods" / pod["metadata"]["uid"]
        self._volumes = Volumes(pod, self._directory / "volumes", node.claims, node.store.get)
        self._scheduled: Json = {"status": "False", "reason": "Unschedulable"}
        self._status: Json = {}
        self._initialized = not pod["spec"].get("initContainers")
        self._init_failed = False
        self._verdict: Json = {}
        self._stop = asyncio.Event()
        self._kill_at: float | None = None
        self._alarm = asyncio.Event()
        self._asked = asyncio.Event()
        self._network: Network | None = None
        self._drawn: PodFault | None = None

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
        """Run the pod to its end; :meth:`stop` ends it early."""
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        deadline = asyncio.create_task(self._expire(limit)) if limit else None
        try:
            await self._schedule()
            await self._mount()
            self._network = await self.node.networks.join(self.pod)
            await self._run_all()
        except Stopped:
            self._end_waiting()
        finally:
            if deadline:
                deadline.cancel()
            if self._network is not None:
                await self.node.networks.leave(self.pod)
        self._publish()

    def delete(self, grace: float) -> None:
        """End the pod and let :meth:`deleted` return."""
        self._asked.set()
        self.stop(grace)

    def stop(self, grace: float) -> None:
        """End the pod: TERM now, KILL after *grace* seconds; a second call may only shorten that."""
        at = asyncio.get_running_loop().time() + grace
        if self._kill_at is None or at < self._kill_at:
            self._kill_at = at
        self._stop.set()
        self._alarm.set()

    async def deleted(self) -> None:
        """Wait until somebody has asked for the pod's deletion."""
        await self._asked.wait()

    def discard(self) -> None:
        """Delete the pod's logs and what else it leaves on the node."""
        for run in self.runs.values():
            for log in run.logs:
                log.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _schedule(self) -> None:
        while (problem := self._unschedulable()) is not None:
            self._scheduled = {"status": "False", "reason": "Unschedulable", "message": problem}
            self._publish()
            self._event("FailedScheduling", problem, component="default-scheduler")
            await self._pause(RETRY)
        try:
            current = self.node.store.get(POD, self.namespace, self.name)
            current["spec"]["nodeName"] = statuses.NODE
            self.pod = self.node.store.update(POD, current)
        except ApiError as gone:
            raise Stopped from gone
        self._scheduled = {"status": "True"}
        self._publish()
        text = f"Successfully assigned {self.namespace}/{self.name} to {statuses.NODE}"
        self._event("Scheduled", text, "Normal", component="default-scheduler")

    def _unschedulable(self) -> str | None:
        none = "0/1 nodes are available: "
        fault = self._fault("Unschedulable")
        if fault is not None:
            return f"{none}1 Insufficient nvidia.com/gpu. preemption: No preemption victims found for incoming pod."
        if (claim := self._volumes.missing_claim()) is not None:
            return f'{none}persistentvolumeclaim "{claim}" not found. preemption: not eligible.'
        return None

    async def _mount(self) -> None:
        while True:
            try:
                if self._fault("FailedMount"):
                    raise CannotMount('MountVolume.SetUp failed for volume "work" : mount failed: exit status 32')
                self._volumes.set_up()
                return
            except CannotMount as problem:
                self._event("FailedMount", str(problem))
            await self._pause(RETRY)

    async def _run_all(self) -> None:
        early = [spec["name"] for spec in self.pod["spec"].get("initContainers", [])]
        beside: list[asyncio.Task[None]] = []
        try:
            for name in early:
                run = self.runs[name]
                if run.spec.get("restartPolicy") == "Always":
                    beside.append(asyncio.create_task(self._supervise(run, "Always")))
                    continue
                policy = self.pod["spec"].get("restartPolicy", "Always")
                await self._supervise(run, "OnFailure" if policy == "Always" else policy)
                if run.state.exit_code:
                    self._init_failed = True
                    return
            self._initialized = True
            policy = self.pod["spec"].get("restartPolicy", "Always")
            main = [run for name, run in self.runs.items() if name not in early]
            await asyncio.gather(*(self._supervise(run, policy) for run in main))
        finally:
            for task in beside:
                task.cancel()
            for run in self.runs.values():
                if run.container is not None:
                    run.container.kill()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _supervise(self, run: Run, policy: str) -> None:
        """Start a container, again and again where *policy* says so."""
        back_off = 0.0
        while True:
            with contextlib.suppress(Stopped):
                await self._attempt(run)
            code = run.state.exit_code
            if self._stop.is_set() or policy == "Never" or (policy == "OnFailure" and code == 0):
                return
            self._publish()
            if back_off:
                run.state.backs_off(f"back-off {back_off:g}s restarting failed container={run.spec['name']}")
                self._publish()
                about = f"container {run.spec['name']} in pod {self.name}_{self.namespace}"
                self._event("BackOff", f"Back-off restarting failed {about}")
            try:
                await self._pause(back_off)
            except Stopped:
                return
            back_off = min(back_off * 2 or FIRST_BACK_OFF, LONGEST_BACK_OFF)
            run.state.restarts += 1

    async def _attempt(self, run: Run) -> None:
        """Start the container once and wait for its end."""
        command, rootfs = await self._prepared(run)
        if self._network is None:
            raise Stopped
        log = LogFile(self._directory / f"{run.spec['name']}-{run.state.restarts}.log")
        run.logs.append(log)
        oom = self._fault("OOMKilled")
        try:
            hostname = self.pod["spec"].get("hostname") or self.name
            container = await self.node.runtime.start(self._network, hostname[:63], rootfs, command)
        except CannotStart as error:
            log.finish()
            message = f"failed to create containerd task: unable to start container process: {error}"
            run.state.ended(128, "StartError", message)
            self._event("Failed", f"Error: {message}")
            self._publish()
            return
        run.container = container
        ready = self._fault("never-ready") is None
        run.state.started(f"{self.pod['metadata']['uid']}-{run.spec['name']}-{run.state.restarts}", ready=ready)
        self._event("Started", f"Started container {run.spec['name']}", "Normal")
        self._publish()
        guard = asyncio.create_task(self._guard(run, container))
        killer = asyncio.create_task(self._kill_later(run, container, oom.after)) if oom else None
        try:
            while data := await container.stdout.read(1 << 18):
                log.feed(data)
            code = await container.wait()
        finally:
            guard.cancel()
            if killer:
                killer.cancel()
            container.kill()
            run.container = None
            log.finish()
        reason = "OOMKilled" if run.oom_killed else "Completed" if code == 0 else "Error"
        run.oom_killed = False
        run.state.ended(code, reason)

    async def _prepared(self, run: Run) -> tuple[Command, Rootfs]:
        """Wait until the image and all that the container refers to are there."""
        image, name = run.spec.get("image", ""), run.spec["name"]
        tries = 0
        while True:
            if self._fault("ImagePullBackOff"):
                problem = f'failed to pull and unpack image "{image}": not found'
                if not tries:
                    self._event("Pulling", f'Pulling image "{image}"', "Normal")
                    self._event("Failed", f'Failed to pull image "{image}": {problem}')
                    run.state.state = statuses.waiting("ErrImagePull", problem)
                else:
                    run.state.state = statuses.waiting("ImagePullBackOff", f'Back-off pulling image "{image}"')
                    self._event("BackOff", f'Back-off pulling image "{image}"', "Normal")
            else:
                try:
                    prepared = self._configured(run)
                except BadConfig as problem:
                    run.state.state = statuses.waiting("CreateContainerConfigError", str(problem))
                    self._event("Failed", f"Error: {problem}")
                else:
                    self._event("Pulled", f'Container image "{image}" already present on machine', "Normal")
                    self._event("Created", f"Created container: {name}", "Normal")
                    return prepared
            self._publish()
            tries += 1
            await self._pause(RETRY)

    def _configured(self, run: Run) -> tuple[Command, Rootfs]:
        spec, runtime = run.spec, self.node.runtime
        image = runtime.images.find(spec.get("image", ""))
        user = identity(self.pod, spec, one_uid=runtime.user_namespace)
        hostname = self.pod["spec"].get("hostname") or self.name
        env = environment(self.pod, spec, self.node.store.get)
        whole = {"PATH": image.path, "HOSTNAME": hostname, "HOME": home_of(user.uid), **env}
        argv = [expand(word, env) for word in (*spec.get("command", []), *spec.get("args", []))]
        if not argv:
            argv = ["sh", "-c", "exit 0"]
        elif not spec.get("command"):
            argv = ["sh", *argv] if argv[0].startswith("-") else argv
        cwd = posixpath.normpath(spec.get("workingDir") or "/")
        read_only = bool(spec.get("securityContext", {}).get("readOnlyRootFilesystem"))
        rootfs = Rootfs(image, self._volumes.mounts(spec), read_only)
        return Command(tuple(argv), whole, cwd, user), rootfs

    async def _guard(self, run: Run, container: Container) -> None:
        """End the container once the pod is to end."""
        await self._stop.wait()
        container.signal(signal.SIGTERM)
        loop = asyncio.get_running_loop()
        while (left := (self._kill_at or 0) - loop.time()) > 0:
            self._alarm.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._alarm.wait(), left)
        container.kill()

    async def _kill_later(self, run: Run, container: Container, after: float) -> None:
        await asyncio.sleep(after)
        run.oom_killed = True
        container.kill()

    async def _expire(self, limit: int) -> None:
        await asyncio.sleep(limit)
        message = "Pod was active on the node longer than the specified deadline"
        self._verdict = {"phase": "Failed", "reason": "DeadlineExceeded", "message": message}
        self._event("DeadlineExceeded", message, "Normal")
        self.stop(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def _pause(self, seconds: float) -> None:
        """Wait, unless the pod is to end."""
        if not self._stop.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), seconds)
        if self._stop.is_set():
            raise Stopped

    def _fault(self, kind: str) -> PodFault | None:
        """Give the fault of this kind that the pod meets now; one that comes later in a pod's life is kept for then."""
        if self._drawn is None:
            self._drawn = self.node.faults.for_pod(self.pod)
        drawn = self._drawn
        if drawn is None or POD_FAULTS.index(drawn.kind) > POD_FAULTS.index(kind):
            return None
        self._drawn = None
        return drawn if drawn.kind == kind else None

    def _end_waiting(self) -> None:
        for run in self.runs.values():
            run.state.ready = False

    def _event(self, reason: str, message: str, type: str = "Warning", *, component: str = "kubelet") -> None:
        with contextlib.suppress(ApiError):
            self.node.store.event(self.pod, reason, message, type, component=component)

    def _publish(self) -> None:
        """Write the pod's status, if the pod is still there."""
        early = [spec["name"] for spec in self.pod["spec"].get("initContainers", [])]
        states = [run.state for name, run in self.runs.items() if name not in early]
        restarts = self.pod["spec"].get("restartPolicy", "Always")
        stage = statuses.phase(states, init_failed=self._init_failed, restarts=restarts)
        before = self._status.get("conditions", [])
        ended = stage in ("Succeeded", "Failed") or bool(self._verdict)
        status: Json = {
            "phase": stage,
            "conditions": statuses.conditions(
                before, self._scheduled, states, initialized=self._initialized, ended=ended
            ),
            "qosClass": "Burstable",
        }
        if self._scheduled["status"] == "True":
            address = statuses.ADDRESS
            status |= {
                "hostIP": address,
                "podIP": address,
                "podIPs": [{"ip": address}],
                "startTime": self._status.get("startTime") or statuses.now(),
                "containerStatuses": [state.status() for state in states],
            }
            if early:
                status["initContainerStatuses"] = [self.runs[name].state.status() for name in early]
        self._status = status | self._verdict
        with contextlib.suppress(ApiError):
            if self.node.store.get(POD, self.namespace, self.name)["metadata"]["uid"] == self.pod["metadata"]["uid"]:
                self.node.store.patch_status(POD, self.namespace, self.name, self._status, merge=False)


def _container(pod: Json, name: str) -> Json:
    spec = pod["spec"]
    found: Json = next(each for each in (*spec.get("initContainers", []), *spec["containers"]) if each["name"] == name)
    return found
