"""RayJob manifests: what the executor's fields and a command make of a job."""

import getpass

import pytest
import yaml

from nemo_run.core.execution._rayjob import RayJobSpec, origins, rayjob, runner_text, shell_text
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.exceptions import ConfigError, InvalidName

WORK = {"name": "w", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "w", "mountPath": "/work", "subPath": "a"}
RESOURCES = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
SUBMITTER = {"name": "ray-job-submitter", "image": "rayproject/ray:2.43.0", "resources": RESOURCES}


def job(executor=None, command="python t.py", **fields):
    return rayjob(executor or KubeRayExecutor(), RayJobSpec(**{"name": "mine", "command": command, **fields}))


def with_workdir(**fields):
    executor = KubeRayExecutor(volumes=[WORK], workdir_volume_mount=MOUNT, **fields)
    return executor, {"layout": executor.workdir("/home/me/src"), "synced": True}


def test_the_defaults_make_a_job_with_a_cluster_that_goes_with_it():
    executor = KubeRayExecutor()
    assert job(executor) == {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "mine", "namespace": "default", "annotations": {"nemo-run/command": "python t.py"}},
        "spec": {
            "entrypoint": "bash -c 'echo ZXhlYyBiYXNoIC1jICdweXRob24gdC5weScgPC9kZXYvbnVsbAo=|base64 -d|bash'",
            "rayClusterSpec": executor.get_cluster_body("mine")["spec"],
            "shutdownAfterJobFinishes": True,
            "submitterPodTemplate": {"spec": {"restartPolicy": "Never", "containers": [SUBMITTER]}},
        },
    }


def test_with_a_workdir_the_command_lies_in_a_file_of_the_volume():
    executor, place = with_workdir()
    body = job(executor, **place)
    code = f"/work/{getpass.getuser()}/code/src"
    assert body["spec"]["entrypoint"] == f"bash {code}/.nemo_run/mine.sh"
    assert body["metadata"]["annotations"] == {"nemo-run/command": "python t.py", "nemo-run/code-dir": code}
    head = body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert head["workingDir"] == code


def test_a_directory_with_blanks_reaches_the_head_whole():
    executor, place = with_workdir(code_subpath="my code/$x")
    entrypoint = job(executor, **place)["spec"]["entrypoint"]
    assert entrypoint.startswith("bash -c 'echo ")
    assert "$" not in entrypoint


def test_labels_and_deadlines_are_the_jobs():
    executor = KubeRayExecutor(
        labels={"kueue.x-k8s.io/queue-name": "q", "n": 1},
        annotations={"a": 1},
        active_deadline_seconds=3600,
        pre_running_deadline_seconds=600,
        ttl_seconds_after_finished=60,
        retries=2,
    )
    body = job(executor, labels={"nemo-run/user": "alice"}, annotations={"nemo-run/launch-id": "x"})
    assert body["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "q", "n": "1", "nemo-run/user": "alice"}
    assert body["metadata"]["annotations"] == {
        "a": "1",
        "nemo-run/command": "python t.py",
        "nemo-run/launch-id": "x",
    }
    spec = body["spec"]
    del spec["entrypoint"], spec["rayClusterSpec"], spec["submitterPodTemplate"]
    assert spec == {
        "shutdownAfterJobFinishes": True,
        "activeDeadlineSeconds": 3600,
        "preRunningDeadlineSeconds": 600,
        "ttlSecondsAfterFinished": 60,
        "backoffLimit": 2,
    }


def test_the_submitter_can_run_where_the_job_can():
    """KubeRay's own submitter has neither pull secrets nor tolerations nor a service account."""
    taint = {"key": "gpu", "operator": "Exists"}
    executor = KubeRayExecutor(
        image="registry/ray",
        image_pull_secrets=["one"],
        tolerations=[taint],
        node_selector={"gpu": "yes"},
        spec_kwargs={"serviceAccountName": "runner", "image_pull_secrets": ["two"]},
        submitter={"containers": [{"name": "ray-job-submitter", "env": [{"name": "A", "value": "1"}]}], "priority": 1},
    )
    assert job(executor)["spec"]["submitterPodTemplate"] == {
        "spec": {
            "restartPolicy": "Never",
            "tolerations": [taint],
            "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
            "serviceAccountName": "runner",
            "priority": 1,
            "containers": [{**SUBMITTER, "image": "registry/ray", "env": [{"name": "A", "value": "1"}]}],
        }
    }


def test_the_submitter_can_be_spared_what_the_ray_pods_have():
    taint = {"key": "gpu", "operator": "Exists"}
    executor = KubeRayExecutor(tolerations=[taint], submitter={"tolerations": None, "nodeSelector": {"cpu": "yes"}})
    assert job(executor)["spec"]["submitterPodTemplate"] == {
        "spec": {"restartPolicy": "Never", "nodeSelector": {"cpu": "yes"}, "containers": [SUBMITTER]}
    }


@pytest.mark.parametrize(("name", "hint"), [("service_account_name", "serviceAccountName"), ("nodeSelektor", "remove")])
def test_a_field_that_the_submitter_cannot_have_is_named(name, hint):
    with pytest.raises(ConfigError, match=f"submitter='{name}'.*{hint}"):
        job(KubeRayExecutor(submitter={name: "x"}))


def test_a_runtime_environment_that_no_shell_can_change_is_sent_as_it_is():
    given = "pip: [a==1]  # two\nenv_vars: {A: yes}\n"
    spec = job(runtime_env=given)["spec"]
    assert spec["runtimeEnvYAML"] == given
    assert spec["submitterPodTemplate"] == {"spec": {"restartPolicy": "Never", "containers": [SUBMITTER]}}


def test_what_a_shell_would_expand_in_a_runtime_environment_is_put_in_by_that_shell():
    """Types, anchors and quotes stay as they are written."""
    given = "env_vars: &all {A: $HOME, '`k`': \"$$\", N: '1'}\nagain: *all\nconfig: {eager: yes, n: 1}\n"
    executor = KubeRayExecutor(
        submitter={"containers": [{"name": "ray-job-submitter", "env": [{"name": "A", "value": "1"}]}]}
    )
    spec = job(executor, runtime_env=given)["spec"]
    held = "${NEMO_RUN_DOLLAR}"
    assert yaml.safe_load(spec["runtimeEnvYAML"]) == {
        "env_vars": (all_ := {"A": f"{held}HOME", "${NEMO_RUN_BACKTICK}k${NEMO_RUN_BACKTICK}": held * 2, "N": "1"}),
        "again": all_,
        "config": {"eager": True, "n": 1},
    }
    assert spec["submitterPodTemplate"]["spec"]["containers"] == [
        {
            **SUBMITTER,
            "env": [
                {"name": "A", "value": "1"},
                {"name": "NEMO_RUN_DOLLAR", "value": "$$"},
                {"name": "NEMO_RUN_BACKTICK", "value": "`"},
            ],
        }
    ]


def test_a_job_can_run_on_a_cluster_that_is_there():
    spec = job(cluster_name="big")["spec"]
    assert spec["clusterSelector"] == {"ray.io/cluster": "big"}
    assert "rayClusterSpec" not in spec
    assert "shutdownAfterJobFinishes" not in spec


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({"retries": 1}, {}),
        ({"ttl_seconds_after_finished": 5}, {}),
        ({}, {"pre_ray_start_commands": ["true"]}),
    ],
    ids=["retries", "ttl", "pre-start"],
)
def test_what_needs_a_cluster_of_its_own_is_refused_on_another(fields, more):
    with pytest.raises(ConfigError, match="leave it out"):
        job(KubeRayExecutor(**fields), cluster_name="big", **more)


@pytest.mark.parametrize("name", ["x" * 48, "3d-run", "my.run", "Run_A", "alice@corp-run", "a"])
def test_every_name_becomes_one_that_kuberay_takes(name):
    import re

    made = job(name=name)["metadata"]["name"]
    assert len(f"{made}-raycluster-abcde-head-svc") <= 63
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", made)
    assert job(name=name)["metadata"]["name"] == made


def test_long_names_that_begin_alike_stay_apart():
    assert job(name="x" * 60 + "a")["metadata"]["name"] != job(name="x" * 60 + "b")["metadata"]["name"]


def test_the_annotation_shows_no_secret():
    body = job(command="run --token=hf_abcdef x", secrets=["s3cret-value"])
    assert body["metadata"]["annotations"]["nemo-run/command"] == "run --token=*** x"
    body = job(command="run s3cret-value", secrets=["s3cret-value"])
    assert body["metadata"]["annotations"]["nemo-run/command"] == "run ***"


def test_the_annotation_of_a_long_command_is_cut():
    executor, place = with_workdir()
    body = job(executor, command="echo " + "x" * 300_000, **place)
    assert body["metadata"]["annotations"]["nemo-run/command"] == "echo …"
    body = job(executor, command="echo " + "xyz " * 100_000, **place)
    assert 4000 < len(body["metadata"]["annotations"]["nemo-run/command"]) <= 4098


def test_a_command_that_is_too_long_for_a_manifest_is_refused():
    with pytest.raises(ConfigError, match="workdir"):
        job(command="echo " + "x" * 100_000)


def test_an_argv_list_is_quoted():
    assert shell_text(["python", "-c", "print('a b')", 3]) == """python -c 'print('"'"'a b'"'"')' 3"""
    assert shell_text("a && b") == "a && b"


@pytest.mark.parametrize("command", ["", "  \n", [], "a\0b"])
def test_nothing_is_no_command(command):
    with pytest.raises(ConfigError):
        shell_text(command)


def test_on_a_cluster_that_was_there_the_runner_changes_to_the_code():
    _, place = with_workdir()
    spec = RayJobSpec(name="mine", command="python t.py", **place)
    assert runner_text(spec) == "#!/bin/bash\npython t.py\n"
    there = RayJobSpec(name="mine", command="python t.py", cluster_name="big", **place)
    assert runner_text(there).splitlines()[1] == f"cd {place['layout'].code_dir} || exit 1"


def test_two_manifests_of_one_executor_are_equal_and_change_nothing():
    labels = {"team": "a"}
    executor, place = with_workdir(labels=labels, spec_kwargs={"priority": 1}, worker_groups=[KubeRayWorkerGroup("w")])
    first = job(executor, **place)
    assert job(executor, **place) == first
    assert labels == {"team": "a"}


def test_fields_passed_through_are_known_by_the_servers_path():
    executor = KubeRayExecutor(
        spec_kwargs={"scheduler_name": "volcano", "volumes": []},
        container_kwargs={"securityContext": {}},
        worker_groups=[KubeRayWorkerGroup("w", pod_spec={"hostNetwork": True})],
    )
    assert origins(executor, prefix="spec.rayClusterSpec") == {
        "spec.rayClusterSpec.headGroupSpec.template.spec.schedulerName": "spec_kwargs['schedulerName']",
        "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].securityContext": (
            "container_kwargs['securityContext']"
        ),
        "spec.rayClusterSpec.workerGroupSpecs[0].template.spec.schedulerName": "spec_kwargs['schedulerName']",
        "spec.rayClusterSpec.workerGroupSpecs[0].template.spec.containers[0].securityContext": (
            "container_kwargs['securityContext']"
        ),
        "spec.rayClusterSpec.workerGroupSpecs[0].template.spec.hostNetwork": "w.pod_spec['hostNetwork']",
    }


def test_a_group_with_an_impossible_name_is_refused():
    with pytest.raises(InvalidName):
        job(KubeRayExecutor(worker_groups=[KubeRayWorkerGroup("Big_One")]))
