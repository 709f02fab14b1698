"""What tells an object that we launched from another of its name; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nemo_run.core.execution._ownership import LAUNCH_ANNOTATION


@dataclass(frozen=True)
class Launched:
    """A TrainJob, RayJob or RayCluster as its launch knows it."""

    namespace: str
    name: str
    uid: str = ""
    """Empty while nobody has told."""
    launch_id: str = ""

    def is_it(self, job: Mapping[str, Any]) -> bool:
        """Tell whether *job*, the object that has the name now, is this one as far as can be told."""
        metadata = job["metadata"]
        return self.matches(metadata.get("uid", ""), (metadata.get("annotations") or {}).get(LAUNCH_ANNOTATION, ""))

    def matches(self, uid: str, launch_id: str) -> bool:
        """Tell the same of the job that these are the uid and launch of."""
        return uid == self.uid if self.uid else self.launch_id in ("", launch_id)
