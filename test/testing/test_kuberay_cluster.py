"""RayClusters as KubeRay brings them up, changes them and takes them down."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rays import Rays, ray_node, raycluster, spec

from nemo_run._kube.resources import RAYCLUSTER
from nemo_run.testing import LocalKube
from nemo_run.testing.__main__ import main
from nemo_run.testing._kinds import SERVICE

Json = dict[str, Any]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rays]:
    with ray_node(tmp_path_factory.mktemp("node")) as rays:
        yield rays


@pytest.fixture
def rays(shared: Rays) -> Iterator[Rays]:
    yield shared
    shared.clean()


def labels(cluster: str, kind: str, group: str, **more: str) -> Json:
    return {
        "ray.io/cluster": cluster,
        "ray.io/node-type": kind,
        "ray.io/group": group,
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{cluster}-{kind}",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
        **more,
    }


def test_a_cluster_comes_up_and_says_so(rays):
    cluster = rays.up("c", spec(workers=2))
    (head,) = rays.pods("c")
    status = cluster["status"]
    assert re.fullmatch("c-head-[a-z0-9]{5}", head["metadata"]["name"])
    assert status["head"] == {
        "serviceName": "c-head-svc",
        "podName": head["metadata"]["name"],
        "podIP": "127.0.0.1",
        "serviceIP": "127.0.0.1",
    }
    assert [status[f"{key}WorkerReplicas"] for key in ("ready", "available", "desired", "min", "max")] == [
        2,
        2,
        2,
        0,
        9,
    ]
    assert rays.conditions("c") == {
        "HeadPodReady": ("True", "HeadPodRunningAndReady"),
        "RayClusterProvisioned": ("True", "AllPodRunningAndReadyFirstTime"),
    }
    assert {port["name"]: port["port"] for port in rays.node.get("c-head-svc", SERVICE)["spec"]["ports"]} == {
        "client": 10001,
        "gcs-server": 6379,
        "dashboard": 8265,
        "metrics": 8080,
        "serve": 8000,
    }


def test_pods_are_named_and_labelled_as_kuberay_does(rays):
    body = spec(workers=1)
    mine = {"labels": {"team": "a", "ray.io/cluster": "other"}, "annotations": {"note": "x"}}
    for group in (body["headGroupSpec"], body["workerGroupSpecs"][0]):
        group["template"]["metadata"] = mine
    name = "a-cluster-with-a-name-that-is-as-long-as-it-may-be-12"
    assert len(name) == 53
    rays.up(name, body)
    (head,), (worker,) = rays.pods(name), rays.pods(name, "worker")
    assert re.fullmatch(re.escape(name[:50]) + "-head-[a-z0-9]{5}", head["metadata"]["name"])
    assert re.fullmatch(re.escape(name[:50]) + "-worker-[a-z0-9]{5}", worker["metadata"]["name"])
    assert head["metadata"]["labels"] == labels(name, "head", "headgroup", team="a")
    index = {"ray.io/worker-group-replica-index": "0"}
    assert worker["metadata"]["labels"] == labels(name, "worker", "w", team="a", **index)
    assert [pod["metadata"]["annotations"]["note"] for pod in (head, worker)] == ["x", "x"]


def test_a_command_comes_before_ray_in_the_same_shell(rays):
    """What it exports reaches Ray; one that ends well without ending the shell does not keep Ray from starting."""
    command = {"command": ["export", "WHO=me", "&&"], "args": ["touch", "/work/before"]}
    rays.up("c", spec(**command, resources={"limits": {"cpu": "1500m", "memory": "1Gi"}}))
    (head,) = rays.pods("c")
    container = head["spec"]["containers"][0]
    start = (
        "ray start --head  --dashboard-host=0.0.0.0  --metrics-export-port=8080  --block "
        " --dashboard-agent-listen-port=52365  --num-cpus=2  --memory=1073741824 "
    )
    assert container["command"] == ["/bin/bash", "-c", "--"]
    assert container["args"] == [f" export  WHO=me  &&  touch  /work/before  && ulimit -n 65536; {start}"]
    assert {"name": "KUBERAY_GEN_RAY_START_CMD", "value": start} in container["env"]
    script = "tr '\\0' '\\n' < /proc/1/environ | grep ^WHO="
    assert rays.node.exec(head["metadata"]["name"], "bash", "-c", script)[1] == b"WHO=me\n"
    assert (rays.node.claim / "before").exists()


def test_a_command_that_ends_the_shell_keeps_the_cluster_from_being_ready(rays):
    rays.node.create(RAYCLUSTER, raycluster("c", spec(command=["eval", "'false'", "||", "exit", "1"])))
    rays.node.until(
        lambda: rays.conditions("c").get("HeadPodReady"), lambda seen: seen == ("False", "CrashLoopBackOff")
    )
    assert "state" not in rays.node.get("c", RAYCLUSTER)["status"]


def test_workers_reach_the_head_by_its_name(rays):
    rays.up("c", spec(workers=1))
    (worker,) = rays.pods("c", "worker")
    script = 'ray health-check --address "$RAY_ADDRESS" && echo "$FQ_RAY_IP $RAY_CLUSTER_NAME $PWD"'
    assert rays.node.exec(worker["metadata"]["name"], "bash", "-c", script)[:2] == (
        0,
        b"c-head-svc.default.svc.cluster.local c /work\n",
    )
    assert [each["name"] for each in worker["spec"]["initContainers"]] == ["wait-gcs-ready"]


@pytest.mark.parametrize(
    ("name", "change", "event"),
    [
        ("c" * 54, {}, ("InvalidRayClusterMetadata", "RayCluster name should be no more than 53 characters")),
        ("1c", {}, ("InvalidRayClusterMetadata", "RayCluster name should be a valid DNS1035 label")),
        ("c", {"minReplicas": 3, "maxReplicas": 2}, ("InvalidRayClusterSpec", "minReplicas 3 greater than")),
        ("c", {"rayStartParams": {"labels": "a=b"}}, ("InvalidRayClusterSpec", "rayStartParams['labels']")),
    ],
    ids=["too long", "leading digit", "min over max", "labels"],
)
def test_an_invalid_cluster_gets_an_event_and_no_status(rays, name, change, event):
    rays.node.create(RAYCLUSTER, raycluster(name, spec(group=change)))
    ((reason, message),) = rays.node.until(lambda: rays.node.events(name, kind="RayCluster"))
    assert (reason, event[1] in message) == (event[0], True)
    assert "status" not in rays.node.get(name, RAYCLUSTER)
    assert rays.pods(name) == []


def test_a_pod_that_the_server_refuses_is_a_replica_failure(rays):
    body = spec()
    body["headGroupSpec"]["template"]["spec"]["volumes"] = []
    rays.node.create(RAYCLUSTER, raycluster("c", body))
    rays.node.until(lambda: rays.conditions("c").get("ReplicaFailure"))
    assert rays.conditions("c") == {
        "HeadPodReady": ("False", "HeadPodNotFound"),
        "RayClusterProvisioned": ("False", "RayClusterPodsProvisioning"),
        "ReplicaFailure": ("True", "FailedCreateHeadPod"),
    }
    ((reason, message),) = rays.node.events("c", kind="RayCluster")
    assert reason == "FailedToCreateHeadPod"
    assert 'spec.containers[0].volumeMounts[0].name: Not found: "work"' in message


def test_workers_come_and_go_with_the_number_wanted(rays):
    rays.up("c", spec(workers=1, group={"numOfHosts": 2}))
    group = rays.node.get("c", RAYCLUSTER)["spec"]["workerGroupSpecs"][0]
    rays.change(RAYCLUSTER, "c", {"workerGroupSpecs": [{**group, "replicas": 2}]})
    rays.node.until(lambda: rays.node.get("c", RAYCLUSTER)["status"]["readyWorkerReplicas"], lambda seen: seen == 4)
    keys = ("ray.io/worker-group-replica-index", "ray.io/replica-host-index")
    slots = sorted(tuple(pod["metadata"]["labels"][key] for key in keys) for pod in rays.pods("c", "worker"))
    assert slots == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]
    rays.change(RAYCLUSTER, "c", {"workerGroupSpecs": [{**group, "replicas": 0}]})
    rays.node.until(lambda: rays.pods("c", "worker"), lambda pods: pods == [])
    assert rays.cluster("c", "ready")["status"]["desiredWorkerReplicas"] == 0


def test_a_cluster_is_suspended_and_resumed(rays):
    rays.up("c", spec(workers=1))
    rays.change(RAYCLUSTER, "c", {"suspend": True})
    rays.cluster("c", "suspended")
    assert rays.conditions("c") == {
        "HeadPodReady": ("False", "HeadPodNotFound"),
        "RayClusterSuspending": ("False", "RayClusterSuspending"),
        "RayClusterSuspended": ("True", "RayClusterSuspended"),
    }
    rays.change(RAYCLUSTER, "c", {"suspend": False})
    rays.cluster("c", "ready")
    assert rays.conditions("c")["RayClusterSuspended"] == ("False", "RayClusterSuspended")


def test_a_head_that_is_deleted_is_replaced(rays):
    before = rays.up("c")["status"]["head"]["podName"]
    rays.node.delete(before)
    rays.node.until(
        lambda: rays.node.get("c", RAYCLUSTER)["status"], lambda seen: seen["head"].get("podName", before) != before
    )
    rays.node.until(lambda: rays.conditions("c")["HeadPodReady"][0], lambda seen: seen == "True")


def test_what_a_cluster_owns_goes_with_it(rays):
    rays.up("c", spec(workers=1))
    rays.node.delete("c", RAYCLUSTER)
    rays.node.until(rays.node.list, lambda pods: pods == [])
    assert rays.node.list(SERVICE) == []


def test_a_head_that_lists_ports_has_no_others(rays):
    rays.up("c", spec(ports=[{"name": "gcs-server", "containerPort": 6379}]))
    assert rays.node.get("c", RAYCLUSTER)["status"]["endpoints"] == {"gcs-server": "6379", "metrics": "8080"}


def test_the_autoscaler_is_a_container_of_the_head(rays):
    rays.up("c", {**spec(), "enableInTreeAutoscaling": True})
    (head,) = rays.pods("c")
    assert [each["name"] for each in head["spec"]["containers"]] == ["ray-head", "autoscaler"]
    assert head["spec"]["serviceAccountName"] == "c"


@pytest.mark.parametrize("version", ["1.3", "1.5"])
def test_earlier_releases(tmp_path, version):
    """1.3 takes names of any length; replica indices are 1.6's."""
    with ray_node(tmp_path, version) as rays:
        name = "c" * 54 if version == "1.3" else "c"
        rays.up(name, spec(workers=1))
        (worker,) = rays.pods(name, "worker")
        assert worker["metadata"]["labels"] == labels(name, "worker", "w")


def test_localkube_plays_it_where_it_is_asked_to():
    with LocalKube(kuberay="1.5") as kube:
        kube.do(lambda store: store.create(RAYCLUSTER, "default", raycluster("c", spec_without_volumes())))
        deadline = time.monotonic() + 60
        while kube.do(lambda store: store.get(RAYCLUSTER, "default", "c")).get("status", {}).get("state") != "ready":
            assert time.monotonic() < deadline
            time.sleep(0.05)


def spec_without_volumes() -> Json:
    container = {"name": "ray-head", "image": "any"}
    return {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}}}


LIST = """
from nemo_run._kube.api import connect
from nemo_run._kube.resources import RAYJOB
from nemo_run.exceptions import Rejected
try:
    connect().list(RAYJOB, "default")
except Rejected:
    raise SystemExit(7)
"""


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--kuberay", "none"], 7)], ids=["default", "none"])
def test_the_command_serves_it_unless_told_otherwise(tmp_path, options, code):
    (tmp_path / "script.py").write_text(LIST)
    assert main([*options, str(tmp_path / "script.py")]) == code
