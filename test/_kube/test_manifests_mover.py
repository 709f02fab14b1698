"""The copy pod's manifest."""

import copy
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import PurePosixPath

import pytest

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.manifests.mover import MOVER_CONTAINER, mover_pod
from nemo_run._kube.manifests.pods import PodShape
from nemo_run.exceptions import ConfigError

LAYOUT = WorkdirLayout(
    {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}},
    {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a", "readOnly": True},
    PurePosixPath("/nemo_run/alice/code"),
)
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "train-mover",
        "namespace": "ml",
        "labels": {"sidecar.istio.io/inject": "false"},
        "annotations": {"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"},
    },
    "spec": {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "activeDeadlineSeconds": 4200,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": "mover",
                "image": "alpine:3.19",
                "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 4260 & wait"],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "64Mi"},
                    "limits": {"cpu": "1", "memory": "256Mi"},
                },
                "volumeMounts": [{"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}],
            }
        ],
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
    },
}


def pod(**arguments):
    return mover_pod("train-mover", namespace="ml", image="alpine:3.19", layout=LAYOUT, **arguments)


def spec(**arguments):
    return pod(**arguments)["spec"]


def changed(**fields):
    """Give the plain pod's spec with *fields* changed."""
    return {**POD["spec"], **fields}


def container(**fields):
    return {**POD["spec"]["containers"][0], **fields}


def test_it_mounts_what_the_workload_mounts_and_may_write():
    assert pod() == POD


def test_labels_are_added_and_no_sidecar_is_let_in():
    made = pod(
        labels={"nemo-run/user": "alice", "sidecar.istio.io/inject": "true"},
        annotations={"a": "b", "linkerd.io/inject": "enabled"},
    )
    assert made["metadata"] == {
        "name": "train-mover",
        "namespace": "ml",
        "labels": {"nemo-run/user": "alice", "sidecar.istio.io/inject": "false"},
        "annotations": {"a": "b", "sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled"},
    }


def test_it_runs_where_and_as_whom_the_workload_does():
    shape = PodShape(
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        affinity={"podAffinity": {}, "nodeAffinity": {"x": 1}},
        node_selector={"zone": "a"},
        image_pull_secrets=["registry"],
        service_account="trainer",
        security_context={"runAsUser": 1000, "fsGroup": 1000},
    )
    assert spec(shape=shape) == changed(
        tolerations=[{"key": "gpu", "operator": "Exists"}],
        affinity={"podAffinity": {}, "nodeAffinity": {"x": 1}},
        nodeSelector={"zone": "a"},
        imagePullSecrets=[{"name": "registry"}],
        serviceAccountName="trainer",
        securityContext={"runAsUser": 1000, "fsGroup": 1000},
    )


@pytest.mark.parametrize(
    ("overrides", "fields"),
    [
        pytest.param({"securityContext": {"fsGroup": 7}}, {"securityContext": {"fsGroup": 7}}, id="added"),
        pytest.param({"terminationGracePeriodSeconds": 1}, {"terminationGracePeriodSeconds": 1}, id="replaced"),
        pytest.param(
            {"containers": [{"name": "mover", "resources": {"limits": {"cpu": None, "memory": "1Gi"}}}]},
            {
                "containers": [
                    container(resources={"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}})
                ]
            },
            id="container-by-name",
        ),
        pytest.param(
            {"volumes": [{"name": "tmp", "emptyDir": {}}]},
            {"volumes": [*POD["spec"]["volumes"], {"name": "tmp", "emptyDir": {}}]},
            id="volume-joins",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 60},
            {
                "activeDeadlineSeconds": 60,
                "containers": [container(command=["sh", "-c", "trap 'exit 0' TERM; sleep 120 & wait"])],
            },
            id="deadline",
        ),
        pytest.param(
            {"containers": [{"name": "mover", "command": ["sleep", "9"]}]},
            {"containers": [container(command=["sleep", "9"])]},
            id="command",
        ),
    ],
)
def test_overrides_are_merged_over_its_spec(overrides, fields):
    before = copy.deepcopy(overrides)
    assert spec(overrides=overrides) == changed(**fields)
    assert overrides == before


def test_none_removes():
    made = spec(overrides={"activeDeadlineSeconds": None, "enableServiceLinks": None})
    assert "activeDeadlineSeconds" not in made
    assert "enableServiceLinks" not in made
    assert made["containers"][0]["command"][-1] == "trap 'exit 0' TERM; sleep 604860 & wait"


def test_the_container_cannot_be_removed():
    with pytest.raises(ConfigError, match="cannot be removed"):
        pod(overrides={"containers": None})


RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("workload", "user"),
    [({}, 1000), ({"runAsUser": 0, "fsGroup": 5}, 1000), ({"runAsUser": 4711}, 4711)],
    ids=["nobody", "root", "somebody"],
)
def test_restricted_satisfies_pod_security(workload, user):
    """Every control of Kubernetes' Pod Security Standards, level "restricted"."""
    assert spec(restricted=True, shape=PodShape(security_context=workload)) == changed(
        securityContext={
            **workload,
            "runAsNonRoot": True,
            "runAsUser": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        containers=[container(securityContext=RESTRICTED)],
    )


def test_restricted_can_be_overridden():
    made = spec(restricted=True, overrides={"securityContext": {"runAsUser": 42, "seccompProfile": None}})
    assert made["securityContext"] == {"runAsNonRoot": True, "runAsUser": 42}


def test_building_it_twice_gives_equal_pods_that_share_nothing():
    first, second = pod(), pod()
    first["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "9"
    first["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "other"
    assert second == pod() == POD


def test_its_command_ends_at_once_when_it_is_told_to():
    """A plain ``sleep`` as PID 1 ignores TERM for the whole grace period."""
    shell, flag, script = pod()["spec"]["containers"][0]["command"]
    script = script.replace("sleep", "echo trapped; sleep")
    process = subprocess.Popen([shell, flag, script], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout.readline() == b"trapped\n"
        process.terminate()
        assert process.wait(timeout=120) == 0
    finally:
        # The kernel ends a pod's other processes with its first; here the sleep has to be ended, if it was started.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()


def test_exec_and_logs_know_the_container_by_name():
    assert pod()["spec"]["containers"][0]["name"] == MOVER_CONTAINER
