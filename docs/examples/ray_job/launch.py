"""Run code/driver.py as a Ray job, follow its logs and remove it."""

import sys
from pathlib import Path

from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.run.ray.job import RayJob


def main() -> int:
    """Return 0 if the job succeeded."""
    executor = KubeRayExecutor(
        namespace="research",
        ray_version="2.46.0",
        image="rayproject/ray:2.46.0-py312",
        worker_groups=[KubeRayWorkerGroup(group_name="workers", replicas=1)],
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
    )
    job = RayJob(name="demo", executor=executor)
    job.start(command="python driver.py", workdir=str(Path(__file__).parent / "code"))
    try:
        job.logs(follow=True)
        status = job.status(display=False)
    finally:
        job.stop(wait=True)
    succeeded = status["jobDeploymentStatus"] == "Complete" and status["jobStatus"] == "SUCCEEDED"
    print(f"\ndemo: {status['jobDeploymentStatus']} {status['jobStatus']}")
    print("demo: success" if succeeded else "demo: FAILED")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
