"""Real Ray on LocalKube, with ``--with-ray``: takes some minutes, 2 GB of memory, and as much of the disk once."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from raying import tree, workdir_executor

from nemo_run.core.execution.kuberay import KubeRayWorkerGroup
from nemo_run.run.ray.cluster import RayCluster
from nemo_run.run.ray.job import RayJob
from nemo_run.testing import LocalKube

pytestmark = pytest.mark.timeout(1800)

RAY = "2.60.0"
SMALL = {"object-store-memory": "80000000"}
BEFORE = ["export BEFORE_RAY=yes"]
AWKWARD = "$5 `id` $NOWHERE $(id) it's"
DRIVER = """
import json, os
import model, ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init(log_to_driver=False)

@ray.remote
def look():
    import model
    names = ("RAY_NODE_TYPE_NAME", "IN_CONTAINER", "IN_RUNTIME_ENV", "BEFORE_RAY")
    return ["TASK", *(os.environ.get(name) for name in names), os.getcwd(), model.__file__, model.ANSWER]

for node in ray.nodes():
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    print("SAID", json.dumps(ray.get(look.options(scheduling_strategy=there).remote())))
print("SAID", json.dumps(["DRIVER", os.environ["RAY_NODE_TYPE_NAME"], os.getcwd(), model.__file__]))
"""


@pytest.fixture(scope="module")
def ray_python(request):
    """An environment's Python with Ray: the one that was named, or one of the test's own, kept for the next time."""
    given = request.config.getoption("--with-ray")
    if given is None:
        pytest.skip("needs --with-ray")
    if given:
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "nemo_run" / f"ray-{RAY}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = place / "bin/python"
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run side by side
        if not (place / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
            packages = ["--quiet", "--no-compile", f"ray[default]=={RAY}"]
            subprocess.run([python, "-m", "pip", "install", *packages], check=True)
            (place / "complete").touch()
    return python


@pytest.fixture
def executor(ray_python):
    """An executor whose cluster is a head and one worker, with the version of that environment's Ray."""
    ask = "import ray; print(ray.__version__)"
    version = subprocess.run([ray_python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    return workdir_executor(
        ray_version=version,
        ray_head_start_params=SMALL,
        worker_groups=[KubeRayWorkerGroup("w", cpu_limits="1", memory_limits="1Gi", ray_start_params=SMALL)],
        env_vars={"IN_CONTAINER": AWKWARD},
    )


@pytest.fixture
def kube(ray_python):
    with LocalKube(
        kuberay="1.7", claims=["shared"], images={"alpine*": "busybox", "rayproject/*": str(ray_python)}
    ) as kube:
        yield kube


def test_a_job_finds_the_copied_code_on_head_and_worker(kube, executor, tmp_path, capfd):
    job = RayJob(name="real", executor=executor, pre_ray_start_commands=BEFORE)
    place = ran(job, tmp_path)
    assert said(capfd.readouterr().out) == [
        ["DRIVER", "headgroup", place, f"{place}/model.py"],
        ["TASK", "headgroup", AWKWARD, AWKWARD, "yes", place, f"{place}/model.py", 42],
        ["TASK", "w", AWKWARD, AWKWARD, "yes", place, f"{place}/model.py", 42],
    ]


def test_a_job_on_a_cluster_that_is_there_finds_it_too(kube, executor, tmp_path, capfd):
    """Its tasks start where the cluster was started; Ray lets them import what lies beside the driver."""
    cluster = RayCluster(name="real", executor=executor)
    cluster.start(timeout=300, pre_ray_start_commands=BEFORE)
    forward = cluster.port_forward(port=0)
    with urlopen(f"http://127.0.0.1:{forward.port}/api/version", timeout=60) as answer:
        assert json.load(answer)["ray_version"] == executor.ray_version
    place = ran(RayJob(name="real", executor=executor, cluster_name=cluster.backend.cluster_name), tmp_path)
    cluster.stop()
    start = executor.code_dir
    assert said(capfd.readouterr().out) == [
        ["DRIVER", "headgroup", place, f"{place}/model.py"],
        ["TASK", "headgroup", AWKWARD, AWKWARD, "yes", start, f"{place}/model.py", 42],
        ["TASK", "w", AWKWARD, AWKWARD, "yes", start, f"{place}/model.py", 42],
    ]


def ran(job, tmp_path):
    """Run the driver to its end, and give where its code was."""
    code = tree(tmp_path / "src", {"driver.py": DRIVER, "model.py": "ANSWER = 42\n"})
    job.start(command="python driver.py", workdir=str(code), runtime_env_yaml={"env_vars": {"IN_RUNTIME_ENV": AWKWARD}})
    job.logs(follow=True, timeout=300)
    status = job.status(display=False)
    job.stop(wait=True)
    assert (status["jobDeploymentStatus"], status["jobStatus"]) == ("Complete", "SUCCEEDED"), status
    return str(job.executor.workdir(str(code)).code_dir)


def said(printed):
    lines = (line.removeprefix("SAID ") for line in printed.splitlines() if line.startswith("SAID "))
    return sorted(json.loads(line) for line in lines)
