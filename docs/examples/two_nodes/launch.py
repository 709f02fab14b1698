"""Run train.py on two nodes, follow its logs and fetch what it wrote."""

import sys
from pathlib import Path

import nemo_run as run


def main() -> int:
    """Return 0 if the job succeeded and its results came back."""
    here = Path(__file__).parent
    executor = run.KubeflowExecutor(
        namespace="research",
        image="pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime",
        num_nodes=2,
        nprocs_per_node=1,
        launcher="torchrun",
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
        packager=run.PatternPackager(include_pattern=str(here / "train.py"), relative_path=str(here)),
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
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
