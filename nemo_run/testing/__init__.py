"""
A Kubernetes on localhost, to try and to test launches without a cluster.

``with LocalKube(): run.run(..., executor=KubeflowExecutor(...))`` starts an API server, a kubelet that runs pods
as processes of this machine, and controllers that play Kubeflow Trainer and, if asked for, KubeRay. It is for
trying and testing.
"""

from __future__ import annotations

from nemo_run.testing._faults import Cut, Delay, Down, Pod, Respond
from nemo_run.testing._server import Request
from nemo_run.testing.local import LocalKube

__all__ = ["Cut", "Delay", "Down", "LocalKube", "Pod", "Request", "Respond"]
