"""The judge itself: it must be able to say no."""

import pytest
from schemas import findings

CRD = "kuberay_v1.7.0_rayclusters.yaml"


def cluster(**container):
    pod = {"spec": {"containers": [{"name": "ray-head", "image": "r", **container}]}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "x"},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": pod}},
    }


def test_a_good_manifest_has_no_findings():
    assert findings(CRD, cluster()) == []


@pytest.mark.parametrize(
    ("container", "kind"),
    [
        ({"nope": 1}, "pruned"),
        ({"tty": "yes"}, "error"),
        ({"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/a"}]}, "duplicate"),
    ],
    ids=["unknown-field", "wrong-type", "mount-path-twice"],
)
def test_a_bad_one_has(container, kind):
    assert [finding[0] for finding in findings(CRD, cluster(**container))] == [kind]
