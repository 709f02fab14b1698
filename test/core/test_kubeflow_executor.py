"""The Kubeflow executor as a value: no cluster, no surprise, old configurations included."""

from __future__ import annotations

import copy
import getpass
import inspect
import stat
import subprocess
import sys
import warnings
from dataclasses import fields
from typing import Any

import fiddle as fdl
import pytest

from nemo_run.config import Config
from nemo_run.core.execution.base import Executor
from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.core.execution.launcher import FaultTolerance, Launcher, Torchrun
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ConfigError

USER = getpass.getuser()

UPSTREAM = [
    "runtime_ref",
    "namespace",
    "image",
    "num_nodes",
    "nprocs_per_node",
    "gpus_per_node",
    "cpu_requests",
    "memory_requests",
    "cpu_limits",
    "memory_limits",
    "extra_resource_requests",
    "extra_resource_limits",
    "volume_mounts",
    "volumes",
    "labels",
    "annotations",
    "pod_annotations",
    "pod_labels",
    "tolerations",
    "affinity",
    "env_list",
    "pod_spec_overrides",
    "data_mover_image",
    "restart_policy",
    "image_pull_secrets",
    "spec_kwargs",
    "container_kwargs",
    "workdir_pvc",
    "workdir_pvc_path",
    "workdir_local_path",
    "train_job_basename",
]
OURS = [
    "workdir_volume_mount",
    "code_subpath",
    "kubeconfig",
    "context",
    "gpu_resource",
    "container_name",
    "trainer_api",
    "data_mover",
    "data_mover_timeout",
    "strict",
]


def test_fields_are_upstreams_in_its_order_then_ours():
    names = [field.name for field in fields(KubeflowExecutor) if field.init]
    assert names == [field.name for field in fields(Executor) if field.init] + UPSTREAM + OURS


@pytest.mark.parametrize(
    ("verb", "signature"),
    [
        ("launch", "(self, name, cmd, wait=False, timeout=300, poll_interval=10)"),
        ("status", "(self, job_name)"),
        ("fetch_logs", "(self, job_name, stream=False, lines=100, timeout=60)"),
        ("cancel", "(self, job_name, wait=False, timeout=300, poll_interval=5)"),
        ("materialize_launch_script", "(self, cmd, max_retries=0)"),
        ("package", "(self, packager, job_name)"),
        ("pull_results", "(self, job_name, dest_dir=None)"),
        ("copy_to_workspace", "(self, local_path, remote_path, label='datamover')"),
        ("copy_from_workspace", "(self, remote_path, local_path, label='datamover')"),
        ("get_job_body", "(self, name, command)"),
        ("assign", "(self, exp_id, exp_dir, task_id, task_dir)"),
    ],
)
def test_verbs_are_called_as_upstreams(verb, signature):
    found = inspect.signature(getattr(KubeflowExecutor, verb))
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in found.parameters.values()]
    assert str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty)) == signature


def test_it_needs_no_cluster_and_loads_nothing_for_one():
    """Tests build it without a kubeconfig, and dry runs do."""
    code = (
        "import sys; from nemo_run.core.execution.kubeflow import KubeflowExecutor as E;"
        "E(env_vars={'A': '1'}).get_job_body('n', ['true']);"
        "sys.exit(' '.join({'kubernetes', 'fiddle', 'rich', 'websocket'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"KUBECONFIG": "/nonexistent"}
    )
    assert (done.returncode, done.stderr) == (0, "")


class TestIdentity:
    """Where a job lies before and after an experiment takes it."""

    MOUNT = {"name": "work", "mountPath": "/nemo_run/", "subPath": "a"}  # noqa: RUF012

    def executor(self, **given: Any) -> KubeflowExecutor:
        volumes = [{"name": "work", "persistentVolumeClaim": {"claimName": "c"}}]
        return KubeflowExecutor(volumes=volumes, workdir_volume_mount=self.MOUNT, **given)

    def test_before(self):
        assert self.executor().code_dir == f"/nemo_run/{USER}/code"

    def test_after(self):
        executor = self.executor()
        executor.assign("exp_1", "/home/me/exp_1", "train", "train_dir")
        assert executor.code_dir == f"/nemo_run/{USER}/exp_1/train/code"
        assert (executor.job_dir, executor.experiment_dir) == ("/home/me/exp_1/train_dir", "/home/me/exp_1")
        layout = executor.workdir()
        assert layout is not None
        assert str(layout.launch_script) == f"{executor.code_dir}/launch.sh"

    def test_the_local_directorys_name(self, tmp_path, monkeypatch):
        (tmp_path / "proj").mkdir()
        monkeypatch.chdir(tmp_path / "proj")
        executor = self.executor(workdir_local_path=".", code_subpath="x/{workdir}")
        assert executor.code_dir == "/nemo_run/x/proj"

    def test_without_a_workdir_there_is_no_place(self):
        assert KubeflowExecutor().code_dir == ""
        assert KubeflowExecutor().workdir() is None


class TestCopies:
    """Clones and saved executors."""

    def test_a_clone_is_equal_and_shares_nothing(self):
        executor = KubeflowExecutor(env_vars={"A": "1"}, volumes=[{"name": "a"}], labels={"a": "b"})
        clone = executor.clone()
        assert clone == executor
        clone.env_vars["B"] = "2"
        clone.volumes.append({"name": "b"})
        assert (executor.env_vars, executor.volumes) == ({"A": "1"}, [{"name": "a"}])

    def test_names_of_clones_differ(self):
        executor = KubeflowExecutor()
        assert executor.clone()._trainjob_name("a") != executor._trainjob_name("a")

    def test_a_saved_executor_comes_back_equal(self):
        executor = KubeflowExecutor(
            launcher=Torchrun(), num_nodes=2, workdir_pvc="p", env_list=[{"name": "A", "value": "1"}]
        )
        serializer = ZlibJSONSerializer()
        text = serializer.serialize(executor.to_config())
        assert fdl.build(serializer.deserialize(text)) == executor

    def test_a_tasks_variables_are_never_saved(self):
        executor = KubeflowExecutor()
        executor._task_env["SECRET_VALUE"] = "task secret"
        assert "task secret" not in str(executor.to_config())

    def test_a_config_builds_it(self):
        config = Config(KubeflowExecutor, num_nodes=2)
        config.env_vars = {"A": "1"}
        assert fdl.build(config) == KubeflowExecutor(num_nodes=2, env_vars={"A": "1"})

    def test_a_subclass_may_add_fields_and_a_post_init(self):
        from dataclasses import dataclass

        @dataclass(kw_only=True)
        class Mine(KubeflowExecutor):
            extra: str = "x"

            def __post_init__(self) -> None:
                super().__post_init__()
                self.labels.setdefault("mine", self.extra)

        assert Mine(extra="y").get_job_body("n", ["true"])["metadata"]["labels"]["mine"] == "y"


def old(claim: str, **given: Any) -> KubeflowExecutor:
    executor = KubeflowExecutor(workdir_pvc=claim, **given)
    executor.assign("exp_1", "/nonexistent", "train", "train")
    return executor


class TestOldArguments:
    """workdir_pvc and workdir_pvc_path: mapped, and told about once."""

    def body(self, executor: KubeflowExecutor, claim: str, text: str = "workdir_volume_mount=") -> dict[str, Any]:
        with pytest.warns(DeprecationWarning, match="workdir_pvc, workdir_pvc_path is deprecated") as caught:
            body = executor.get_job_body("n", executor.start_command([]))
        (warning,) = caught
        assert text in str(warning.message)
        assert warning.filename == __file__
        return body

    def test_construction_is_silent_and_the_first_use_tells_what_to_write(self):
        executor = old("claim-first", workdir_pvc_path="/work")
        body = self.body(
            executor, "claim-first", "workdir_volume_mount={'name': 'nemo-run-workdir', 'mountPath': '/work'}"
        )
        patch = body["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
        assert patch["template"]["spec"]["template"]["spec"] == {
            "volumes": [{"name": "nemo-run-workdir", "persistentVolumeClaim": {"claimName": "claim-first"}}],
            "containers": [{"name": "node", "volumeMounts": [{"name": "nemo-run-workdir", "mountPath": "/work"}]}],
        }
        assert body["spec"]["trainer"]["command"] == ["/bin/bash", f"/work/{USER}/exp_1/train/code/launch.sh"]

    def test_the_second_use_is_silent_and_another_claim_is_not(self):
        executor = old("claim-second")
        self.body(executor, "claim-second")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            executor.get_job_body("n", ["true"])
            executor.clone().get_job_body("n", ["true"])
        self.body(old("claim-third"), "claim-third")

    def test_a_volume_that_holds_the_claim_is_used(self):
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "claim-fourth"}}]
        mounts = [{"name": "data", "mountPath": "/nemo_run", "subPath": "team"}]
        executor = old("claim-fourth", volumes=volumes, volume_mounts=mounts)
        self.body(
            executor,
            "claim-fourth",
            "workdir_volume_mount={'name': 'data', 'mountPath': '/nemo_run', 'subPath': 'team'}",
        )
        assert executor.volumes == volumes
        assert executor.volume_mounts == mounts

    def test_what_the_warning_says_to_write_means_the_same(self):
        executor = old("claim-fifth", workdir_pvc_path="/work")
        with pytest.warns(DeprecationWarning, match="write instead: ") as caught:
            before = executor.get_job_body("n", executor.start_command([]))
        text = str(caught[0].message).partition("write instead: ")[2]
        written = KubeflowExecutor(**eval(f"dict({text})"))
        written.assign("exp_1", "/nonexistent", "train", "train")
        assert written.get_job_body("n", written.start_command([])) == before

    @pytest.mark.parametrize("way", ["config", "assignment", "clone", "saved"])
    def test_every_way_to_an_executor(self, way):
        claim = f"claim-{way}"
        if way == "config":
            executor = fdl.build(Config(KubeflowExecutor, workdir_pvc=claim))
        elif way == "assignment":
            executor = KubeflowExecutor()
            executor.workdir_pvc = claim
        elif way == "clone":
            executor = KubeflowExecutor(workdir_pvc=claim).clone()
        else:
            serializer = ZlibJSONSerializer()
            saved = serializer.serialize(KubeflowExecutor(workdir_pvc=claim).to_config())
            executor = fdl.build(serializer.deserialize(saved))
        self.body(executor, claim)
        assert (executor.workdir_pvc, executor.workdir_volume_mount) == (claim, None)

    def test_both_styles_must_agree(self):
        volumes = [{"name": "w", "persistentVolumeClaim": {"claimName": "claim-both"}}]
        same = old("claim-both", volumes=volumes, workdir_volume_mount={"name": "w", "mountPath": "/nemo_run"})
        self.body(same, "claim-both")
        other = old("claim-both", volumes=volumes, workdir_volume_mount={"name": "w", "mountPath": "/work"})
        with pytest.raises(ConfigError, match="remove workdir_pvc"):
            other.get_job_body("n", ["true"])

    def test_a_path_without_a_claim_means_nothing(self):
        assert KubeflowExecutor(workdir_pvc_path="/work").workdir() is None


class TestLauncher:
    """What stands before the task's command."""

    def test_nothing(self):
        assert KubeflowExecutor().launcher_command(["python", "x.py"]) == ["python", "x.py"]

    @pytest.mark.parametrize(
        ("command", "program"),
        [
            (["python", "x.py", "--a"], ["x.py", "--a"]),
            (["python", "-m", "pkg.mod", "-c", "x"], ["-m", "pkg.mod", "-c", "x"]),
            (["python", "-c", "print()"], ["--no-python", "python", "-c", "print()"]),
            (["bash", "/nemo_run/scripts/s.sh"], ["--no-python", "bash", "/nemo_run/scripts/s.sh"]),
        ],
    )
    def test_torchrun_takes_its_place_from_the_cluster(self, command, program):
        executor = KubeflowExecutor(launcher="torchrun", num_nodes=2)
        executor.assign("e", "/e", "train", "train")
        assert executor.launcher_command(command) == [
            *("torchrun", "--nnodes", "$PET_NNODES", "--nproc-per-node", "$PET_NPROC_PER_NODE"),
            *("--node-rank", "$PET_NODE_RANK", "--rdzv-backend", "c10d"),
            *("--rdzv-endpoint", "$PET_MASTER_ADDR:$PET_MASTER_PORT", "--rdzv-id", "train", "--tee", "3"),
            *program,
        ]

    def test_one_node_meets_itself(self):
        command = KubeflowExecutor(launcher=Torchrun(rdzv_id=7)).launcher_command(["python", "x.py"])
        assert command[command.index("--rdzv-endpoint") + 1] == "localhost:0"
        assert command[command.index("--rdzv-id") + 1] == "7"

    def test_a_port_of_ones_own(self):
        executor = KubeflowExecutor(launcher=Torchrun(rdzv_port=1234), num_nodes=2)
        assert "$PET_MASTER_ADDR:1234" in executor.launcher_command(["python", "x.py"])

    @pytest.mark.parametrize(
        ("launcher", "options"),
        [
            (FaultTolerance(), ["--ignore-missing-fault-tol-cfg"]),
            (
                FaultTolerance(rank_heartbeat_timeout=0.5, max_restarts=0),
                ["--ft-rank_heartbeat_timeout", "0.5", "--max-restarts", "0"],
            ),
        ],
    )
    def test_fault_tolerance(self, launcher, options):
        command = KubeflowExecutor(launcher=launcher).launcher_command(["python", "x.py"])
        assert command[: len(options) + 2] == ["ft_launcher", *options, "--nnodes"]

    def test_a_profiler_goes_around_it_and_writes_to_the_volume(self, tmp_path):
        volumes = [{"name": "work", "persistentVolumeClaim": {"claimName": "c"}}]
        mount = {"name": "work", "mountPath": "/work"}
        executor = KubeflowExecutor(
            launcher=Launcher(nsys_profile=True), volumes=volumes, workdir_volume_mount=mount, code_subpath="x"
        )
        executor.assign("e", str(tmp_path), "train", "train")
        command = executor.launcher_command(["python", "x.py"])
        assert command[:2] == ["nsys", "profile"]
        assert command[command.index("-o") + 1] == "/work/x/nsys_profile/profile_%p"
        assert command[-2:] == ["python", "x.py"]
        assert (tmp_path / "train" / "nsys_profile").is_dir()


def test_building_one_changes_nothing_of_the_callers():
    given: dict[str, Any] = {
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "c"}}],
        "volume_mounts": [{"name": "work", "mountPath": "/data/"}],
        "workdir_volume_mount": {"name": "work", "mountPath": "/nemo_run//"},
        "env_vars": {"A": "$B"},
        "container_kwargs": {"env": [{"name": "X", "value": "$"}], "volumeMounts": []},
        "pod_spec_overrides": {"containers": [{"name": "node", "volumeMounts": [{"name": "work", "mountPath": "/z"}]}]},
    }
    before = copy.deepcopy(given)
    executor = KubeflowExecutor(**given)
    executor.get_job_body("n", ["true"])
    executor.get_job_body("n", ["true"])
    assert given == before


def test_the_launch_script_is_for_this_user_only(tmp_path):
    """Arguments, and values that extend themselves, can hold secrets."""
    executor = KubeflowExecutor(env_vars={"API_KEYS": "$API_KEYS:s3cret"})
    executor.assign("exp_1", str(tmp_path), "train", "train")
    path = tmp_path / "train" / "launch.sh"
    path.parent.mkdir()
    path.write_text("older")
    path.chmod(0o644)
    executor.materialize_launch_script(["train", "--token", "hf_abc"])
    assert "s3cret" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
