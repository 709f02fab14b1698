"""RayClusters and RayJobs for tests, and how to look at them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodes import VOLUME, Working, working

from nemo_run._kube.resources import EVENT, POD, RAYCLUSTER, RAYJOB
from nemo_run.testing._kinds import JOB

Json = dict[str, Any]

PREFACE = r"[^\n]* -- Runtime env is setting up\.\n(?:Running entrypoint for job [^\n]*\n)?"
"""What is in each job's log before the job's own output."""
MOUNT = {"name": "work", "mountPath": "/work"}


def template(name: str, **container: Any) -> Json:
    """Give a pod template whose Ray container has the claim ``shared`` at /work and works there."""
    own = {"name": name, "image": "any", "volumeMounts": [MOUNT], "workingDir": "/work", **container}
    return {"spec": {"volumes": [VOLUME], "containers": [own]}}


def spec(*, workers: int = 0, version: str = "2.43.0", group: Json | None = None, **head: Any) -> Json:
    """Give a RayCluster's spec; *head* are fields of its Ray container."""
    result: Json = {
        "rayVersion": version,
        "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head", **head)},
    }
    if workers or group:
        own = {"groupName": "w", "replicas": workers, "minReplicas": 0, "maxReplicas": 9, "rayStartParams": {}}
        result["workerGroupSpecs"] = [{**own, "template": template("ray-worker"), **(group or {})}]
    return result


def raycluster(name: str, body: Json | None = None, **meta: Any) -> Json:
    head = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name, **meta}}
    return {**head, "spec": spec() if body is None else body}


def rayjob(name: str, entrypoint: str, *, cluster: Json | None = None, **fields: Any) -> Json:
    head = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name, "labels": {"team": "a"}}}
    if "clusterSelector" not in fields:
        fields["rayClusterSpec"] = spec() if cluster is None else cluster
    return {**head, "spec": {"entrypoint": entrypoint, **fields}}


class Rays:
    """A working cluster with KubeRay."""

    def __init__(self, node: Working) -> None:
        self.node = node

    def up(self, name: str, body: Json | None = None, **meta: Any) -> Json:
        """Create a RayCluster and wait until it is ready."""
        self.node.create(RAYCLUSTER, raycluster(name, body, **meta))
        return self.cluster(name, "ready")

    def cluster(self, name: str, *states: str) -> Json:
        """Wait for a RayCluster's state and give it."""
        return self.node.until(
            lambda: self.node.get(name, RAYCLUSTER), lambda found: found.get("status", {}).get("state") in states
        )

    def run(self, name: str, entrypoint: str, **fields: Any) -> Json:
        """Create a RayJob and wait for its end."""
        self.node.create(RAYJOB, rayjob(name, entrypoint, **fields))
        return self.job(name, "Complete", "Failed")

    def job(self, name: str, *stages: str) -> Json:
        """Wait for a RayJob's deployment status and give its status."""

        def status() -> Json:
            found: Json = self.node.get(name, RAYJOB).get("status", {})
            return found

        return self.node.until(status, lambda found: found.get("jobDeploymentStatus", "") in stages)

    def change(self, kind: Any, name: str, change: Mapping[str, Any]) -> None:
        """Patch an object's spec."""
        self.node.do(lambda store: store.patch(kind, "default", name, {"spec": dict(change)}))

    def pods(self, cluster: str, kind: str = "head") -> list[Json]:
        return self.node.list(POD, labels=f"ray.io/cluster={cluster},ray.io/node-type={kind}")

    def submitters(self, job: str) -> list[Json]:
        return self.node.list(POD, labels=f"job-name={job}")

    def output(self, job: str) -> str:
        """Give what the job wrote by the log of its (only) submitter, without Ray's own frame."""
        (pod,) = self.submitters(job)
        frame = r"\n-+\nJob '\S+' %s\n-+\n\n"
        text = self.node.log(pod["metadata"]["name"]).decode()
        pattern = frame % "submitted successfully" + PREFACE + "(.*)" + frame % "succeeded"
        match = re.fullmatch(pattern, text, re.DOTALL)
        assert match is not None, text
        return match[1]

    def conditions(self, cluster: str) -> dict[str, tuple[str, str]]:
        found = self.node.get(cluster, RAYCLUSTER).get("status", {}).get("conditions", [])
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def clean(self) -> None:
        """Delete all, and wait until nothing runs."""
        for kind in (RAYJOB, RAYCLUSTER, JOB, POD):
            for obj in self.node.list(kind):
                self.node.do(lambda store, kind=kind, obj=obj: _delete(store, kind, obj["metadata"]["name"]))
        self.node.until(self.node.list, lambda pods: not pods)
        for event in self.node.list(EVENT):
            self.node.delete(event["metadata"]["name"], EVENT)


def _delete(store: Any, kind: Any, name: str) -> None:
    if any(each["metadata"]["name"] == name for each in store.list(kind, "default")):
        store.delete(kind, "default", name, **({"grace": 0} if kind == POD else {}))


@contextmanager
def ray_node(home: Path, version: str = "1.7") -> Iterator[Rays]:
    """Have a cluster on which KubeRay of this version works."""
    with working(home, kuberay=version) as node:
        yield Rays(node)
