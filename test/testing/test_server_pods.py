"""Core Pods: what is refused, warned of and filled in. The contract tests hold the wording against a real server."""

from __future__ import annotations

from typing import Any

import pytest
from serving import pod

from nemo_run._kube.resources import CLAIM, POD
from nemo_run.testing._checks import Validation
from nemo_run.testing._cluster import Cluster
from nemo_run.testing._errors import ApiError
from nemo_run.testing._podrules import quantity
from nemo_run.testing._schemas import schemas
from nemo_run.testing._store import Review

Json = dict[str, Any]


@pytest.fixture(scope="module")
def checked() -> Validation:
    return Validation(schemas("2.3", None))


def container(**fields: Any) -> Json:
    return {"name": "c", "image": "x", **fields}


def refusal(checked: Validation, **spec: Any) -> str:
    """Give what is said of a pod whose spec has these fields, without the leading "Pod … is invalid"."""
    with pytest.raises(ApiError) as refused:
        checked(POD, pod("p", **spec), None, Review())
    assert refused.value.status == 422
    return refused.value.message.removeprefix('Pod "p" is invalid: ')


VOLUMES = [{"name": "v", "emptyDir": {}}]


def mounting(*mounts: Json) -> Json:
    """Give a spec that mounts the volume ``v`` so, unless a mount names another."""
    return {"containers": [container(volumeMounts=[{"name": "v", **mount} for mount in mounts])], "volumes": VOLUMES}


C = "spec.containers[0]"
IMAGE_SPACE = f'{C}.image: Invalid value: " x": must not have leading or trailing whitespace'
DEADLINE = "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"
NAMELESS_MOUNT = (
    f'[{C}.volumeMounts[0].name: Required value, {C}.volumeMounts[0].name: Not found: "", '
    f"{C}.volumeMounts[0].mountPath: Required value]"
)
BOTH_PATHS = f'{C}.volumeMounts[0].subPathExpr: Invalid value: "c": subPathExpr and subPath are mutually exclusive'
PULL_POLICY = f'{C}.imagePullPolicy: Unsupported value: "Now": supported values: "Always", "IfNotPresent", "Never"'
LONG_PORT = f'{C}.ports[0].name: Invalid value: "{"x" * 16}": must be no more than 15 characters'
LARGE_PORT = f"{C}.ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"
PORT_TWICE = f'{C}.ports[1].name: Duplicate value: "x"'
ENV_NAME = (
    f'{C}.env[0].name: Invalid value: "A=B": a valid environment variable name must consist only of printable ASCII '
    "characters other than '=' (e.g. 'my_ENV~', regex used for validation is '[ -<>-~]+')"
)
NO_SOURCE = (
    f'{C}.env[0].valueFrom: Invalid value: "": '
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
)
ODD_RESOURCE = f'{C}.resources.limits[gpu]: Invalid value: "gpu": must be a standard resource for containers'
TWO_GPUS = {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}
UNEQUAL = f'{C}.resources.requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2'


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": [container(image=" x")]}, IMAGE_SPACE),
        ({"volumes": [{"emptyDir": {}}]}, "spec.volumes[0].name: Required value"),
        ({"activeDeadlineSeconds": 0}, DEADLINE),
        (mounting({"name": ""}), NAMELESS_MOUNT),
        (mounting({"mountPath": "/a", "subPath": "b", "subPathExpr": "c"}), BOTH_PATHS),
        ({"containers": [container(imagePullPolicy="Now")]}, PULL_POLICY),
        ({"containers": [container(ports=[{"name": "x" * 16, "containerPort": 1}])]}, LONG_PORT),
        ({"containers": [container(ports=[{"containerPort": 70000}])]}, LARGE_PORT),
        ({"containers": [container(ports=[{"name": "x", "containerPort": n} for n in (1, 2)])]}, PORT_TWICE),
        ({"containers": [container(env=[{"name": "A=B"}])]}, ENV_NAME),
        ({"containers": [container(env=[{"name": "A", "valueFrom": {}}])]}, NO_SOURCE),
        ({"containers": [container(resources={"limits": {"gpu": 1}})]}, ODD_RESOURCE),
        ({"containers": [container(resources=TWO_GPUS)]}, UNEQUAL),
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value"),
        ({"containers": [{"image": "x"}]}, "spec.containers[0].name: Required value"),
        ({"containers": [container(), container()]}, 'spec.containers[1].name: Duplicate value: "c"'),
        (
            {"containers": [container()], "initContainers": [container()]},
            'spec.initContainers[0].name: Duplicate value: "c"',
        ),
        (
            mounting({"name": "w", "mountPath": "/a"}),
            'spec.containers[0].volumeMounts[0].name: Not found: "w"',
        ),
        (
            mounting({"mountPath": "/a"}, {"mountPath": "/a"}),
            'spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique',
        ),
        (
            mounting({"mountPath": "/a", "subPath": "/b"}),
            'spec.containers[0].volumeMounts[0].subPath: Invalid value: "/b": must be a relative path',
        ),
        (
            mounting({"mountPath": "/a", "subPath": "b/../c"}),
            "spec.containers[0].volumeMounts[0].subPath: Invalid value: \"b/../c\": must not contain '..'",
        ),
        ({"volumes": VOLUMES * 2}, 'spec.volumes[1].name: Duplicate value: "v"'),
        (
            {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": ""}}]},
            "spec.volumes[0].persistentVolumeClaim.claimName: Required value",
        ),
        (
            {"restartPolicy": "Sometimes"},
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"',
        ),
        (
            {"containers": [container(env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {}}}])]},
            'spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
        ),
        ({"containers": [container(env=[{"value": "1"}])]}, "spec.containers[0].env[0].name: Required value"),
        (
            {"containers": [container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})]},
            'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"containers": [container(resources={"requests": {"nvidia.com/gpu": 1}})]},
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {"containers": [container(ports=[{"containerPort": 0}])]},
            "spec.containers[0].ports[0].containerPort: Required value",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(checked: Validation, spec: Json, message: str) -> None:
    assert refusal(checked, **spec) == message


@pytest.mark.parametrize(
    "spec",
    [
        mounting({"mountPath": "/a"}, {"mountPath": "/a/"}),
        mounting({"mountPath": "/a"}, {"mountPath": "/b"}),
        {"containers": [container(env=[{"name": "BAD-NAME.x", "value": ""}])]},
        {"containers": [container(resources={"limits": {"nvidia.com/gpu": "8", "cpu": 1}})]},
        {"volumes": [{"name": "scratch"}]},
    ],
    ids=["/a and /a/ differ", "one volume at two paths", "odd env names", "numbers as quantities", "untyped volume"],
)
def test_what_is_accepted(checked: Validation, spec: Json) -> None:
    checked(POD, pod("p", **spec), None, Review(strict=True))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"containers": {}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"nodeSelector": {"a": 1}},
            "json: cannot unmarshal number into Go struct field NodeSelector.spec.nodeSelector.a of type string",
        ),
        (
            {"hostNetwork": "yes"},
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
    ],
)
def test_wrong_types_are_refused_by_the_decoder(checked: Validation, spec: Json, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        checked(POD, pod("p", **spec), None, Review())
    assert refused.value.message == f'Pod in version "v1" cannot be handled as a Pod: {message}'


def test_nulls_stand_for_nothing(checked: Validation) -> None:
    given = pod("p", volumes=None, affinity=None, containers=[container(env=None, command=None)])
    given["metadata"]["annotations"] = None
    made = checked(POD, given, None, Review(strict=True))
    assert "affinity" not in made["spec"]
    assert "env" not in made["spec"]["containers"][0]


def test_unknown_fields_are_warned_of_or_refused(checked: Validation) -> None:
    given = pod("p", contaners=[], containers=[container(imagePulPolicy="x")])
    given["metadata"]["lables"] = {}
    review = Review()
    made = checked(POD, given, None, review)
    assert "contaners" not in made["spec"]
    told = ["metadata.lables", "spec.containers[0].imagePulPolicy", "spec.contaners"]
    assert review.warnings == [f'unknown field "{path}"' for path in told]
    with pytest.raises(ApiError, match="strict decoding error") as refused:
        checked(POD, given, None, Review(strict=True))
    assert refused.value.status == 400
    silent = Review(silent=True)
    checked(POD, given, None, silent)
    assert silent.warnings == []


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x:1", "IfNotPresent"),
        ("host:5000/x", "Always"),
        ("x@sha256:ab", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(checked: Validation, image: str, policy: str) -> None:
    made = checked(POD, pod("p", containers=[container(image=image)]), None, Review())
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"limits": {"nvidia.com/gpu": 1}}, "BestEffort"),
        ({"requests": {"cpu": 1}}, "Burstable"),
        ({"limits": {"cpu": 1, "memory": "1Gi"}}, "Guaranteed"),
    ],
)
def test_quality_of_service(checked: Validation, resources: Json, quality: str) -> None:
    made = checked(POD, pod("p", containers=[container(resources=resources)]), None, Review())
    assert made["status"]["qosClass"] == quality


def test_a_toleration_for_everything_needs_no_others(checked: Validation) -> None:
    made = checked(POD, pod("p", tolerations=[{"operator": "Exists"}]), None, Review())
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        ({"a": "x y"}, "a valid label must be"),
        ({"a": "x" * 64}, "must be no more than 63 characters"),
        ({"a/b/c": "x"}, "prefix part"),
        ({"a/": "x"}, "name part must be non-empty"),
    ],
)
def test_labels_are_checked(checked: Validation, labels: Json, fault: str) -> None:
    given = pod("p")
    given["metadata"]["labels"] = labels
    with pytest.raises(ApiError, match=fault):
        checked(POD, given, None, Review())


@pytest.mark.parametrize(
    ("text", "number"), [("1", 1), ("500m", 0.5), ("1Ki", 1024), ("2k", 2000), ("1e3", 1000), ("1E", 10**18), (4, 4)]
)
def test_quantities(text: str | int, number: float) -> None:
    assert float(quantity(text)) == number


def test_a_claim_is_bound_at_once() -> None:
    store = Cluster().store
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec}
    assert store.create(CLAIM, "default", body)["status"]["phase"] == "Bound"
