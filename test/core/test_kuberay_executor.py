"""KubeRayExecutor as a value: fields, workdir, what it warns of."""

import copy
import dataclasses
import os
import subprocess
import sys
import warnings
from pathlib import PurePosixPath

import pytest

from nemo_run._kube.manifests.pods import PodShape
from nemo_run.core.execution._raypods import mover_shape
from nemo_run.core.execution.base import current_user
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.exceptions import ConfigError

WORK = {"name": "w", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "w", "mountPath": "/work", "subPath": "team-a"}
USER = current_user()

UPSTREAM_GROUP = (
    "group_name", "replicas", "min_replicas", "max_replicas", "gpus_per_worker", "cpu_requests", "memory_requests",
    "cpu_limits", "memory_limits", "volume_mounts", "volumes", "labels", "annotations",
)  # fmt: skip
UPSTREAM_EXECUTOR = (
    "namespace", "ray_version", "image", "head_cpu", "head_memory", "ray_head_start_params", "ray_worker_start_params",
    "worker_groups", "labels", "service_type", "head_ports", "volume_mounts", "volumes",
    "reuse_volumes_in_worker_groups", "spec_kwargs", "container_kwargs", "lifecycle_kwargs",
)  # fmt: skip


def names(kind):
    return tuple(field.name for field in dataclasses.fields(kind) if field.init)


class TestFields:
    def test_a_worker_group_has_nemo_runs_fields_first(self):
        """It is built by position, too."""
        assert names(KubeRayWorkerGroup) == (
            *UPSTREAM_GROUP, "gpu_resource", "num_of_hosts", "ray_start_params", "pod_spec",
        )  # fmt: skip

    def test_an_executor_has_nemo_runs_fields_first(self):
        own = names(KubeRayExecutor)
        start = own.index("namespace")
        assert own[start : start + len(UPSTREAM_EXECUTOR)] == UPSTREAM_EXECUTOR
        assert own[start + len(UPSTREAM_EXECUTOR) :] == (
            "workdir_volume_mount", "code_subpath", "kubeconfig", "context", "gpu_resource", "data_mover",
            "data_mover_timeout", "strict", "data_mover_image", "env_list", "image_pull_secrets", "tolerations",
            "affinity", "node_selector", "annotations", "pod_labels", "pod_annotations", "submitter",
            "active_deadline_seconds", "pre_running_deadline_seconds", "ttl_seconds_after_finished",
            "autoscaler_options",
        )  # fmt: skip

    def test_the_image_is_rays_own_unless_given(self):
        assert KubeRayExecutor(ray_version="2.50.0").image == "rayproject/ray:2.50.0"
        assert KubeRayExecutor(image="mine").image == "mine"

    def test_limits_are_the_replicas_unless_given(self):
        group = KubeRayWorkerGroup("a", 3)
        assert (group.min_replicas, group.max_replicas) == (3, 3)
        group = KubeRayWorkerGroup("a", 3, 0, 5)
        assert (group.min_replicas, group.max_replicas) == (0, 5)

    @pytest.mark.parametrize("kind", [KubeRayExecutor, KubeRayWorkerGroup])
    def test_none_is_nothing(self, kind):
        required = {"group_name": "a"} if kind is KubeRayWorkerGroup else {}
        nothing = {
            field.name: None
            for field in dataclasses.fields(kind)
            if field.init and field.default_factory in (list, dict)
        }
        assert kind(**required, **nothing) == kind(**required)

    def test_a_pull_secret_is_a_name_or_a_reference(self):
        body = KubeRayExecutor(image_pull_secrets=["a", {"name": "b"}]).get_cluster_body("c")
        pod = body["spec"]["headGroupSpec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]

    def test_a_group_keeps_what_its_caller_gave(self):
        group = KubeRayWorkerGroup("a", volumes=[{"name": "scratch", "emptyDir": {}}])
        before = copy.deepcopy(group)
        KubeRayExecutor(volumes=[WORK], volume_mounts=[MOUNT], worker_groups=[group])
        assert group == before

    def test_a_clone_is_equal_and_goes_its_own_way(self):
        executor = KubeRayExecutor(
            volumes=[WORK], workdir_volume_mount=MOUNT, worker_groups=[KubeRayWorkerGroup("a", 2, 0)], env_vars={"A": 1}
        )
        clone = executor.clone()
        assert clone == executor
        clone.worker_groups[0].replicas = 1
        clone.volumes.append({"name": "x", "emptyDir": {}})
        assert executor.worker_groups[0].replicas == 2
        assert executor.volumes == [WORK]

    def test_an_attribute_that_is_no_field_may_be_set(self):
        executor = KubeRayExecutor()
        executor.job_details = "slurm's"
        assert executor.job_details == "slurm's"

    def test_building_one_and_its_manifest_needs_no_cluster_and_no_client(self):
        program = (
            "import sys\n"
            "from nemo_run.core.execution.kuberay import KubeRayExecutor\n"
            "repr(KubeRayExecutor()), KubeRayExecutor().get_cluster_body('x')\n"
            "assert 'kubernetes' not in sys.modules\n"
        )
        env = {"PATH": os.environ["PATH"], "KUBECONFIG": "/nowhere"}
        subprocess.run([sys.executable, "-c", program], check=True, env=env, timeout=60)


class TestWorkdir:
    def executor(self, **fields):
        return KubeRayExecutor(**{"volumes": [WORK], "workdir_volume_mount": MOUNT} | fields)

    def test_without_a_mount_there_is_none(self):
        assert KubeRayExecutor().workdir() is None
        assert KubeRayExecutor().workdir("src") is None
        assert KubeRayExecutor().code_dir == ""

    def test_a_directory_has_its_place_below_the_user(self, tmp_path, monkeypatch):
        layout = self.executor().workdir("/home/me/proj/src")
        assert layout.code_dir == PurePosixPath(f"/work/{USER}/code/src")
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        assert self.executor().workdir(".").code_dir == PurePosixPath(f"/work/{USER}/code/here")
        assert self.executor().workdir("..").code_dir == PurePosixPath(f"/work/{USER}/code") / tmp_path.name

    def test_the_root_directory_has_no_name(self):
        assert self.executor().workdir("/").code_dir == PurePosixPath(f"/work/{USER}/code")

    def test_in_an_experiment_each_job_has_its_own(self):
        executor = self.executor()
        executor.assign("exp_1", "/home/me/exp_1", "train", "train")
        assert (executor.experiment_id, executor.experiment_dir, executor.job_dir, executor.job_name) == (
            "exp_1",
            "/home/me/exp_1",
            "/home/me/exp_1/train",
            "train",
        )
        assert executor.code_dir == f"/work/{USER}/exp_1/train/code"

    def test_a_template_says_otherwise(self):
        assert self.executor(code_subpath="{workdir}").workdir("/x/src").code_dir == PurePosixPath("/work/src")
        assert self.executor(code_subpath="").code_dir == "/work"

    def test_it_follows_the_fields(self):
        executor = KubeRayExecutor()
        executor.volumes.append(WORK)
        executor.workdir_volume_mount = MOUNT
        assert executor.workdir().mount == MOUNT

    def test_the_first_mount_stands_in_for_a_directory_only(self):
        executor = KubeRayExecutor(volumes=[WORK], volume_mounts=[MOUNT])
        assert executor.workdir() is None
        layout = executor.workdir("src")
        assert (layout.mount, layout.replaced) == (MOUNT, f"workdir_volume_mount={MOUNT!r}")

    def test_a_first_mount_that_cannot_hold_code_is_refused(self):
        shm = {"name": "shm", "emptyDir": {"medium": "Memory"}}
        executor = KubeRayExecutor(volumes=[shm], volume_mounts=[{"name": "shm", "mountPath": "/dev/shm"}])
        assert executor.get_cluster_body("mine")["kind"] == "RayCluster"
        with pytest.raises(ConfigError, match="does not outlive its pod"):
            executor.workdir("src")


class TestDeprecation:
    def executor(self, claim):
        volume = {"name": "w", "persistentVolumeClaim": {"claimName": claim}}
        return KubeRayExecutor(volumes=[volume], volume_mounts=[MOUNT])

    def test_the_first_mount_warns_once_naming_what_to_write(self):
        executor = self.executor("warns-once")
        with pytest.warns(DeprecationWarning, match="copying to") as caught:
            body = executor.get_cluster_body("mine", local_dir="src")
        assert [(str(warning.message), warning.filename) for warning in caught] == [
            (
                f"copying to the first of volume_mounts is deprecated; write instead: workdir_volume_mount={MOUNT!r}",
                __file__,
            )
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert executor.clone().get_cluster_body("mine", local_dir="src") == body

    def test_another_claim_warns_again(self):
        for claim in ("warns-first", "warns-again"):
            with pytest.warns(DeprecationWarning, match="workdir_volume_mount="):
                self.executor(claim).get_cluster_body("mine", local_dir="src")

    def test_building_looking_and_cloning_do_not(self):
        executor = self.executor("never-used")
        executor.clone().workdir("src")

    def test_fields_stay_as_they_were_written(self):
        executor = self.executor("kept")
        before = executor.clone()
        with pytest.warns(DeprecationWarning, match="copying to"):
            executor.get_cluster_body("mine", local_dir="src")
        assert executor == before


class TestMoverShape:
    def test_the_copy_pod_runs_where_ray_runs(self):
        executor = KubeRayExecutor(
            tolerations=[{"key": "gpu"}],
            affinity={"nodeAffinity": {}},
            node_selector={"zone": "a"},
            image_pull_secrets=["registry"],
            spec_kwargs={
                "serviceAccountName": "ray",
                "nodeSelector": {"zone": "b"},
                "image_pull_secrets": ["other"],
                "securityContext": {"fsGroup": 1000},
                "schedulerName": "volcano",
            },
        )
        assert mover_shape(executor) == PodShape(
            tolerations=[{"key": "gpu"}],
            affinity={"nodeAffinity": {}},
            node_selector={"zone": "b"},
            image_pull_secrets=["registry", "other"],
            service_account="ray",
            security_context={"fsGroup": 1000},
        )
