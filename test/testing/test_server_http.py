"""The HTTP side: who may ask, lists and watches, patches, deletion, discovery."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from serving import MERGE, PODS, TRAINJOBS, Answer, Serving, pod, serving, trainjob

Json = dict[str, Any]

RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get"]},
]


@pytest.fixture
def server() -> Iterator[Serving]:
    with serving() as running:
        yield running


def refused(answer: Answer, status: int, message: str) -> None:
    """Check that *answer* is a Status that refuses."""
    body = answer.body
    assert (answer.status, body["kind"], body["code"], body["message"]) == (status, "Status", status, message)


@pytest.mark.parametrize("path", ["/healthz", "/version"])
def test_some_answers_are_for_everyone(server: Serving, path: str) -> None:
    assert server.ask("GET", path, token=None).status == 200


@pytest.mark.parametrize("path", ["/api", "/apis", "/openapi/v3", PODS])
def test_strangers_get_nothing_else(server: Serving, path: str) -> None:
    assert server.ask("GET", path, token=None).status == 403
    assert server.ask("GET", path, token="wrong").status == 401


def test_the_secret_url_stands_for_the_token(server: Serving) -> None:
    """Kubectl sends no token over plain HTTP."""
    secret = server.cluster.server.url.removeprefix(f"http://{server.address}")
    assert server.ask("GET", secret + PODS, token=None).status == 200
    assert server.ask("GET", secret + PODS, token="wrong").status == 401
    assert server.cluster.server.requests[0].path == PODS


def test_rules_limit_the_token(server: Serving) -> None:
    server.cluster.server.rules = RULES
    assert server.ask("POST", PODS, pod("p")).status == 201
    refused(
        server.ask("GET", PODS),
        403,
        'pods is forbidden: User "localkube" cannot list resource "pods" in API group "" in the namespace "default"',
    )
    refused(
        server.ask("POST", f"{PODS}/p/exec", command="ls"),
        403,
        'pods "p" is forbidden: User "localkube" cannot create resource "pods/exec" in API group "" '
        'in the namespace "default"',
    )
    refused(
        server.ask("GET", f"{TRAINJOBS}/j"),
        403,
        'trainjobs.trainer.kubeflow.org "j" is forbidden: User "localkube" cannot get resource "trainjobs" '
        'in API group "trainer.kubeflow.org" in the namespace "default"',
    )
    assert server.ask("GET", "/api/v1/namespaces/default/secrets/mine").status == 404
    assert server.ask("GET", "/api/v1/namespaces/default/secrets/other").status == 403


@pytest.mark.parametrize(
    ("rules", "attributes", "allowed"),
    [
        (None, {"verb": "get", "resource": "pods"}, True),
        (RULES, {"verb": "get", "resource": "pods"}, True),
        (RULES, {"verb": "get", "resource": "pods", "subresource": "exec"}, True),
        (RULES, {"verb": "create", "resource": "pods", "subresource": "exec"}, False),
        (RULES, {"verb": "get", "resource": "pods", "group": "x"}, False),
        (RULES, {"verb": "get", "resource": "secrets"}, False),
        ([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}], {"verb": "x", "resource": "y/z"}, True),
    ],
)
def test_an_access_review_says_what_the_rules_grant(
    server: Serving, rules: list[Json] | None, attributes: Json, allowed: bool
) -> None:
    server.cluster.server.rules = rules
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = server.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert (answer.status, answer.body["status"]["allowed"]) == (201, allowed)


def test_lists_come_in_pages(server: Serving) -> None:
    for name in "abcde":
        server.ask("POST", PODS, pod(name))
    names, token = [], ""
    while True:
        page = server.ask("GET", PODS, limit=2, **({"continue": token} if token else {})).body
        names.append([item["metadata"]["name"] for item in page["items"]])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    assert names == [["a", "b"], ["c", "d"], ["e"]]


def test_pages_of_all_namespaces_go_on_where_they_stopped(server: Serving) -> None:
    for namespace in ("default", "kube-system"):
        server.ask("POST", f"/api/v1/namespaces/{namespace}/pods", pod("p"))
    first = server.ask("GET", "/api/v1/pods", limit=1).body
    second = server.ask("GET", "/api/v1/pods", limit=1, **{"continue": first["metadata"]["continue"]}).body
    spaces = [page["items"][0]["metadata"]["namespace"] for page in (first, second)]
    assert spaces == ["default", "kube-system"]


def test_a_page_of_a_forgotten_past_is_410(server: Serving) -> None:
    for name in "ab":
        server.ask("POST", PODS, pod(name))
    token = server.ask("GET", PODS, limit=1).body["metadata"]["continue"]
    server.ask("POST", PODS, pod("c"))
    server.do(lambda store: store.changes.compact())
    answer = server.ask("GET", PODS, limit=1, **{"continue": token})
    assert (answer.status, answer.body["reason"]) == (410, "Expired")


def test_a_watch_goes_on_from_a_list(server: Serving) -> None:
    version = server.ask("GET", PODS).body["metadata"]["resourceVersion"]
    server.ask("POST", PODS, pod("p"))
    with server.watching(PODS, resourceVersion=version) as events:
        assert [next(events)["type"]] == ["ADDED"]
        server.ask("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, content_type=MERGE)
        server.ask("DELETE", f"{PODS}/p")
        seen = [next(events) for _ in range(3)]
    assert [event["type"] for event in seen] == ["MODIFIED", "MODIFIED", "DELETED"]
    assert seen[0]["object"]["status"]["phase"] == "Running"


def test_a_watch_ends_when_it_was_asked_to(server: Serving) -> None:
    server.ask("POST", PODS, pod("p"))
    with server.watching(PODS, timeoutSeconds=1) as events:
        assert [event["object"]["metadata"]["name"] for event in events] == ["p"]


def test_a_watch_of_a_forgotten_past_is_one_error(server: Serving) -> None:
    version = server.ask("GET", PODS).body["metadata"]["resourceVersion"]
    server.ask("POST", PODS, pod("p"))
    server.do(lambda store: store.changes.compact())
    with server.watching(PODS, resourceVersion=version) as events:
        [event] = events
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_initial_events_end_with_a_bookmark(server: Serving) -> None:
    server.ask("POST", PODS, pod("p"))
    with server.watching(PODS, sendInitialEvents="true", allowWatchBookmarks="true", timeoutSeconds=1) as events:
        seen = list(events)
    assert [event["type"] for event in seen] == ["ADDED", "BOOKMARK"]
    assert seen[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_list_of_the_future_is_not_there_yet(server: Serving) -> None:
    assert server.ask("GET", PODS, resourceVersion=10**6).status == 504


def test_a_watch_of_nonsense_is_refused(server: Serving) -> None:
    answer = server.ask("GET", PODS, watch=1, resourceVersion="abc")
    refused(answer, 400, 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax')


def test_warnings_are_headers(server: Serving) -> None:
    answer = server.ask("POST", TRAINJOBS, trainjob("j", podTemplateOverrides=[], labels={}))
    assert answer.status == 201
    assert answer.headers.get_all("Warning") == [
        '299 - "unknown field \\"spec.labels\\""',
        '299 - "unknown field \\"spec.podTemplateOverrides\\""',
    ]


def test_a_strict_dry_run_checks_and_keeps_nothing(server: Serving) -> None:
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    assert server.ask("POST", TRAINJOBS, trainjob("j"), **query).status == 201
    assert server.ask("POST", TRAINJOBS, trainjob("j", nope=1), **query).status == 400
    assert server.ask("GET", TRAINJOBS).body["items"] == []
    assert server.ask("POST", TRAINJOBS, trainjob("j"), dryRun="Some").status == 422


def test_each_kind_of_patch(server: Serving) -> None:
    server.ask("POST", TRAINJOBS, trainjob("j"))
    path = f"{TRAINJOBS}/j"
    steps: list[tuple[str, Any]] = [
        (MERGE, {"metadata": {"labels": {"a": "1"}}}),
        ("application/json-patch+json", [{"op": "add", "path": "/metadata/labels/b~1c", "value": "2"}]),
        ("application/json-patch+json", [{"op": "replace", "path": "/metadata/labels/a", "value": "3"}]),
        ("application/apply-patch+yaml", {"metadata": {"labels": {"d": "4"}}}),
    ]
    for content_type, body in steps:
        assert server.ask("PATCH", path, body, content_type=content_type).status == 200
    labels = server.ask("GET", path).body["metadata"]["labels"]
    assert labels == {"a": "3", "b/c": "2", "d": "4"}
    strategic = "application/strategic-merge-patch+json"
    assert server.ask("PATCH", path, {}, content_type=strategic).status == 415
    failing = [{"op": "test", "path": "/metadata/labels/a", "value": "1"}]
    assert server.ask("PATCH", path, failing, content_type="application/json-patch+json").status == 400
    server.ask("POST", PODS, pod("p"))
    patched = server.ask("PATCH", f"{PODS}/p", {"metadata": {"labels": {"x": "1"}}}, content_type=strategic)
    assert patched.body["metadata"]["labels"] == {"app": "a", "x": "1"}


def test_json_patches_edit_lists(server: Serving) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": ["a/b", "c/d"]}}
    server.ask("POST", path, body)
    patch = [
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "e/f"},
    ]
    answer = server.ask("PATCH", f"{path}/c", patch, content_type="application/json-patch+json")
    assert answer.body["metadata"]["finalizers"] == ["c/d", "e/f"]


def test_apply_creates_what_is_not_there(server: Serving) -> None:
    path = "/api/v1/namespaces/default/configmaps/c"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    assert server.ask("PATCH", path, body, content_type="application/apply-patch+yaml").status == 201
    assert server.ask("PATCH", path, body, content_type="application/apply-patch+yaml").status == 200
    assert server.ask("GET", path).body["data"] == {"a": "1"}


def test_delete_options_come_in_body_or_query(server: Serving) -> None:
    for name in "ab":
        made = pod(name, nodeName="n")
        server.ask("POST", PODS, made)
    body = {"gracePeriodSeconds": 3, "propagationPolicy": "Background"}
    first = server.ask("DELETE", f"{PODS}/a", body).body["metadata"]
    second = server.ask("DELETE", f"{PODS}/b", gracePeriodSeconds=4).body["metadata"]
    assert (first["deletionGracePeriodSeconds"], second["deletionGracePeriodSeconds"]) == (3, 4)


def test_a_collection_is_deleted_by_label(server: Serving) -> None:
    for name in "ab":
        server.ask("POST", PODS, pod(name))
    server.ask("PATCH", f"{PODS}/a", {"metadata": {"labels": {"app": "b"}}}, content_type=MERGE)
    gone = server.ask("DELETE", PODS, labelSelector="app=b").body
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a"]
    assert [item["metadata"]["name"] for item in server.ask("GET", PODS).body["items"]] == ["b"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "json: cannot unmarshal"),
        ({"kind": "Secret", "apiVersion": "v1"}, "cannot be handled as a Pod"),
    ],
)
def test_a_body_of_another_kind_is_refused(server: Serving, body: Any, message: str) -> None:
    answer = server.ask("POST", PODS, body)
    assert answer.status == 400
    assert message in answer.body["message"]


def test_a_put_must_name_its_object(server: Serving) -> None:
    server.ask("POST", PODS, pod("p"))
    answer = server.ask("PUT", f"{PODS}/p", pod("q"))
    refused(answer, 400, "the name of the object (q) does not match the name on the URL (p)")


def test_an_object_that_is_too_large_is_refused(server: Serving) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "x" * (4 << 20)}}
    assert server.ask("POST", "/api/v1/namespaces/default/configmaps", body).status == 413


@pytest.mark.parametrize("release", ["2.0", "2.1", "2.2", "2.3"])
def test_openapi_tells_the_dialect(release: str) -> None:
    with serving(trainer=release) as server:
        document = server.ask("GET", "/openapi/v3/apis/trainer.kubeflow.org/v1alpha1").body
    schema = document["components"]["schemas"]["org.kubeflow.trainer.v1alpha1.TrainJob"]
    fields = {"podSpecOverrides", "podTemplateOverrides", "runtimePatches"} & set(
        schema["properties"]["spec"]["properties"]
    )
    assert fields == {{"2.0": "podSpecOverrides", "2.1": "podTemplateOverrides"}.get(release, "runtimePatches")}
    operation = document["paths"]["/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}"][
        "patch"
    ]
    assert "fieldValidation" in [parameter["name"] for parameter in operation["parameters"]]


def test_discovery_names_every_kind(server: Serving) -> None:
    index = server.ask("GET", "/openapi/v3").body["paths"]
    assert all(server.ask("GET", entry["serverRelativeURL"]).status == 200 for entry in index.values())
    groups = [group["name"] for group in server.ask("GET", "/apis").body["groups"]]
    assert groups == ["batch", "trainer.kubeflow.org", "jobset.x-k8s.io", "authorization.k8s.io"]
    assert server.ask("GET", "/apis/batch").body["preferredVersion"]["groupVersion"] == "batch/v1"
    assert server.ask("GET", "/apis/authorization.k8s.io/v1").body["resources"][0]["kind"] == "SelfSubjectAccessReview"
    names = [each["name"] for each in server.ask("GET", "/api/v1").body["resources"]]
    assert {"pods", "pods/log", "pods/exec", "pods/status", "secrets", "persistentvolumeclaims"} <= set(names)
    assert server.ask("GET", "/apis/ray.io").status == 404


def test_requests_are_noted(server: Serving) -> None:
    server.ask("GET", f"{PODS}/p")
    server.ask("GET", PODS, labelSelector="a=b")
    noted = [
        (request.method, request.path, request.status, request.query) for request in server.cluster.server.requests
    ]
    assert noted == [("GET", f"{PODS}/p", 404, ""), ("GET", PODS, 200, "labelSelector=a%3Db")]


def test_a_continue_token_is_opaque_but_honest(server: Serving) -> None:
    """A token that was not made here is refused, not guessed at."""
    forged = base64.urlsafe_b64encode(json.dumps({"v": "x"}).encode()).decode()
    assert server.ask("GET", PODS, **{"continue": forged}).status == 400
