"""A SkyPilot cluster, as a value only: a job given to it is refused."""

from __future__ import annotations

from dataclasses import dataclass

from nemo_run.core.execution._skypilot import SkypilotFields


@dataclass(kw_only=True)
class SkypilotExecutor(SkypilotFields):
    """Describes a SkyPilot cluster; a job given to it is refused."""
