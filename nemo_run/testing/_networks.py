"""The networks of the workloads: which pods share one, and by which names they find each other."""

from __future__ import annotations

import asyncio
from typing import Any

from nemo_run.testing._container import Network, Runtime

Json = dict[str, Any]

_WORKLOADS = ("jobset.sigs.k8s.io/jobset-name", "ray.io/cluster")
"""Labels whose value names the workload that a pod belongs to."""
NETWORK = "local-kube/network"
"""An annotation that puts a pod into the network of that name, whatever its labels say."""
NAMES = "local-kube/names"
"""An annotation with more names for the pod (of Services), separated by commas."""


def network_of(pod: Json) -> str:
    """Give what is the same for all pods that share a network."""
    meta = pod["metadata"]
    if named := meta.get("annotations", {}).get(NETWORK):
        return f"{meta['namespace']}/{named}"
    for label in _WORKLOADS:
        if value := meta.get("labels", {}).get(label):
            return f"{meta['namespace']}/{label}={value}"
    return str(meta["uid"])


def names_of(pod: Json) -> list[str]:
    """Give the names under which other pods reach this one, as the cluster's DNS would have them."""
    meta, spec = pod["metadata"], pod["spec"]
    host = spec.get("hostname") or meta["name"]
    names = [host, meta["name"]]
    if subdomain := spec.get("subdomain"):
        names += _service(f"{host}.{subdomain}", meta["namespace"])
    for name in filter(None, meta.get("annotations", {}).get(NAMES, "").split(",")):
        names += _service(name, meta["namespace"])
    return list(dict.fromkeys(names))


def _service(name: str, namespace: str) -> list[str]:
    return [name, f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"]


class Networks:
    """Opens a network for the first pod of a workload and closes it after the last."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: dict[str, Network] = {}
        self._lock = asyncio.Lock()

    async def join(self, pod: Json) -> Network:
        """Give the pod the network of its workload."""
        key = network_of(pod)
        async with self._lock:
            if key not in self._open:
                self._open[key] = await self._runtime.open_network()
            network = self._open[key]
            network.add(pod["metadata"]["uid"], names_of(pod))
            return network

    async def leave(self, pod: Json) -> None:
        """Take the pod out of its network."""
        key = network_of(pod)
        async with self._lock:
            network = self._open.get(key)
            if network is not None and network.remove(pod["metadata"]["uid"]):
                del self._open[key]
                await network.close()

    async def close(self) -> None:
        """Close all that are left."""
        async with self._lock:
            for network in self._open.values():
                await network.close()
            self._open.clear()
