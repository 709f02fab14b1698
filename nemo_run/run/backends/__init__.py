"""
One module per executor; each calls its executor's public verbs and nothing else of it.

So a subclass of an executor that overrides a verb is heard, and is found by
``isinstance`` like the class it extends.
"""

from __future__ import annotations

from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.core.execution.local import LocalExecutor
from nemo_run.exceptions import ConfigError
from nemo_run.run.backends.base import Backend
from nemo_run.run.backends.kubeflow import KubeflowBackend
from nemo_run.run.backends.local import LocalBackend

_KUBEFLOW = KubeflowBackend()
_LOCAL = LocalBackend()

BACKENDS: dict[type[Executor], Backend] = {KubeflowExecutor: _KUBEFLOW, LocalExecutor: _LOCAL}
"""Looked through in this order."""


def backend_for(executor: Executor) -> Backend:
    """
    Give the backend that launches jobs of *executor*.

    Raises:
        ConfigError: nemo_run has none for it.
    """
    for kind, backend in BACKENDS.items():
        if isinstance(executor, kind):
            return backend
    names = ", ".join(kind.__name__ for kind in BACKENDS)
    raise ConfigError("executor", type(executor).__name__, f"jobs cannot be launched with it here; what can: {names}")


def backend_of(scheme: str) -> Backend | None:
    """Give the backend whose handles begin with *scheme*; None if there is none here."""
    return next((backend for backend in BACKENDS.values() if backend.scheme == scheme), None)
