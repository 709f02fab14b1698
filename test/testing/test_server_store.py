"""The store: identities, versions, refusals, deletion, subscriptions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nemo_run._kube.resources import CONFIG_MAP, EVENT, POD, TRAINJOB
from nemo_run.testing._changes import HISTORY
from nemo_run.testing._errors import ApiError
from nemo_run.testing._kinds import NAMESPACE
from nemo_run.testing._store import Store, Subscription, merged

Json = dict[str, Any]


@pytest.fixture
def store() -> Store:
    """A store with the namespace ``default`` and no checks."""
    made = Store()
    made.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    return made


def a_pod(name: str = "p", **meta: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": {"containers": []}}


def a_map(name: str, **meta: Any) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **meta}, "data": {}}


def running(store: Store, name: str = "p") -> Json:
    """Store a pod that runs on a node."""
    pod = a_pod(name)
    pod["spec"]["nodeName"] = "n"
    store.create(POD, "default", pod)
    return store.patch_status(POD, "default", name, {"phase": "Running"})


def told(subscription: Subscription) -> list[tuple[str, str]]:
    """Give what a subscription has been fed so far."""

    async def drain() -> list[tuple[str, str]]:
        subscription.close()
        return [(event.type, event.object["metadata"]["name"]) async for event in subscription]

    return asyncio.run(drain())


def test_each_object_gets_an_identity(store: Store) -> None:
    first, second = (store.create(POD, "default", a_pod(name))["metadata"] for name in "ab")
    assert first["uid"] != second["uid"]
    assert int(first["resourceVersion"]) < int(second["resourceVersion"])
    assert first["namespace"] == "default"
    assert first["generation"] == 1


def test_what_is_given_is_a_copy(store: Store) -> None:
    """Neither the caller's object nor what came back can change the stored one."""
    mine = a_map("c", labels={"a": "1"})
    made = store.create(CONFIG_MAP, "default", mine)
    mine["data"]["x"] = made["data"]["y"] = "changed"
    store.get(CONFIG_MAP, "default", "c")["metadata"]["labels"]["a"] = "changed"
    assert store.get(CONFIG_MAP, "default", "c")["data"] == {}
    assert store.get(CONFIG_MAP, "default", "c")["metadata"]["labels"] == {"a": "1"}


@pytest.mark.parametrize("missing", [{}, {"generateName": ""}], ids=["no name", "empty generateName"])
def test_a_name_is_required(store: Store, missing: Json) -> None:
    with pytest.raises(ApiError, match="name or generateName is required") as refused:
        store.create(POD, "default", {"apiVersion": "v1", "kind": "Pod", "metadata": missing, "spec": {}})
    assert refused.value.status == 422


def test_generated_names_differ(store: Store) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": {}}
    names = {store.create(POD, "default", pod)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20


def test_a_dry_run_leaves_nothing(store: Store) -> None:
    version = store.changes.version
    store.create(POD, "default", a_pod(), dry_run=True)
    store.create(CONFIG_MAP, "default", a_map("c"))
    store.patch(CONFIG_MAP, "default", "c", {"data": {"a": "1"}}, dry_run=True)
    store.delete(CONFIG_MAP, "default", "c", dry_run=True)
    assert store.list(POD) == []
    assert store.get(CONFIG_MAP, "default", "c")["data"] == {}
    assert store.changes.version == version + 1


def test_generation_counts_what_is_wanted_not_what_is(store: Store) -> None:
    running(store)
    assert store.patch(POD, "default", "p", {"metadata": {"labels": {"a": "1"}}})["metadata"]["generation"] == 1
    assert store.patch(POD, "default", "p", {"spec": {"x": 1}})["metadata"]["generation"] == 2


def test_an_update_that_changes_nothing_is_no_change(store: Store) -> None:
    before = running(store)
    assert store.patch_status(POD, "default", "p", {"phase": "Running"}) == before


def test_a_main_update_leaves_the_status_alone(store: Store) -> None:
    running(store)
    after = store.patch(POD, "default", "p", {"status": {"phase": "Failed"}, "spec": {"x": 1}})
    assert after["status"] == {"phase": "Running"}


def test_a_status_can_be_replaced(store: Store) -> None:
    running(store)
    assert store.patch_status(POD, "default", "p", {"a": 1}, merge=False)["status"] == {"a": 1}


@pytest.mark.parametrize("key", ["resourceVersion", "uid"])
def test_an_update_from_another_object_is_a_conflict(store: Store, key: str) -> None:
    pod = running(store)
    pod["metadata"][key] = "1"
    with pytest.raises(ApiError) as refused:
        store.update(POD, pod)
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")


def test_a_patch_cannot_rename(store: Store) -> None:
    running(store)
    with pytest.raises(ApiError) as refused:
        store.patch(POD, "default", "p", {"metadata": {"name": "q"}})
    assert refused.value.status == 400


def test_a_pod_on_a_node_goes_when_the_kubelet_says_so(store: Store) -> None:
    running(store)
    marked = store.delete(POD, "default", "p", grace=7)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 7
    assert store.get(POD, "default", "p") == marked
    store.remove(POD, "default", "p")
    store.remove(POD, "default", "p")
    assert store.list(POD) == []


def test_a_second_delete_can_only_shorten_the_grace(store: Store) -> None:
    running(store)
    first = store.delete(POD, "default", "p", grace=30)
    assert store.delete(POD, "default", "p", grace=60) == first
    assert store.delete(POD, "default", "p", grace=5)["metadata"]["deletionGracePeriodSeconds"] == 5
    store.delete(POD, "default", "p", grace=0)
    assert store.list(POD) == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_goes_at_once(store: Store, phase: str) -> None:
    running(store)
    store.patch_status(POD, "default", "p", {"phase": phase})
    store.delete(POD, "default", "p")
    assert store.list(POD) == []


def test_what_an_object_owns_goes_with_it(store: Store) -> None:
    owner = store.create(CONFIG_MAP, "default", a_map("owner"))["metadata"]["uid"]
    child = store.create(CONFIG_MAP, "default", a_map("child", ownerReferences=[{"uid": owner}]))["metadata"]["uid"]
    store.create(CONFIG_MAP, "default", a_map("grandchild", ownerReferences=[{"uid": child}]))
    store.create(CONFIG_MAP, "default", a_map("other"))
    store.delete(CONFIG_MAP, "default", "owner")
    assert [obj["metadata"]["name"] for obj in store.list(CONFIG_MAP)] == ["other"]


def test_orphans_stay(store: Store) -> None:
    owner = store.create(CONFIG_MAP, "default", a_map("owner"))["metadata"]["uid"]
    store.create(CONFIG_MAP, "default", a_map("child", ownerReferences=[{"uid": owner}]))
    store.delete(CONFIG_MAP, "default", "owner", propagation="Orphan")
    assert "ownerReferences" not in store.get(CONFIG_MAP, "default", "child")["metadata"]


def test_in_the_foreground_the_owner_goes_last(store: Store) -> None:
    job = {"apiVersion": TRAINJOB.api_version, "kind": "TrainJob", "metadata": {"name": "j"}, "spec": {}}
    owner = store.create(TRAINJOB, "default", job)["metadata"]["uid"]
    pod = a_pod(ownerReferences=[{"uid": owner}])
    pod["spec"]["nodeName"] = "n"
    store.create(POD, "default", pod)
    store.delete(TRAINJOB, "default", "j", propagation="Foreground")
    assert "deletionTimestamp" in store.get(TRAINJOB, "default", "j")["metadata"]
    store.remove(POD, "default", "p")
    assert store.list(TRAINJOB) == []


def test_the_same_event_is_counted(store: Store) -> None:
    pod = running(store)
    for _ in range(3):
        store.event(pod, "FailedMount", "no such claim", component="kubelet")
    store.event(pod, "Pulled", "got it", "Normal")
    events = {event["reason"]: (event["type"], event["count"]) for event in store.list(EVENT, "default")}
    assert events == {"FailedMount": ("Warning", 3), "Pulled": ("Normal", 1)}
    about = store.list(EVENT, fields=f"involvedObject.uid={pod['metadata']['uid']},reason=Pulled")
    assert [event["message"] for event in about] == ["got it"]


def test_a_subscription_begins_with_what_is_there(store: Store) -> None:
    running(store)
    events = store.subscribe(POD)
    store.patch_status(POD, "default", "p", {"phase": "Succeeded"})
    store.delete(POD, "default", "p")
    assert told(events) == [("ADDED", "p"), ("MODIFIED", "p"), ("MODIFIED", "p"), ("DELETED", "p")]


def test_a_subscription_without_kind_hears_all(store: Store) -> None:
    events = store.subscribe(initial=False)
    running(store)
    store.create(CONFIG_MAP, "default", a_map("c"))
    assert told(events) == [("ADDED", "p"), ("MODIFIED", "p"), ("ADDED", "c")]


def test_a_selector_turns_changes_into_coming_and_going(store: Store) -> None:
    events = store.subscribe(CONFIG_MAP, labels="a=1")
    store.create(CONFIG_MAP, "default", a_map("c"))
    store.patch(CONFIG_MAP, "default", "c", {"metadata": {"labels": {"a": "1"}}})
    store.patch(CONFIG_MAP, "default", "c", {"data": {"x": "1"}})
    store.patch(CONFIG_MAP, "default", "c", {"metadata": {"labels": {"a": "2"}}})
    store.delete(CONFIG_MAP, "default", "c")
    assert told(events) == [("ADDED", "c"), ("MODIFIED", "c"), ("DELETED", "c")]


def test_a_subscription_to_the_past_tells_what_came_after(store: Store) -> None:
    since = store.changes.version
    running(store)
    assert told(store.subscribe(POD, since=since)) == [("ADDED", "p"), ("MODIFIED", "p")]


def test_a_forgotten_past_is_410(store: Store) -> None:
    since = store.changes.version
    running(store)
    store.changes.compact()
    with pytest.raises(ApiError) as refused:
        store.subscribe(POD, since=since)
    assert (refused.value.status, refused.value.reason) == (410, "Expired")


def test_the_history_has_an_end(store: Store) -> None:
    since = store.changes.version
    store.create(CONFIG_MAP, "default", a_map("c"))
    for number in range(HISTORY):
        store.patch(CONFIG_MAP, "default", "c", {"data": {"n": str(number)}})
    with pytest.raises(ApiError) as refused:
        store.subscribe(CONFIG_MAP, since=since)
    assert refused.value.status == 410


def test_a_merge_patch_replaces_lists_and_drops_nulls() -> None:
    assert merged({"a": [1, 2], "b": {"c": 1, "d": 2}}, {"a": [3], "b": {"c": None}}) == {"a": [3], "b": {"d": 2}}
