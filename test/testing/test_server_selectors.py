"""Label and field selectors."""

from __future__ import annotations

import pytest

from nemo_run._kube.resources import EVENT, POD, TRAINJOB, Resource
from nemo_run.testing._errors import ApiError
from nemo_run.testing._selectors import field_test, label_test

LABELLED = {"metadata": {"labels": {"app": "a", "tier": "x", "jobset.sigs.k8s.io/jobset-name": "j"}}}


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("", True),
        ("app=a", True),
        ("app==a", True),
        ("app = a , tier=x", True),
        ("app=b", False),
        ("app!=b", True),
        ("nope!=b", True),
        ("app", True),
        ("nope", False),
        ("!nope", True),
        ("! app", False),
        ("app in (a, b)", True),
        ("app in (b)", False),
        ("app notin (b,c)", True),
        ("app notin (a)", False),
        ("jobset.sigs.k8s.io/jobset-name=j,app in (a),!nope", True),
        ("app=a,tier=y", False),
    ],
)
def test_labels(selector: str, found: bool) -> None:
    assert label_test(selector)(LABELLED) is found


@pytest.mark.parametrize("selector", ["a in (", "=a", "a b", "a in b"])
def test_a_broken_selector_is_refused(selector: str) -> None:
    with pytest.raises(ApiError) as refused:
        label_test(selector)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("kind", "selector", "found"),
    [
        (POD, "metadata.name=p", True),
        (POD, "status.phase!=Failed,spec.nodeName=", True),
        (POD, "status.phase=Failed", False),
        (POD, "spec.hostNetwork=false", True),
        (EVENT, "involvedObject.name=p,type=Warning", True),
        (EVENT, "source=kubelet", True),
        (TRAINJOB, "metadata.name==p,metadata.namespace=default", True),
    ],
)
def test_fields(kind: Resource, selector: str, found: bool) -> None:
    obj = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"hostNetwork": False},
        "status": {"phase": "Running"},
        "involvedObject": {"name": "p"},
        "type": "Warning",
        "source": {"component": "kubelet"},
    }
    assert field_test(kind, selector)(obj) is found


@pytest.mark.parametrize(
    ("kind", "selector"), [(POD, "spec.foo=1"), (TRAINJOB, "status.phase=x"), (POD, "metadata.name")]
)
def test_other_fields_cannot_be_selected_by(kind: Resource, selector: str) -> None:
    with pytest.raises(ApiError) as refused:
        field_test(kind, selector)
    assert refused.value.status == 400
