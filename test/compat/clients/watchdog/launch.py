"""End a job from another thread once its log says that it hangs, while this one waits for the job."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import nemo_run as run


def watch(exp: run.Experiment, job_id: str) -> None:
    log = Path(exp.jobs[0].executor.job_dir, "log-allranks_0.out")
    while not (log.exists() and "hanging" in log.read_text()):
        time.sleep(0.1)
    exp.cancel(job_id)


def main() -> None:
    executor = run.KubeflowExecutor(image="python:3.12")
    with run.Experiment("watched", executor=executor) as exp:
        script = run.Script(inline="trap 'exit 0' TERM; echo hanging; sleep 600 & wait")
        job_id = exp.add(script, name="train")
        watchdog = threading.Thread(target=watch, args=(exp, job_id), daemon=True)
        watchdog.start()
        exp.run()
    watchdog.join()
    print("REPORT", json.dumps(str(exp.status(return_dict=True)[job_id]["status"])))


if __name__ == "__main__":
    main()
