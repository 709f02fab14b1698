"""One container of a pod through all its starts."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from typing import Any

from nemo_run.testing import _podstatus as statuses
from nemo_run.testing._container import Command, Container, Rootfs
from nemo_run.testing._environment import BadConfig, environment, expand
from nemo_run.testing._faults import Pod as PodFault
from nemo_run.testing._identity import home_of, identity
from nemo_run.testing._logfile import LogFile
from nemo_run.testing._podcontext import PodContext, Stopped
from nemo_run.testing._podstatus import ContainerState
from nemo_run.testing._probe import readiness_command, until_ready
from nemo_run.testing._process import CannotStart

Json = dict[str, Any]

RETRY = 0.25
"""Seconds until what keeps a pod from starting is looked at again."""
FIRST_BACK_OFF, LONGEST_BACK_OFF = 0.1, 2.0
"""Seconds between restarts: a real kubelet's 10 s and 300 s would try a user's patience."""
RELIST = 0.5
"""
Seconds until the kubelet has heard of a container's end: it does not start it again before, nor let its pod go.

It looks once a second (pkg/kubelet/pleg, genericPlegRelistPeriod): for so long at least a log can still be read.
"""
_GPU = "nvidia.com/gpu"


class ContainerRun:
    """Starts a container as often as its pod wants, and keeps the log of each start."""

    def __init__(self, context: PodContext, spec: Json, state: ContainerState) -> None:
        self.spec = spec
        self.state = state
        self.logs: list[LogFile] = []
        self.container: Container | None = None
        self.retired = False
        """The pod's containers proper have ended: a sidecar is not started again."""
        self._context = context
        self._oom_killed = False
        self._started_at = self._ended_at = -RELIST

    @property
    def name(self) -> str:
        """Give the container's name."""
        return str(self.spec["name"])

    async def supervise(self, policy: str) -> None:
        """Start the container, again and again where *policy* says so."""
        back_off = 0.0
        while True:
            with contextlib.suppress(Stopped):
                await self._attempt()
            self._context.publish()
            code = self.state.exit_code
            if self._context.ending.begun or self.retired or policy == "Never" or (policy == "OnFailure" and code == 0):
                return
            if back_off:
                self._back_off(back_off)
            try:
                await self._context.ending.pause(max(back_off, RELIST))
            except Stopped:
                return
            back_off = min(back_off * 2 or FIRST_BACK_OFF, LONGEST_BACK_OFF)
            self.state.restarts += 1

    async def noticed(self) -> None:
        """Wait until the kubelet has heard of the container's end; it knows one that it has brought about."""
        await asyncio.sleep(self._ended_at + RELIST - asyncio.get_running_loop().time())

    def log(self, *, previous: bool) -> LogFile | None:
        """Give the log of the last start or, with *previous*, of the one that the status calls ``lastState``."""
        if previous and ("waiting" not in self.state.state or not self.state.last):
            return self.logs[-2] if len(self.logs) > 1 else None
        return self.logs[-1] if self.logs else None

    def _back_off(self, seconds: float) -> None:
        meta = self._context.pod["metadata"]
        self.state.backs_off(f"back-off {seconds:g}s restarting failed container={self.name} pod={meta['name']}")
        self._context.publish()
        about = f"container {self.name} in pod {meta['name']}_{meta['namespace']}({meta['uid']})"
        self._context.tell("BackOff", f"Back-off restarting failed {about}")

    async def _attempt(self) -> None:
        """Start the container once and wait for its end."""
        context = self._context
        command, rootfs = await self._prepared()
        if context.network is None:
            raise Stopped
        log = LogFile(context.directory / "logs" / self.name / f"{self.state.restarts}.log")
        oom = context.fault("OOMKilled")
        try:
            container = await context.node.runtime.start(context.network, context.hostname, rootfs, command)
        except CannotStart as error:
            log.finish()
            self.logs.append(log)
            message = f"failed to create containerd task: unable to start container process: {error}"
            self.state.ended(128, "StartError", message)
            context.tell("Failed", f"Error: {message}")
            return
        self.container, self._started_at = container, asyncio.get_running_loop().time()
        never = context.fault("never-ready") is not None
        probe = None if never else readiness_command(self.spec)
        ready = not never and probe is None
        # Until the status names the new container, its log is not the one that is asked for.
        self.logs.append(log)
        self.state.started(f"{context.pod['metadata']['uid']}-{self.name}-{self.state.restarts}", ready=ready)
        context.tell("Started", f"Started container {self.name}", "Normal")
        context.publish()
        self._ended(await self._follow(container, log, oom, probe))

    async def _follow(self, container: Container, log: LogFile, oom: PodFault | None, probe: list[str] | None) -> int:
        """Store the container's output until it ends, by itself or because the pod is to end."""

        def told() -> None:
            self._context.tell("Killing", f"Stopping container {self.name}", "Normal")

        watchers = [asyncio.create_task(self._context.ending.enforce(container, told))]
        if oom is not None:
            watchers.append(asyncio.create_task(self._kill_later(container, oom.after)))
        if probe is not None:
            watchers.append(asyncio.create_task(self._await_ready(container, probe)))
        try:
            while data := await container.stdout.read(1 << 18):
                log.feed(data)
            return await container.wait()
        finally:
            for watcher in watchers:
                watcher.cancel()
            container.kill()
            self.container = None
            log.finish()

    async def _kill_later(self, container: Container, after: float) -> None:
        await asyncio.sleep(after)
        self._oom_killed = True
        container.kill()

    async def _await_ready(self, container: Container, probe: list[str]) -> None:
        await until_ready(self._context.node.runtime, container, probe)
        self.state.ready = True
        self._context.publish()

    def _ended(self, code: int) -> None:
        now = asyncio.get_running_loop().time()
        if not self._context.ending.begun or now < self._started_at + RELIST:
            self._ended_at = now
        reason = "OOMKilled" if self._oom_killed else "Completed" if code == 0 else "Error"
        self._oom_killed = False
        self.state.ended(code, reason)

    async def _prepared(self) -> tuple[Command, Rootfs]:
        """Wait until the image and all that the container refers to are there."""
        context, image = self._context, self.spec.get("image", "")
        tries = 0
        while True:
            if context.fault("ImagePullBackOff"):
                self._pull_failed(image, again=tries > 0)
            else:
                try:
                    prepared = self._configured(image)
                except BadConfig as problem:
                    self.state.waits("CreateContainerConfigError", str(problem))
                    context.tell("Failed", f"Error: {problem}")
                else:
                    context.tell("Pulled", f'Container image "{image}" already present on machine', "Normal")
                    context.tell("Created", f"Created container: {self.name}", "Normal")
                    return prepared
            context.publish()
            tries += 1
            await context.ending.pause(RETRY)

    def _pull_failed(self, image: str, *, again: bool) -> None:
        tell = self._context.tell
        if again:
            self.state.waits("ImagePullBackOff", f'Back-off pulling image "{image}"')
            tell("BackOff", f'Back-off pulling image "{image}"', "Normal")
            return
        problem = f'failed to pull and unpack image "{image}": not found'
        tell("Pulling", f'Pulling image "{image}"', "Normal")
        tell("Failed", f'Failed to pull image "{image}": {problem}')
        tell("Failed", "Error: ErrImagePull")
        self.state.waits("ErrImagePull", problem)

    def _configured(self, image_name: str) -> tuple[Command, Rootfs]:
        """Give what to run, as the kubelet works it out of the manifest."""
        context, spec = self._context, self.spec
        runtime = context.node.runtime
        image = runtime.images.find(image_name)
        user = identity(context.pod, spec, one_uid=runtime.user_namespace)
        env = environment(context.pod, spec, context.node.store.get)
        own = {"PATH": image.path, "HOSTNAME": context.hostname, "HOME": home_of(user.uid), **_devices(spec)}
        argv = [expand(word, env) for word in (*(spec.get("command") or []), *(spec.get("args") or []))]
        cwd = posixpath.normpath(spec.get("workingDir") or "/")
        read_only = bool((spec.get("securityContext") or {}).get("readOnlyRootFilesystem"))
        rootfs = Rootfs(image, context.volumes.mounts(spec), read_only)
        return Command(tuple(argv or _NOTHING), {**own, **env}, cwd, user), rootfs


_NOTHING = ("sh", "-c", "exit 0")
"""What runs where neither the manifest nor an image says: a shell without input."""


def _devices(spec: Json) -> dict[str, str]:
    """Say which GPUs the container has, as the device plugin does; there are none behind it."""
    limits = (spec.get("resources") or {}).get("limits") or {}
    count = int(limits.get(_GPU, 0))
    return {"NVIDIA_VISIBLE_DEVICES": ",".join(map(str, range(count)))} if count else {}


def waiting_reason(state: ContainerState) -> str:
    """Give why a container does not run yet."""
    return str(state.state.get("waiting", {}).get("reason", statuses.CREATING))
