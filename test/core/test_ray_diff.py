"""Whether a RayCluster that is there is the one that is wanted."""

import copy

from nemo_run.core.execution._raydiff import HASH_ANNOTATION, differences, spec_hash
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup


def wanted(**fields):
    return KubeRayExecutor(worker_groups=[KubeRayWorkerGroup("w")], **fields).get_cluster_body("c")


def stored(body):
    """Give *body* as a server has it: with defaults and what the operator adds."""
    there = copy.deepcopy(body)
    there["metadata"]["annotations"] = {HASH_ANNOTATION: spec_hash(body)}
    there["spec"]["headGroupSpec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
    there["spec"]["workerGroupSpecs"][0]["numOfHosts"] = 1
    return there


def test_what_the_server_added_is_no_difference():
    assert differences(wanted(), stored(wanted())) == []


def test_each_field_that_differs_is_named_with_both_values():
    assert differences(wanted(image="new", head_cpu="2"), stored(wanted(image="old"))) == [
        "spec.headGroupSpec.template.spec.containers[0].image: 'old' there, 'new' now",
        "spec.headGroupSpec.template.spec.containers[0].resources.requests.cpu: '1' there, '2' now",
        "spec.headGroupSpec.template.spec.containers[0].resources.limits.cpu: '1' there, '2' now",
        "spec.workerGroupSpecs[0].template.spec.containers[0].image: 'old' there, 'new' now",
    ]


def test_what_is_new_and_what_is_asked_for_no_more_differ():
    toleration = {"key": "gpu", "operator": "Exists"}
    assert differences(wanted(tolerations=[toleration]), stored(wanted())) == [
        f"spec.headGroupSpec.template.spec.tolerations: not there, {[toleration]!r} now",
        f"spec.workerGroupSpecs[0].template.spec.tolerations: not there, {[toleration]!r} now",
    ]
    assert differences(wanted(), stored(wanted(tolerations=[toleration]))) == [
        "spec: fields that it was made with are not asked for any more"
    ]


def test_another_number_of_groups_differs():
    alone = KubeRayExecutor(worker_groups=[KubeRayWorkerGroup("w"), KubeRayWorkerGroup("x")]).get_cluster_body("c")
    assert differences(alone, stored(wanted())) == ["spec.workerGroupSpecs: 1 entries there, 2 now"]


def test_what_the_autoscaler_changed_is_no_difference():
    body = wanted(autoscaler_options={})
    there = stored(body)
    there["spec"]["workerGroupSpecs"][0]["replicas"] = 3
    assert differences(body, there) == []
    assert differences(wanted(), {**stored(wanted()), "spec": there["spec"]}) == [
        "spec.workerGroupSpecs[0].replicas: 3 there, 1 now"
    ]


def test_secrets_that_differ_are_told_but_not_shown():
    (first, _) = differences(wanted(env_vars={"HF_TOKEN": "hf_new"}), stored(wanted(env_vars={"HF_TOKEN": "hf_old"})))
    assert first == "spec.headGroupSpec.template.spec.containers[0].env[0].value: '***' there, '***' now"
