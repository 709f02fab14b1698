"""Programs with the call shapes of known launchers, run end to end as their users run them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from children import PATIENCE, wait_for

import nemo_run as run
from nemo_run._kube.resources import POD, SECRET, TRAINJOB
from nemo_run.run.job import AppState
from nemo_run.testing import LocalKube

CLIENTS = Path(__file__).parent / "clients"


def command(program: str, *args: str) -> list[str]:
    return [sys.executable, str(CLIENTS / program), *args]


def launch(program: str, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a client program to its end, which must be a good one."""
    done = subprocess.run(command(program, *args), cwd=cwd, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def reported(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Give what the program says of itself in its last line."""
    return json.loads(done.stdout.splitlines()[-1].removeprefix("REPORT "))


def trainjobs(kube: LocalKube) -> list[dict[str, Any]]:
    """Give the TrainJobs that there are, oldest first."""
    jobs = kube.do(lambda store: store.list(TRAINJOB, "default"))
    return sorted(jobs, key=lambda job: int(job["metadata"]["resourceVersion"]))


def pod_template(job: dict[str, Any]) -> dict[str, Any]:
    (patch,) = job["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]["template"]


def variables(job: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in job["spec"]["trainer"]["env"]}


def flags(**values: Any) -> list[str]:
    return [part for name, value in values.items() for part in (f"--{name}", json.dumps(value))]


def repository(path: Path) -> Path:
    """Make a git repository with one commit."""
    path.mkdir()
    (path / "notes.txt").write_text("committed\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", str(path)]
    for args in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *args], check=True)
    return path


VOLUMES = [{"name": "image", "persistentVolumeClaim": {"claimName": "image"}}]
MOUNTS = [{"name": "image", "mountPath": "/opt/bench", "readOnly": True}]
VARIABLES = {"SEED": "7", "PATH": "/opt/bench/bin:$PATH"}
TAINTS = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
TOKEN = {"secretKeyRef": {"name": "hf", "key": "token"}}
RESUMED = {"WANDB_RUN_ID": "run-llama", "WANDB_RESUME": "allow"}
BENCH = [
    *("--recipe", "llama", "--image", "python:3.12", "--num_nodes", "2", "--gpus_per_node", "2"),
    *("--workdir_pvc", "shared", "--entrypoint", "/opt/bench/bootstrap.py", "--settle_seconds", "0.3"),
    *flags(volumes=VOLUMES, volume_mounts=MOUNTS, env_vars=VARIABLES),
]
ODD = ["--overrides", '{"optimizer": {"lr": [1, 2]}}', "a b", "*"]
"""Arguments that a shell would take apart."""
CLOUD_POD = {
    "metadata": {
        "labels": {"team": "research"},
        "annotations": {"note": "perf", "networking/interfaces": '[{"name": "eth1"}]'},
    },
    "spec": {
        "volumes": [
            *VOLUMES,
            {"name": "dshm", "emptyDir": {"medium": "Memory"}},
            {"name": "nemo-run-workdir", "persistentVolumeClaim": {"claimName": "shared"}},
        ],
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": TAINTS,
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": "node",
                "volumeMounts": [
                    *MOUNTS,
                    {"name": "dshm", "mountPath": "/dev/shm"},
                    {"name": "nemo-run-workdir", "mountPath": "/nemo_run"},
                ],
                "securityContext": {"privileged": True},
            }
        ],
    },
}
CARDS = {"nvidia.com/gpu": "2", "rdma/ib": "1", "vpc.amazonaws.com/efa": "4"}


@pytest.fixture
def bench(kube: LocalKube) -> LocalKube:
    """A cluster that has the image's files on a claim, and a token in a Secret."""
    shutil.copytree(CLIENTS / "performance" / "image", kube.claim("image"), dirs_exist_ok=True)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf"}, "stringData": {"token": "hf_abc"}}
    kube.do(lambda store: store.create(SECRET, "default", secret))
    return kube


def test_a_performance_launcher_retries_a_failure_that_comes_and_goes(bench, tmp_path):
    """Plugins on the clone, variables between attempts, status and logs off the disk, the cache on the volume."""
    given = flags(
        env_list=[{"name": "HF_TOKEN", "valueFrom": TOKEN}],
        labels={"team": "research"},
        tolerations=TAINTS,
        pod_annotations={"note": "perf"},
        image_pull_secrets=["registry"],
        resource_requests={"rdma/ib": "1"},
        resource_limits={"rdma/ib": "1"},
        pod_spec={"terminationGracePeriodSeconds": 5, "hostIPC": True},
    )
    checkout = repository(tmp_path / "checkout")
    done = launch("performance/launch.py", *BENCH, *given, "--cloud", "--profile", "--flaky", *ODD, cwd=checkout)

    ranks = {"0.0": 0, "0.1": 1, "1.0": 2, "1.1": 3}
    assert reported(done) == {
        "statuses": ["FAILED", "SUCCEEDED"],
        "caches": [None, {"attempts": 1}],
        "losses": {place: [10.0 + rank, 5.0 + rank, 2.5 + rank] for place, rank in ranks.items()},
        "env_vars": VARIABLES | RESUMED,
        "volumes": VOLUMES,
        "volume_mounts": MOUNTS,
        "container_kwargs": {},
        "pod_annotations": {"note": "perf"},
        "profiled": False,
        "home": os.environ["NEMORUN_HOME"],
    }
    first, second = trainjobs(bench)
    assert pod_template(first) == pod_template(second) == CLOUD_POD
    plain = {"SEED": "7", "FI_PROVIDER": "efa", "NCCL_DEBUG": "INFO", "HF_TOKEN": TOKEN}
    assert variables(first) == plain
    assert variables(second) == plain | RESUMED
    resources = {"requests": {"cpu": "8", "memory": "32Gi", **CARDS}, "limits": CARDS}
    assert second["spec"]["trainer"]["resourcesPerNode"] == resources
    assert second["metadata"]["labels"].items() >= {"team": "research"}.items()

    code_dir = Path(second["spec"]["trainer"]["command"][1]).parent
    seen = re.findall(r"^llama_2x2/0 \[default0\]:SEEN (.*)", done.stdout, re.MULTILINE)
    assert json.loads(seen[-1]) == {
        "arguments": ["--recipe", "llama", "--flaky", *ODD, "--profile_ranks", "0", "--steps", "3"],
        "directory": f"{code_dir}/code",
        "stage": None,
        "token": "hf_abc",
        "run": "run-llama",
    }
    # Of the first attempt, which failed, the last lines of the pod that failed first are shown too.
    last_attempt = done.stdout.rpartition("Entering Experiment")[2]
    shown = re.findall(r"^llama_2x2/(\d) \[default(\d)\]", last_attempt, re.MULTILINE)
    assert set(shown) == {("0", "0"), ("1", "1")}
    assert done.stderr.count("DeprecationWarning: workdir_pvc") == 1
    (ignored,) = set(re.findall(r"WARNING:.*hostIPC.*", done.stderr))
    assert "pod_spec_overrides" in ignored
    sent = bench.claim("shared") / code_dir.relative_to("/nemo_run")
    assert (sent / "code" / "notes.txt").read_text() == "committed\n"
    assert (sent / "nsys_profile" / "profile_%p").read_text().startswith("profile -s none -t nvtx,cuda -o")


def test_a_performance_launcher_wraps_its_script_and_detaches(bench, tmp_path, capsys):
    done = launch("performance/launch.py", *BENCH, "--wrap", "--detach", *ODD, cwd=tmp_path)
    assert reported(done)["statuses"][0] in ("SUBMITTED", "PENDING", "RUNNING")
    exp = run.Experiment.from_title("llama_2x2")
    wait_for(lambda: exp.status(return_dict=True)["llama_2x2"]["status"] == AppState.SUCCEEDED)
    exp.logs("llama_2x2")
    seen = json.loads(re.findall(r"SEEN (.*)", capsys.readouterr().out)[0])
    assert (seen["stage"], seen["arguments"]) == ("set", ["--recipe", "llama", *ODD])


def test_a_performance_launcher_s_dry_run_needs_no_cluster(tmp_path):
    secret = flags(env_list=[{"name": "HF_TOKEN", "valueFrom": TOKEN}])
    done = launch("performance/launch.py", *BENCH, *secret, "--cloud", "--wrap", "--dryrun", cwd=tmp_path)
    assert reported(done)["statuses"] == []
    (manifest,) = re.findall(r"# TrainJob.*?\n(.*?)\n# launch.sh", done.stdout, re.DOTALL)
    assert variables(yaml.safe_load(manifest))["HF_TOKEN"] == TOKEN
    assert list(Path(os.environ["NEMORUN_HOME"]).iterdir()) == []


def test_a_signal_handler_cancels_the_job_by_its_task_s_name(kube, start_child, tmp_path):
    (tmp_path / "hello.py").write_text("import time\nprint('hello', flush=True)\ntime.sleep(600)\n")
    client = command("hello/launch.py", str(tmp_path))
    process = start_child(*client, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in process.stdout:
        if line.rstrip().endswith("hello"):
            break
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, out + err
    assert "gone: True" in out
    assert trainjobs(kube) == []
    assert kube.do(lambda store: store.list(POD, "default")) == []
    (record,) = run.Experiment.from_title("hello_nodes").status(return_dict=True).values()
    assert record["status"] is AppState.CANCELLED


def test_a_watchdog_ends_the_job_that_the_main_thread_waits_for(kube, tmp_path):
    done = launch("watchdog/launch.py", cwd=tmp_path)
    assert reported(done) == "CANCELLED"
    assert "train: CANCELLED (by nemo_run)" in done.stdout
    assert trainjobs(kube) == []


RECIPE = {
    "model": "tiny",
    "nemo_run": {
        "job_name": "finetune",
        "overrides": {
            "num_nodes": 2,
            "env_vars": {"EXTRA": "yes", "SEED": "2"},
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "volume_mounts": [{"name": "scratch", "mountPath": "/scratch"}],
        },
    },
}


@pytest.mark.parametrize("executor", ["cluster", "elsewhere"])
def test_a_recipe_runs_on_an_executor_of_the_user_s_file(kube, tmp_path, executor):
    """Its packed configuration is at /nemo_run/code in the pod, whatever the workdir is mounted at."""
    home = Path(os.environ["NEMORUN_HOME"])
    home.mkdir()
    shutil.copy(CLIENTS / "recipes" / "executors.py", home)
    shutil.copytree(CLIENTS / "recipes" / "image", kube.claim("image"), dirs_exist_ok=True)
    settings = {**RECIPE["nemo_run"], "executor": executor}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**RECIPE, "nemo_run": settings}))

    done = launch("recipes/launch.py", str(tmp_path / "recipe.yaml"), cwd=tmp_path)
    (record,) = run.Experiment.from_title("finetune").status(return_dict=True).values()
    assert str(record["status"]) == "SUCCEEDED", done.stdout
    text = Path(record["local_dir"], "log-allranks_0.out").read_text()
    found = re.findall(r"RECIPE rank (\d) of (\d) -c (\S+): (.*)", text)
    given = "model: tiny processes: 2 ('yes', '2', True)"
    (code_dir,) = {Path(job["spec"]["trainer"]["command"][1]).parent for job in trainjobs(kube)}
    place = "/nemo_run/code/recipe_config.yaml"
    if executor == "cluster":
        place = f"{code_dir}/code/recipe_config.yaml"
    assert sorted(found) == [(str(rank), "4", place, given) for rank in range(4)]


def test_an_executor_of_one_s_own_is_heard_at_each_step(kube, tmp_path):
    """Prefix, launch script, package and cleanup are the subclass's; what it needs of the copy pod is there."""
    shutil.copytree(CLIENTS / "performance" / "image", kube.claim("image"), dirs_exist_ok=True)
    (tmp_path / "train.py").write_text("print('trained')\n")
    done = launch("diagnostics/launch.py", str(tmp_path), cwd=tmp_path)
    report = reported(done)
    experiment = report.pop("experiment")
    assert report == {
        "round trip": True,
        "scheme": ["kubeflow", "KubeflowExecutor"],
        "executor": "DiagnosticExecutor",
        "status": "SUCCEEDED",
        "handle": True,
        "found": {"interval": 7, "job": "diagnosed", "experiment": experiment},
        "env in script": False,
    }
    (profile,) = kube.claim("shared").glob("**/nsys_profile/*")
    assert " --sampling-period=7 torchrun " in profile.read_text()
    assert (
        kube.do(lambda store: [pod for pod in store.list(POD, "default") if "mover" in pod["metadata"]["name"]]) == []
    )


def test_a_pipeline_is_looked_at_by_what_surrounds_it(tmp_path):
    checkout = repository(tmp_path / "checkout")
    (checkout / "notes.txt").write_text("changed\n")
    assert reported(launch("pipeline/launch.py", cwd=checkout)) == {
        "tasks": ["generate", "judge", "summary"],
        "before": ["UNSUBMITTED"] * 3,
        "states": ["SUCCEEDED", "FAILED", "CANCELLED"],
        "same": True,
        "status": {"generate": "SUCCEEDED", "judge": "FAILED", "summary": "CANCELLED"},
        "id": True,
        "waited": [True, True],
        "app": True,
        "by title": True,
        "unfinished": [],
        "nowhere": None,
        "tunnels": {},
        "job dir": True,
        "uncommitted": True,
    }
