"""The first job that one tries: two nodes, cancelled from a signal handler by the job's name."""

from __future__ import annotations

import signal
import sys

import nemo_run as run

JOB_NAME = "hello_nodes"

executor = run.KubeflowExecutor(
    launcher=run.Torchrun(),
    runtime_ref="torch-distributed",
    namespace="default",
    image="python:3.12",
    num_nodes=2,
    nprocs_per_node=1,
    cpu_requests="1",
    memory_requests="1Gi",
    volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
    volume_mounts=[{"name": "work", "mountPath": "/nemo_run"}],
    workdir_pvc="shared",
    workdir_pvc_path="/nemo_run",
    workdir_local_path=sys.argv[1],
    env_vars={"GREETING": "hello"},
    labels={"app": "hello"},
)


def cancel(number, frame):
    print(f"signal {number}: cancelling {JOB_NAME}", flush=True)
    print("gone:", executor.cancel(JOB_NAME, wait=True), flush=True)
    sys.exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, cancel)
    signal.signal(signal.SIGTERM, cancel)
    with run.Experiment(JOB_NAME) as exp:
        exp.add(
            run.Script(path=f"{sys.argv[1]}/hello.py", entrypoint="python"),
            executor=executor,
            name=JOB_NAME,
            tail_logs=True,
        )
        exp.run()
