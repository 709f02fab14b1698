"""A cluster with a kubelet and Trainer but without a server: for tests of what runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nemo_run._kube.resources import EVENT, POD, TRAINJOB, Resource
from nemo_run.testing._claims import Claims
from nemo_run.testing._cluster import Cluster
from nemo_run.testing._kubelet import Kubelet
from nemo_run.testing._kuberay import KubeRayController
from nemo_run.testing._loop import LoopThread
from nemo_run.testing._store import Store
from nemo_run.testing._trainer import TrainerController

T = TypeVar("T")
Json = dict[str, Any]

DEADLINE = 60.0
VOLUME = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}


@dataclass
class Working:
    """A running cluster with a node."""

    home: Path
    cluster: Cluster
    kubelet: Kubelet
    loop: LoopThread

    @property
    def claim(self) -> Path:
        """Give the directory of the claim ``shared``."""
        return self.cluster.claims("default", "shared")

    def do(self, action: Callable[[Store], T]) -> T:
        async def run() -> T:
            return action(self.cluster.store)

        return self.loop.run(run())

    def create(self, kind: Resource, obj: Json) -> Json:
        return self.do(lambda store: store.create(kind, "default", obj))

    def get(self, name: str, kind: Resource = POD) -> Json:
        return self.do(lambda store: store.get(kind, "default", name))

    def list(self, kind: Resource = POD, **query: str) -> list[Json]:
        return self.do(lambda store: store.list(kind, "default", **query))

    def delete(self, name: str, kind: Resource = POD, *, grace: int | None = None) -> None:
        self.do(lambda store: store.delete(kind, "default", name, grace=grace))

    def run_pod(self, name: str, script: str, *args: str, container: Json | None = None, **spec: Any) -> Json:
        """Create a pod that runs a shell script with the arguments *args*."""
        own = {"name": "main", "image": "any", "command": ["sh", "-c", script, "sh", *args], **(container or {})}
        body = {"restartPolicy": "Never", "volumes": [VOLUME], "containers": [own], **spec}
        return self.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body})

    def until(self, look: Callable[[], T], wanted: Callable[[T], bool] = bool) -> T:
        """Look until what is seen is what is wanted."""
        deadline = time.monotonic() + DEADLINE
        while not wanted(seen := look()):
            assert time.monotonic() < deadline, f"last seen: {seen}"
            time.sleep(0.02)
        return seen

    def phase(self, name: str, *wanted: str) -> Json:
        """Wait for one of these phases and give the pod."""
        return self.until(lambda: self.get(name), lambda pod: pod["status"].get("phase") in wanted)

    def finished(self, name: str) -> Json:
        return self.phase(name, "Succeeded", "Failed")

    def output(self, name: str, script: str, *args: str, **fields: Any) -> str:
        """Run a pod that succeeds and give what it wrote."""
        self.run_pod(name, script, *args, **fields)
        pod = self.finished(name)
        text = self.log(name).decode()
        assert pod["status"]["phase"] == "Succeeded", (pod["status"], text)
        return text

    def log(self, name: str, container: str | None = None, **query: Any) -> bytes:
        async def read() -> bytes:
            return b"".join([part async for part in self.kubelet.log("default", name, container, **query)])

        return self.loop.run(read())

    def exec(self, name: str, *argv: str, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Run a command in a pod; give its exit code, output and errors."""

        async def run() -> tuple[int, bytes, bytes]:
            process = await self.kubelet.exec("default", name, None, argv, stdin=stdin is not None)
            if process.stdin is not None:
                process.stdin.write(stdin or b"")
            output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
            code = await process.wait()
            if process.stdin is not None:
                process.stdin.close()
            return code, output, errors

        return self.loop.run(run())

    def events(self, name: str, *, kind: str = "Pod") -> list[tuple[str, str]]:
        """Give (reason, message) of what was told about an object."""
        fields = f"involvedObject.kind={kind},involvedObject.name={name}"
        return [(event["reason"], event["message"]) for event in self.list(EVENT, fields=fields)]

    def train(self, name: str, script: str, *, nodes: int = 1, processes: int = 1, **spec: Any) -> Json:
        """Create a TrainJob that runs a shell script on each node."""
        command = {"image": "any", "command": ["bash", "-c"], "args": [script.replace("$", "$$")]}
        body = {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": nodes, "numProcPerNode": processes, **command},
            **spec,
        }
        obj = {"apiVersion": TRAINJOB.api_version, "kind": "TrainJob", "metadata": {"name": name}, "spec": body}
        return self.create(TRAINJOB, obj)

    def condition(self, name: str, *wanted: str) -> Json:
        """Wait for a TrainJob's condition of one of these types and give it without its time."""

        def look() -> Json | None:
            for condition in self.get(name, TRAINJOB).get("status", {}).get("conditions", []):
                if condition["type"] in wanted and condition["status"] == "True":
                    return {key: value for key, value in condition.items() if key != "lastTransitionTime"}
            return None

        found = self.until(look)
        assert found is not None
        return found


@contextmanager
def working(
    home: Path,
    *,
    claims: Sequence[str] = ("shared",),
    trainer: str = "2.3",
    kuberay: str | None = None,
    isolation: str = "auto",
) -> Iterator[Working]:
    """Have a cluster whose pods run, ``alpine`` images on busybox."""
    cluster = Cluster(trainer=trainer, kuberay=kuberay, claims=Claims(home, claims))
    loop = LoopThread("test-node")

    kubelet = Kubelet(
        cluster.store,
        home=home,
        claims=cluster.claims,
        images={"alpine*": "busybox"},
        isolation=isolation,
        faults=cluster.faults,
    )

    async def start() -> list[asyncio.Task[None]]:
        workers = [kubelet.run(), TrainerController(cluster.store, version=trainer, faults=cluster.faults).run()]
        if kuberay is not None:
            workers.append(KubeRayController(cluster.store, kubelet, version=kuberay).run())
        return [asyncio.create_task(worker) for worker in workers]

    async def end() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        tasks = loop.run(start())
        try:
            yield Working(home, cluster, kubelet, loop)
        finally:
            loop.run(end())
    finally:
        loop.close()
