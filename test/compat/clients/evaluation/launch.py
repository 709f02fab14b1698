"""Deploy a model with Ray and evaluate it; results lie on the shared volume, not in the log."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from types import FrameType

from executors import kuberay_executor

from nemo_run.run.ray.job import RayJob

COMMAND = """
echo "evaluating $TASK for $USER_NAME" && \\
python - <<'EOF'
import os
os.makedirs("/workspace/results", exist_ok=True)
with open("/workspace/results/results.yml", "w") as f:
    f.write(f"task: {os.environ['TASK']}\\nscore: 0.5\\ntoken: {'HF_TOKEN' in os.environ}\\n")
EOF
sleep SECONDS
exit CODE
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--exit-code", default="0")
    parser.add_argument("--seconds", default="1")
    args = parser.parse_args()
    job = RayJob(name="evaluate-llama-3", executor=kuberay_executor(args.nodes, 1, "workspace"))

    def stop(number: int, frame: FrameType | None) -> None:
        job.stop()
        sys.exit(0)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    command = COMMAND.replace("CODE", args.exit_code).replace("SECONDS", args.seconds)
    job.start(
        command=command, workdir=None, runtime_env_yaml=None, pre_ray_start_commands=["export USER_NAME='eval user'"]
    )
    while True:
        status = job.status(display=False)
        if status["jobDeploymentStatus"] == "Failed":
            raise RuntimeError(f"Job failed: {status}")
        if status["jobDeploymentStatus"] == "Running" and status["jobStatus"] == "RUNNING":
            break
        if status["jobDeploymentStatus"] == "Complete":
            break
        time.sleep(1)
    print("RUNNING", flush=True)
    job.logs(follow=True, timeout=36000)
    status = job.status(display=False)
    job.stop()
    print("REPORT", json.dumps({"name": job.backend.job_name, **status}))


if __name__ == "__main__":
    main()
