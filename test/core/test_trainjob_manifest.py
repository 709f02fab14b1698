"""The whole TrainJob that an executor's fields mean, in each dialect of the API."""

from __future__ import annotations

import copy
import getpass
from typing import Any

import pytest

from nemo_run.core.execution.kubeflow import KubeflowExecutor
from nemo_run.exceptions import ConfigError, InvalidName

USER = getpass.getuser()
WORK = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}
COMMAND = ["/bin/bash", f"/nemo_run/{USER}/exp_1/train/code/launch.sh"]


def executor(**fields: Any) -> KubeflowExecutor:
    made = KubeflowExecutor(**fields)
    made.assign("exp_1", "/tmp/exp_1", "train", "train")
    return made


def pods(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the pod template of each entry that changes the runtime's, in either dialect."""
    entries = body["spec"].get("podTemplateOverrides") or [
        entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        for entry in body["spec"].get("runtimePatches", [])
    ]
    return [{key: value for key, value in entry.items() if key in ("metadata", "spec")} for entry in entries]


FULL = {
    "image": "nemo:1",
    "num_nodes": 2,
    "gpus_per_node": 8,
    "cpu_requests": "8",
    "memory_requests": "32Gi",
    "volumes": [WORK],
    "volume_mounts": [{"name": "work", "mountPath": "/data", "subPath": "data"}],
    "workdir_volume_mount": MOUNT,
    "labels": {"team": "a"},
    "annotations": {"n": 1},
    "pod_labels": {"pod": "l"},
    "pod_annotations": {"pod": "a"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {"x": 1}},
    "env_vars": {"A": "1"},
    "env_list": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "image_pull_secrets": ["registry"],
}
METADATA = {
    "name": "train-1a2b3c",
    "namespace": "default",
    "labels": {
        "team": "a",
        "nemo-run/experiment-id": "exp_1",
        "nemo-run/job-name": "train",
        "nemo-run/user": USER,
    },
    "annotations": {"n": "1"},
}
TRAINER = {
    "numNodes": 2,
    "numProcPerNode": 8,
    "image": "nemo:1",
    "command": COMMAND,
    "env": [
        {"name": "A", "value": "1"},
        {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ],
    "resourcesPerNode": {
        "requests": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "8"},
        "limits": {"nvidia.com/gpu": "8"},
    },
}
POD = {
    "metadata": {"labels": {"pod": "l"}, "annotations": {"pod": "a"}},
    "spec": {
        "volumes": [WORK],
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"x": 1}},
        "containers": [
            {"name": "node", "volumeMounts": [{"name": "work", "mountPath": "/data", "subPath": "data"}]},
        ],
    },
}
SECOND_POD = {"spec": {"containers": [{"name": "node", "volumeMounts": [MOUNT]}]}}


def test_the_2_1_dialect():
    assert executor(trainer_api="2.1", **FULL).get_job_body("train-1a2b3c", COMMAND) == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": METADATA,
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": TRAINER,
            "podTemplateOverrides": [
                {"targetJobs": [{"name": "node"}], **POD},
                {"targetJobs": [{"name": "node"}], **SECOND_POD},
            ],
        },
    }


@pytest.mark.parametrize("trainer_api", ["2.2", "auto"])
def test_the_2_2_dialect_which_a_dry_run_shows(trainer_api):
    def patch(manager: str, pod: dict[str, Any]) -> dict[str, Any]:
        job = {"name": "node", "template": {"spec": {"template": pod}}}
        return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}}}

    assert executor(trainer_api=trainer_api, **FULL).get_job_body("train-1a2b3c", COMMAND) == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": METADATA,
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": TRAINER,
            "runtimePatches": [patch("nemo-run/executor", POD), patch("nemo-run/mounts-2", SECOND_POD)],
        },
    }


def test_what_is_not_set_is_not_sent():
    """An empty image would replace the runtime's."""
    body = KubeflowExecutor().get_job_body("job-1", ["true"])
    command = body["spec"]["trainer"].pop("command")
    assert command[:2] + command[3:] == ["/bin/bash", "-c", "launch.sh"]
    assert body["spec"] == {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {"numNodes": 1, "numProcPerNode": 1},
    }
    assert body["metadata"] == {"name": "job-1", "namespace": "default", "labels": {"nemo-run/user": USER}}


@pytest.mark.parametrize("dialect", ["2.1", "2.2"])
def test_equal_fields_give_equal_bytes_and_stay_as_they_are(dialect):
    fields = copy.deepcopy(FULL)
    one, other = (executor(trainer_api=dialect, **fields) for _ in range(2))
    texts = {repr(each.get_job_body("n", COMMAND)) for each in (one, other, one, one.clone()) if each.job_name}
    assert len(texts) == 1
    assert fields == FULL


def test_two_executors_may_share_their_dicts():
    """A caller passed one dict as labels and pod_labels."""
    shared = {"team": "a"}
    body = executor(labels=shared, pod_labels=shared).get_job_body("n", ["true"])
    assert pods(body) == [{"metadata": {"labels": {"team": "a"}}}]
    assert shared == {"team": "a"}


@pytest.mark.parametrize("dialect", ["2.1", "2.2"])
def test_one_volume_at_three_paths_is_spread_over_as_many_entries(dialect):
    mounts = [{"name": "work", "mountPath": f"/m{n}"} for n in range(2)] + [{"name": "shm", "mountPath": "/dev/shm"}]
    volumes = [WORK, {"name": "shm", "emptyDir": {}}]
    body = executor(
        trainer_api=dialect, volumes=volumes, volume_mounts=mounts, workdir_volume_mount=MOUNT
    ).get_job_body("n", COMMAND)
    assert [pod["spec"]["containers"] for pod in pods(body)] == [
        [{"name": "node", "volumeMounts": [mounts[0], mounts[2]]}],
        [{"name": "node", "volumeMounts": [mounts[1]]}],
        [{"name": "node", "volumeMounts": [MOUNT]}],
    ]
    assert [pod["spec"].get("volumes") for pod in pods(body)] == [volumes, None, None]


def test_a_volume_at_more_paths_than_there_are_entries_is_refused():
    mounts = [{"name": "work", "mountPath": f"/m{n}"} for n in range(17)]
    with pytest.raises(ConfigError, match="16 paths at most"):
        executor(volumes=[WORK], volume_mounts=mounts).get_job_body("n", ["true"])


def test_the_workdirs_mount_given_twice_is_sent_once():
    body = executor(volumes=[WORK], volume_mounts=[MOUNT], workdir_volume_mount=MOUNT).get_job_body("n", COMMAND)
    assert [pod["spec"]["containers"] for pod in pods(body)] == [[{"name": "node", "volumeMounts": [MOUNT]}]]


@pytest.mark.parametrize("where", ["volume_mounts", "container_kwargs", "pod_spec_overrides"])
def test_two_mounts_at_one_path_are_refused_before_any_request(where):
    other = {**MOUNT, "subPath": "team-b"}
    fields = {
        "volume_mounts": [other],
        "container_kwargs": {"volumeMounts": [other]},
        "pod_spec_overrides": {"containers": [{"name": "node", "volumeMounts": [other]}]},
    }
    with pytest.raises(ConfigError, match="two different mounts at /nemo_run") as caught:
        executor(volumes=[WORK], workdir_volume_mount=MOUNT, **{where: fields[where]}).get_job_body("n", COMMAND)
    assert "team-a" in str(caught.value)
    assert "team-b" in str(caught.value)


def test_what_a_plugin_appends_counts():
    made = executor(volumes=[WORK], workdir_volume_mount=MOUNT)
    made.volumes.append({"name": "shm", "emptyDir": {}})
    made.volume_mounts.append({"name": "shm", "mountPath": "/dev/shm"})
    (pod,) = pods(made.get_job_body("n", COMMAND))
    assert pod["spec"]["volumes"] == [WORK, {"name": "shm", "emptyDir": {}}]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [{"name": "shm", "mountPath": "/dev/shm"}, MOUNT]


def test_a_runtime_may_call_its_container_otherwise():
    (pod,) = pods(
        executor(container_name="trainer", volumes=[WORK], workdir_volume_mount=MOUNT).get_job_body("n", COMMAND)
    )
    assert pod["spec"]["containers"] == [{"name": "trainer", "volumeMounts": [MOUNT]}]


@pytest.mark.parametrize(
    ("fields", "resources"),
    [
        (
            {"gpus_per_node": 2, "gpu_resource": "amd.com/gpu"},
            {"requests": {"amd.com/gpu": "2"}, "limits": {"amd.com/gpu": "2"}},
        ),
        ({"gpus_per_node": 0}, None),
        ({"gpus_per_node": None}, None),
        ({"extra_resource_requests": {"efa": 4}}, {"requests": {"efa": "4"}}),
        ({"cpu_limits": "2", "memory_limits": "1Gi"}, {"limits": {"cpu": "2", "memory": "1Gi"}}),
    ],
)
def test_resources_are_text_and_gpus_are_asked_for_and_limited_alike(fields, resources):
    assert executor(**fields).get_job_body("n", ["true"])["spec"]["trainer"].get("resourcesPerNode") == resources


@pytest.mark.parametrize(
    ("fields", "processes"),
    [({}, 1), ({"gpus_per_node": 8}, 8), ({"gpus_per_node": 8, "nprocs_per_node": 4}, 4), ({"gpus_per_node": 0}, 1)],
)
def test_processes_follow_the_gpus_unless_told_otherwise(fields, processes):
    assert executor(**fields).get_job_body("n", ["true"])["spec"]["trainer"]["numProcPerNode"] == processes


class TestPassThrough:
    """Fields of spec_kwargs, container_kwargs, pod_spec_overrides."""

    def test_a_security_context_goes_to_the_container_where_a_patch_has_one(self):
        context = {"privileged": True}
        (pod,) = pods(executor(container_kwargs={"securityContext": context}).get_job_body("n", ["true"]))
        assert pod == {"spec": {"containers": [{"name": "node", "securityContext": context}]}}

    def test_a_security_context_stays_where_it_was_for_a_server_that_has_no_place_for_it(self):
        body = executor(trainer_api="2.1", container_kwargs={"securityContext": {"a": 1}}).get_job_body("n", ["true"])
        assert body["spec"]["trainer"]["securityContext"] == {"a": 1}
        assert "podTemplateOverrides" not in body["spec"]

    def test_pod_fields_in_spec_kwargs_go_to_the_pod(self):
        body = executor(spec_kwargs={"image_pull_secrets": ["a"], "suspend": True}).get_job_body("n", ["true"])
        assert pods(body) == [{"spec": {"imagePullSecrets": [{"name": "a"}]}}]
        assert body["spec"]["suspend"] is True

    def test_pull_secrets_and_volumes_are_added_by_name(self):
        overrides = {
            "imagePullSecrets": [{"name": "b"}],
            "volumes": [
                {"name": "shm", "emptyDir": {}},
                {"name": "work", "persistentVolumeClaim": {"readOnly": False}},
            ],
        }
        (pod,) = pods(
            executor(volumes=[WORK], image_pull_secrets=["a"], pod_spec_overrides=overrides).get_job_body("n", ["true"])
        )
        assert pod["spec"] == {
            "volumes": [
                {"name": "work", "persistentVolumeClaim": {"claimName": "shared", "readOnly": False}},
                {"name": "shm", "emptyDir": {}},
            ],
            "imagePullSecrets": [{"name": "a"}, {"name": "b"}],
        }

    def test_none_removes(self):
        made = executor(image="i", tolerations=[{"key": "a"}], container_kwargs={"image": None})
        made.pod_spec_overrides = {"tolerations": None}
        body = made.get_job_body("n", ["true"])
        assert "image" not in body["spec"]["trainer"]
        assert pods(body) == []

    def test_container_fields_win_and_merge(self):
        made = executor(
            image="a",
            gpus_per_node=1,
            env_vars={"A": "1"},
            container_kwargs={
                "image": "b",
                "resources": {"limits": {"x": "1"}},
                "env": [{"name": "A", "value": "2"}],
                "numNodes": 3,
            },
        )
        trainer = made.get_job_body("n", COMMAND)["spec"]["trainer"]
        assert (trainer["image"], trainer["numNodes"]) == ("b", 3)
        assert trainer["env"] == [{"name": "A", "value": "2"}]
        assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "1", "x": "1"}

    def test_the_users_own_patches_come_after_ours(self):
        theirs = {"manager": "example.com/x", "trainingRuntimeSpec": {}}
        made = executor(volumes=[WORK], workdir_volume_mount=MOUNT, spec_kwargs={"runtimePatches": [theirs]})
        patches = made.get_job_body("n", COMMAND)["spec"]["runtimePatches"]
        assert [patch["manager"] for patch in patches] == ["nemo-run/executor", "example.com/x"]

    def test_a_runtime_of_the_namespace_can_be_named(self):
        body = executor(spec_kwargs={"runtimeRef": {"kind": "TrainingRuntime"}}).get_job_body("n", ["true"])
        assert body["spec"]["runtimeRef"] == {"name": "torch-distributed", "kind": "TrainingRuntime"}


class TestCommand:
    """What the container starts with."""

    def test_the_synced_script_is_named_and_nothing_more(self):
        made = executor(volumes=[WORK], workdir_volume_mount=MOUNT)
        assert made.start_command(["python", "x.py"]) == COMMAND
        assert made.get_job_body("n", COMMAND)["spec"]["trainer"]["command"] == COMMAND

    def test_a_dollar_in_the_path_survives_the_kubelet(self):
        made = executor(volumes=[WORK], workdir_volume_mount=MOUNT, code_subpath="$(HOME)/x")
        command = made.get_job_body("n", made.start_command([]))["spec"]["trainer"]["command"]
        assert command == ["/bin/bash", "/nemo_run/$$(HOME)/x/launch.sh"]

    def test_without_a_workdir_the_script_travels_in_the_manifest(self):
        made = executor(retries=2)
        assert made.start_command(["python", "a b"]) == ["python", "a b"]
        command = made.get_job_body("n", ["python", "a b", "$X"])["spec"]["trainer"]["command"]
        assert command[:2] + command[3:] == ["/bin/bash", "-c", "launch.sh"]
        script = command[2].replace("$$", "$")
        assert script.count("$") * 2 == command[2].count("$")
        assert script.splitlines()[-2:] == ["export TORCHX_MAX_RETRIES=2", "exec python 'a b' \"${X-\\$X}\""]

    def test_without_a_workdir_a_long_command_is_refused_and_told_what_to_do(self):
        with pytest.raises(ConfigError, match="set workdir_volume_mount"):
            executor().get_job_body("n", ["python", *(["x" * 10_000] * 20)])


class TestNamesAndLabels:
    """What jobs are called and found by."""

    @pytest.mark.parametrize(
        ("basename", "name", "stem"),
        [
            (None, "train", "train"),
            (None, "My_Task.1", "my-task-1"),
            ("70b-pretrain", "x", "j-70b-pretrain"),
            ("mb-" + "x" * 60, "x", "mb-" + "x" * 23),
            ("", "", "job"),
            ("É!", "x", "job"),
        ],
    )
    def test_the_random_part_is_never_cut(self, basename, name, stem):
        made = executor(train_job_basename=basename)
        full = made._trainjob_name(name)
        assert full == made._trainjob_name(name)
        assert full.rpartition("-")[0] == stem
        assert len(full.rpartition("-")[2]) == 6
        assert len(full) <= 33

    def test_two_executors_never_share_a_name(self):
        assert executor()._trainjob_name("a") != executor()._trainjob_name("a")

    def test_our_labels_are_made_to_fit_and_stay_apart(self):
        labels = []
        for name in ("a@b", "a/b"):
            made = KubeflowExecutor()
            made.assign("exp:1", "/tmp/e", name, name)
            labels.append(made.get_job_body("n", ["true"])["metadata"]["labels"]["nemo-run/job-name"])
        assert len(set(labels)) == 2
        assert all(label.startswith("a-b-") for label in labels)

    @pytest.mark.parametrize("field", ["labels", "pod_labels"])
    @pytest.mark.parametrize("value", ["a@b.c", "x" * 70, "-a"])
    def test_a_label_that_kubernetes_refuses_is_refused_here(self, field, value):
        with pytest.raises(ConfigError, match="use annotations"):
            executor(**{field: {"owner": value}}).get_job_body("n", ["true"])

    def test_errors_are_value_errors(self):
        assert issubclass(ConfigError, ValueError)
        assert issubclass(InvalidName, ConfigError)


@pytest.mark.parametrize("value", ["2.0", "2.3", "v2.1", ""])
def test_an_unknown_dialect_is_refused(value):
    with pytest.raises(ConfigError, match="write 'auto'"):
        executor(trainer_api=value).get_job_body("n", ["true"])
