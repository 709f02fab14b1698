"""Parts of pods, and merging of what a user wrote into them."""

import copy

import pytest

from nemo_run._kube.manifests.fields import CONTAINER, POD_SPEC, known_fields
from nemo_run._kube.manifests.pods import (
    PodShape,
    json_merge,
    label_map,
    merge_named,
    pod_spec,
    prune,
    resources,
    string_map,
)
from nemo_run.exceptions import ConfigError

TOLERATION = {"key": "gpu", "operator": "Exists"}
SPEC = {
    "tolerations": [TOLERATION],
    "affinity": {"nodeAffinity": {"x": 1}},
    "nodeSelector": {"zone": "a"},
    "imagePullSecrets": [{"name": "registry"}],
    "serviceAccountName": "trainer",
    "securityContext": {"fsGroup": 1000},
}
SHAPE = PodShape(
    tolerations=[TOLERATION],
    affinity={"nodeAffinity": {"x": 1}},
    node_selector={"zone": "a"},
    image_pull_secrets=["registry"],
    service_account="trainer",
    security_context={"fsGroup": 1000},
)


class TestPodShape:
    def test_it_reads_a_pod_spec_and_writes_it_again(self):
        assert PodShape.of({**SPEC, "schedulerName": "x", "containers": []}) == SHAPE
        assert SHAPE.spec() == SPEC

    def test_one_that_says_nothing_is_nothing(self):
        assert PodShape().spec() == {}
        assert PodShape.of({}) == PodShape()

    def test_what_a_spec_says_replaces_what_was_said(self):
        updated = SHAPE.updated({"nodeSelector": {"zone": "b"}, "imagePullSecrets": ["other"], "tolerations": None})
        assert updated.spec() == {**SPEC, "nodeSelector": {"zone": "b"}, "imagePullSecrets": [{"name": "other"}]}
        assert SHAPE.spec() == SPEC

    def test_what_it_gives_is_new(self):
        shape = PodShape.of(SPEC)
        shape.spec()["tolerations"][0]["key"] = "x"
        shape.spec()["affinity"]["nodeAffinity"]["x"] = 2
        assert shape.spec() == SPEC

    @pytest.mark.parametrize("secret", [{}, {"name": ""}, 7, {"names": "x"}], ids=repr)
    def test_a_pull_secret_without_name_is_refused(self, secret):
        with pytest.raises(ConfigError, match="imagePullSecrets"):
            PodShape.of({"imagePullSecrets": [secret]})


def test_pruning_drops_what_says_nothing_and_keeps_zero_and_false():
    inner = {"emptyDir": {}}
    pruned = prune({"a": None, "b": "", "c": [], "d": {}, "e": (), "f": 0, "g": False, "h": inner, "i": [None]})
    assert pruned == {"f": 0, "g": False, "h": {"emptyDir": {}}, "i": [None]}
    assert pruned["h"] is not inner


@pytest.mark.parametrize(
    ("base", "patch", "merged"),
    [
        pytest.param({"a": 1}, {}, {"a": 1}, id="nothing"),
        pytest.param({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}, id="replaces"),
        pytest.param({"a": 1, "b": 2}, {"a": None, "c": None}, {"b": 2}, id="none-removes"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"a": {"y": None, "z": 3}}, {"a": {"x": 1, "z": 3}}, id="dicts-merge"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists-replace"),
        pytest.param({"a": 1}, {"a": {"x": 1, "y": None}}, {"a": {"x": 1}}, id="dict-over-scalar"),
        pytest.param({"a": {"x": 1}}, {"a": "text"}, {"a": "text"}, id="scalar-over-dict"),
    ],
)
def test_a_merge_patch_is_merged_as_rfc_7386_says(base, patch, merged):
    before = copy.deepcopy((base, patch))
    assert json_merge(base, patch) == merged
    assert (base, patch) == before


def test_lists_are_merged_by_name():
    base = [{"name": "a", "x": {"y": 1}}, {"name": "b"}]
    patch = [{"name": "c"}, {"name": "a", "x": {"z": 2}}]
    before = copy.deepcopy((base, patch))
    assert merge_named(base, patch) == [{"name": "a", "x": {"y": 1, "z": 2}}, {"name": "b"}, {"name": "c"}]
    assert (base, patch) == before


class TestPodSpec:
    base = {  # noqa: RUF012
        "containers": [{"name": "main", "image": "i"}],
        "volumes": [{"name": "w", "emptyDir": {}}],
        "restartPolicy": "Never",
    }

    def test_a_sidecar_joins_and_does_not_replace(self):
        assert pod_spec(self.base, {"containers": [{"name": "proxy", "image": "p"}]}) == {
            **self.base,
            "containers": [{"name": "main", "image": "i"}, {"name": "proxy", "image": "p"}],
        }

    def test_a_container_of_ours_is_patched_by_its_name(self):
        merged = pod_spec(self.base, {"containers": [{"name": "main", "tty": True, "image": None}]})
        assert merged["containers"] == [{"name": "main", "tty": True}]

    def test_volumes_and_pull_secrets_join(self):
        patches = (
            {"volumes": [{"name": "x", "emptyDir": {}}, {"name": "w", "emptyDir": {}}], "imagePullSecrets": ["a"]},
            {"imagePullSecrets": [{"name": "b"}, {"name": "a"}], "restartPolicy": None},
        )
        before = copy.deepcopy(patches)
        assert pod_spec(self.base, *patches) == {
            "containers": self.base["containers"],
            "volumes": [{"name": "w", "emptyDir": {}}, {"name": "x", "emptyDir": {}}],
            "imagePullSecrets": [{"name": "a"}, {"name": "b"}],
        }
        assert patches == before

    def test_none_removes_a_list(self):
        assert pod_spec(self.base, {"volumes": None}) == {
            "containers": self.base["containers"],
            "restartPolicy": "Never",
        }

    @pytest.mark.parametrize(
        ("patch", "hint"),
        [
            pytest.param({"containers": None}, "cannot be removed", id="no-containers"),
            pytest.param({"containers": [{"image": "x"}]}, "each entry needs a 'name'", id="nameless-container"),
            pytest.param({"initContainers": ["x"]}, "each entry needs a 'name'", id="no-container"),
            pytest.param({"volumes": [{"name": "w", "nfs": {}}]}, "two different volumes", id="another-volume"),
        ],
    )
    def test_what_cannot_be_joined_is_refused(self, patch, hint):
        with pytest.raises(ConfigError, match=hint):
            pod_spec(self.base, patch)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"gpus": 0}, {}, id="no-gpus"),
        pytest.param({"gpus": None, "cpu_requests": "", "memory_limits": None}, {}, id="nothing-said"),
        pytest.param(
            {"gpus": 2, "gpu_resource": "amd.com/gpu"},
            {"requests": {"amd.com/gpu": "2"}, "limits": {"amd.com/gpu": "2"}},
            id="other-gpus",
        ),
        pytest.param(
            {"cpu_requests": 4, "memory_requests": "8Gi", "cpu_limits": "8", "memory_limits": "16Gi", "gpus": 1},
            {
                "requests": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"},
                "limits": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "1"},
            },
            id="everything",
        ),
        pytest.param(
            {"extra_requests": {"nvidia.com/mig-1g.10gb": 1}, "extra_limits": {"nvidia.com/mig-1g.10gb": "1"}},
            {"requests": {"nvidia.com/mig-1g.10gb": "1"}, "limits": {"nvidia.com/mig-1g.10gb": "1"}},
            id="slices",
        ),
        pytest.param(
            {"gpus": 8, "extra_requests": {"nvidia.com/gpu": 4}},
            {"requests": {"nvidia.com/gpu": "4"}, "limits": {"nvidia.com/gpu": "8"}},
            id="extra-wins",
        ),
    ],
)
def test_resources_are_text_and_gpus_are_limited_as_asked(asked, given):
    assert resources(**asked) == given


def test_labels_and_annotations_become_text():
    values = {"a": 1, "b": True, "c": False, "d": "x", "e": None, "f": 0.5}
    assert string_map(values, argument="annotations") == {"a": "1", "b": "true", "c": "false", "d": "x", "f": "0.5"}


def test_an_annotation_that_is_no_text_is_refused():
    with pytest.raises(ConfigError) as caught:
        string_map({"a": {"b": 1}}, argument="annotations")
    assert caught.value.argument == "annotations['a']"


def test_a_label_that_kubernetes_takes_stays():
    assert label_map({"team": "a_B.c-1", "empty": "", "n": 3}, argument="labels") == {
        "team": "a_B.c-1",
        "empty": "",
        "n": "3",
    }


@pytest.mark.parametrize("value", ["a@b.c", "x" * 64, "-a", "é"], ids=["address", "long", "dash", "letter"])
def test_a_label_that_kubernetes_refuses_is_refused_with_one_that_it_takes(value):
    with pytest.raises(ConfigError, match="make it an annotation") as caught:
        label_map({"owner": value}, argument="labels")
    assert caught.value.argument == "labels['owner']"


class TestKnownFields:
    def test_known_fields_stay(self):
        fields = {"schedulerName": "x", "hostNetwork": True}
        assert known_fields(fields, POD_SPEC, argument="spec_kwargs", strict=True) == (fields, [])

    def test_snake_case_is_understood_and_told(self):
        assert known_fields({"image_pull_secrets": ["s"], "tty": True}, POD_SPEC | CONTAINER, argument="a") == (
            {"imagePullSecrets": ["s"], "tty": True},
            ["a: 'image_pull_secrets' is taken as 'imagePullSecrets'"],
        )

    def test_the_right_spelling_wins(self):
        for fields in ({"working_dir": "/a", "workingDir": "/b"}, {"workingDir": "/b", "working_dir": "/a"}):
            assert known_fields(fields, CONTAINER, argument="a")[0] == {"workingDir": "/b"}

    def test_an_unknown_field_is_left_out_and_told(self):
        assert known_fields({"nope": 1}, CONTAINER, argument="container_kwargs") == (
            {},
            ["container_kwargs: 'nope' is left out, since Kubernetes has no such field here"],
        )

    @pytest.mark.parametrize(("field", "hint"), [("nope", "remove it"), ("working_dir", "write 'workingDir'")])
    def test_strict_refuses_both(self, field, hint):
        with pytest.raises(ConfigError, match=hint):
            known_fields({field: 1}, CONTAINER, argument="container_kwargs", strict=True)

    def test_what_it_gives_is_new(self):
        fields = {"affinity": {"x": 1}}
        kept, _ = known_fields(fields, POD_SPEC, argument="a")
        assert kept["affinity"] is not fields["affinity"]
