"""The runner, under the name by which programs written for NeMo-Run know it."""

from __future__ import annotations

from nemo_run.run._runner import AppRunner as Runner
from nemo_run.run._runner import get_runner

__all__ = ["Runner", "get_runner"]
