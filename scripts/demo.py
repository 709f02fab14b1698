"""Run a two-node training job from code on this machine, follow its logs and fetch what it wrote."""

import sys
import tempfile
import textwrap
from pathlib import Path

import nemo_run as run

TRAIN = """
    import os, socket, sys, time
    from pathlib import Path

    node, nodes = int(os.environ["GROUP_RANK"]), int(os.environ["PET_NNODES"])
    print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} on {socket.gethostname()}, code in {os.getcwd()}", flush=True)
    steps = int(sys.argv[sys.argv.index("--steps") + 1])
    for step in range(1, steps + 1):
        print(f"iteration {step}/{steps} loss {1 / step:.3f}", flush=True)
        time.sleep(0.2)
    results = Path(os.environ["NEMO_RUN_DIR"]) / "results"
    results.mkdir(exist_ok=True)
    (results / f"node-{node}.txt").write_text(f"node {node} of {nodes} finished {steps} steps\\n")
"""


def main() -> int:
    """Return 0 if the job succeeded and its results came back."""
    with tempfile.TemporaryDirectory() as code:
        Path(code, "train.py").write_text(textwrap.dedent(TRAIN))
        executor = run.KubeflowExecutor(
            namespace="research",
            image="pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime",
            num_nodes=2,
            nprocs_per_node=1,
            launcher="torchrun",
            volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
            workdir_volume_mount={"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
            packager=run.PatternPackager(include_pattern="*.py", relative_path=code),
        )
        script = run.Script(path="train.py", entrypoint="python", args=["--steps", "5"])
        run.run(script, executor=executor, name="demo")

    experiment = run.Experiment.from_title("demo")
    ((task, record),) = experiment.status(return_dict=True).items()
    job = experiment.jobs[0]
    job.executor.pull_results(job.handle.rpartition("___")[2])
    results = sorted(Path(record["local_dir"]).glob("results/*.txt"))
    print(f"\n{task}: {record['status']}; results fetched to {record['local_dir']}:")
    for result in results:
        print(f"  {result.name}: {result.read_text().strip()}")
    succeeded = str(record["status"]) == "SUCCEEDED" and len(results) == 2
    print("demo: success" if succeeded else "demo: FAILED")
    return not succeeded


if __name__ == "__main__":
    sys.exit(main())
