"""An executor of one's own: a KubeflowExecutor that brings a collector along and fetches what it found."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.core.packaging.base import Packager

FOUND = "diagnostics"


@dataclass(kw_only=True)
class DiagnosticExecutor(KubeflowExecutor):
    """Writes to ``<code_dir>/diagnostics`` and has it here once the job has ended."""

    interval: int = 5
    collectors: list[str] | None = None

    def get_launcher_prefix(self) -> list[str] | None:
        prefix = super().get_launcher_prefix()
        return prefix and [*prefix, f"--sampling-period={self.interval}"]

    def materialize_launch_script(self, cmd: list[str], max_retries: int = 0) -> None:
        super().materialize_launch_script(cmd, max_retries=max_retries)
        script = Path(self.job_dir, "launch.sh")
        shebang, _, rest = script.read_text().partition("\n")
        more = f"export DIAGNOSTICS={self.code_dir}/{FOUND}\nmkdir -p $DIAGNOSTICS\n. {self.code_dir}/collect.sh"
        script.write_text(f"{shebang}\n{more}\n{rest}")

    def package(self, packager: Packager, job_name: str) -> None:
        settings = {"interval": self.interval, "job": job_name, "experiment": self.experiment_id}
        Path(self.job_dir, "diagnostics.json").write_text(json.dumps(settings))
        Path(self.job_dir, "collect.sh").write_text('cp "${0%/*}"/diagnostics.json $DIAGNOSTICS/settings.json\n')
        super().package(packager, job_name)

    def cleanup(self, handle: str) -> None:
        super().cleanup(handle)
        if not self.workdir_pvc or not self.workdir_local_path:
            return
        pod = self._data_mover_pod_name(self.job_name)
        try:
            self._start_data_mover_pod(pod)
            self._rsync_from_pod(pod, os.path.join(self.code_dir, FOUND), os.path.join(self.job_dir, FOUND))
        finally:
            self._delete_data_mover_pod(pod)
