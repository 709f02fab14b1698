"""Register an executor of one's own, and run a job with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import fiddle as fdl
from diagnostic_executor import FOUND, DiagnosticExecutor

import nemo_run as run
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.run.torchx_backend.schedulers import api

api.EXECUTOR_MAPPING[DiagnosticExecutor] = "kubeflow"
run.Experiment._PARALLEL_SUPPORTED_EXECUTORS = (*run.Experiment._PARALLEL_SUPPORTED_EXECUTORS, DiagnosticExecutor)


def main() -> None:
    executor = DiagnosticExecutor(
        image="python:3.12",
        workdir_pvc="shared",
        workdir_local_path=sys.argv[1],
        env_vars={"PATH": "/opt/bench/bin:$PATH"},
        volumes=[{"name": "image", "persistentVolumeClaim": {"claimName": "image"}}],
        volume_mounts=[{"name": "image", "mountPath": "/opt/bench"}],
        launcher=run.Torchrun(nsys_profile=True),
        nprocs_per_node=1,
        interval=7,
    )
    serializer = ZlibJSONSerializer()
    again = fdl.build(serializer.deserialize(serializer.serialize(executor.to_config())))

    script = run.Script(path=f"{sys.argv[1]}/train.py", entrypoint="python", env={"PYTHONPATH": "/secret/place"})
    run.run(script, executor=executor, name="diagnosed")

    exp = run.Experiment.from_title("diagnosed")
    (job,) = exp.jobs
    (record,) = exp.status(return_dict=True).values()
    script_text = Path(record["local_dir"], "launch.sh").read_text()
    report = {
        "round trip": again == executor and type(again) is DiagnosticExecutor and again.interval == 7,
        "scheme": [api.get_executor_str(executor), api.REVERSE_EXECUTOR_MAPPING["kubeflow"].__name__],
        "executor": type(job.executor).__name__,
        "status": str(record["status"]),
        "handle": record["handle"].startswith("kubeflow://"),
        "found": json.loads(Path(record["local_dir"], FOUND, "settings.json").read_text()),
        "experiment": exp._id,
        "env in script": "/secret/place" in script_text,
    }
    print("REPORT", json.dumps(report))


if __name__ == "__main__":
    main()
