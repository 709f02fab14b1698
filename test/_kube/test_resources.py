"""Where the objects live in the API."""

from __future__ import annotations

import pytest

from nemo_run._kube.resources import ACCESS_REVIEW, CLUSTER_TRAINING_RUNTIME, POD, TRAINJOB


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (POD.path("ns"), "/api/v1/namespaces/ns/pods"),
        (POD.path("ns", "p", "log"), "/api/v1/namespaces/ns/pods/p/log"),
        (POD.path(), "/api/v1/pods"),
        (TRAINJOB.path("ns", "a/b"), "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/a%2Fb"),
        (CLUSTER_TRAINING_RUNTIME.path("ns", "t"), "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/t"),
        (ACCESS_REVIEW.path(), "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ],
)
def test_path(path, expected):
    assert path == expected


def test_api_version():
    assert (POD.api_version, TRAINJOB.api_version) == ("v1", "trainer.kubeflow.org/v1alpha1")
