"""Plugins: small pieces of set-up applied to a task and its executor together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nemo_run.config import ConfigurableMixin
from nemo_run.core.execution.base import Executor


@dataclass(kw_only=True)
class ExperimentPlugin(ConfigurableMixin):
    """
    Changes a task and its executor before they are launched.

    Subclasses override :meth:`setup`. It is handed copies that belong to this
    one task, already assigned to their experiment: what it changes on them never
    reaches the caller's own objects.
    """

    experiment_id: str = field(init=False, default="")
    """The experiment the task belongs to; known once :meth:`assign` was called."""

    def assign(self, experiment_id: str) -> None:
        """Take note of the experiment that the plugin works for."""
        self.experiment_id = experiment_id

    def setup(self, task: Any, executor: Executor) -> None:
        """Change *task* and *executor* in place; by default nothing."""
