"""A pod's volumes and a container's mounts: normal forms, checks and merging."""

import copy
from pathlib import PurePosixPath

import pytest

from nemo_run._kube.mounts import claim_of, lasting_volume, merged_mounts, merged_volumes, mount_path, workdir_mount
from nemo_run.exceptions import ConfigError

W = {"name": "w", "mountPath": "/work"}
CLAIM = {"name": "w", "persistentVolumeClaim": {"claimName": "shared"}}


def test_every_field_of_a_volume_mount_is_taken():
    mount = {
        "name": "w",
        "mountPath": "/work",
        "subPath": "a",
        "readOnly": True,
        "recursiveReadOnly": "IfPossible",
        "mountPropagation": "HostToContainer",
    }
    assert workdir_mount(mount, argument="workdir_volume_mount") == mount


@pytest.mark.parametrize(
    ("mount", "normal"),
    [
        pytest.param(
            {**W, "subPath": None, "readOnly": None, "subPathExpr": None, "mountPropagation": None},
            W,
            id="none-is-not-said",
        ),
        pytest.param({**W, "subPath": "", "readOnly": False, "subPathExpr": ""}, W, id="empty-and-false-are-not-said"),
        pytest.param({**W, "mountPath": "//a///b/./c/"}, {**W, "mountPath": "/a/b/c"}, id="mount-path"),
        pytest.param({**W, "subPath": "a//b/./c/"}, {**W, "subPath": "a/b/c"}, id="sub-path"),
        pytest.param({**W, "subPath": "./"}, W, id="sub-path-that-is-the-root"),
        pytest.param({**W, "subPath": "..a/b.."}, {**W, "subPath": "..a/b.."}, id="dots-in-names"),
    ],
)
def test_a_workdir_mount_has_one_normal_form(mount, normal):
    before = copy.deepcopy(mount)
    assert workdir_mount(mount, argument="workdir_volume_mount") == normal
    assert mount == before


@pytest.mark.parametrize(
    ("mount", "hint"),
    [
        pytest.param("/work", "write a VolumeMount such as", id="text"),
        pytest.param([W], "write a VolumeMount such as", id="list"),
        pytest.param({}, "add 'name'", id="empty"),
        pytest.param({"mountPath": "/work"}, "add 'name'", id="no-name"),
        pytest.param({"name": "w"}, "add 'mountPath'", id="no-path"),
        pytest.param({"name": "w", "mountPath": ""}, "add 'mountPath'", id="empty-path"),
        pytest.param(
            {**W, "mount_path": "/x"}, "'mount_path' is no field of a VolumeMount; write 'mountPath'", id="snake-case"
        ),
        pytest.param(
            {**W, "claimName": "x"}, "'claimName' is no field of a VolumeMount; remove it", id="unknown-field"
        ),
        pytest.param({**W, "subpath": "x"}, "'subpath' is no field of a VolumeMount; write 'subPath'", id="lower-case"),
        pytest.param({**W, "readonly": True}, "write 'readOnly'", id="lower-case-too"),
        pytest.param({**W, 1: True}, "1 is no field of a VolumeMount; remove it", id="no-text"),
        pytest.param({**W, "name": 1}, "'name' must be of type str, not int", id="name-type"),
        pytest.param({**W, "mountPath": PurePosixPath("/w")}, "'mountPath' must be of type str", id="path-type"),
        pytest.param({**W, "subPath": 3}, "'subPath' must be of type str", id="sub-path-type"),
        pytest.param({**W, "readOnly": "true"}, "'readOnly' must be of type bool, not str", id="read-only-type"),
        pytest.param(
            {**W, "subPathExpr": "$(USER)"}, "write the value itself into 'subPath'", id="sub-path-expression"
        ),
        pytest.param({**W, "mountPath": "/"}, "'/' is the container's own root", id="root"),
        pytest.param({**W, "mountPath": "//."}, "'/' is the container's own root", id="root-in-disguise"),
        pytest.param({**W, "mountPath": "work"}, "must be absolute", id="relative"),
        pytest.param({**W, "mountPath": "/a/../b"}, "holds '..'", id="climbing"),
        pytest.param({**W, "mountPath": "/a:b"}, "holds ':'", id="colon"),
        pytest.param({**W, "mountPath": "/a\n"}, "control character", id="newline"),
        pytest.param({**W, "subPath": "/team/a"}, "relative to the volume: 'team/a'", id="absolute-sub-path"),
        pytest.param({**W, "subPath": "a/../.."}, "may not hold '..'", id="climbing-sub-path"),
        pytest.param({**W, "subPath": "a\0"}, "control character", id="nul-sub-path"),
    ],
)
def test_a_bad_workdir_mount_is_refused(mount, hint):
    """The message names the argument, shows the whole mount and says what to write."""
    with pytest.raises(ConfigError) as caught:
        workdir_mount(mount, argument="workdir_volume_mount")
    assert (caught.value.argument, caught.value.value) == ("workdir_volume_mount", mount)
    assert hint in str(caught.value)


def test_a_bad_path_alone_is_shown_alone():
    with pytest.raises(ConfigError) as caught:
        mount_path("work", argument="workdir_pvc_path")
    assert str(caught.value) == "workdir_pvc_path='work': the mount path 'work' must be absolute; start it with '/'"


@pytest.mark.parametrize(
    "source",
    [
        {"persistentVolumeClaim": {"claimName": "shared"}},
        {"persistentVolumeClaim": {"claimName": "shared", "readOnly": False}},
        {"nfs": {"server": "nas", "path": "/x"}},
        {"hostPath": {"path": "/x"}},
        {"csi": {"driver": "x"}},
        {"persistentVolumeClaim": {"claimName": "shared"}, "emptyDir": None},
    ],
    ids=lambda source: next(iter(source)),
)
def test_a_volume_that_outlives_pods_will_do(source):
    volume = {"name": "w", **source}
    found = lasting_volume([{"name": "x", "emptyDir": {}}, volume], "w", argument="a")
    assert found == volume
    assert found is not volume


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(kind, "does not outlive its pod") for kind in ("emptyDir", "ephemeral", "gitRepo")]
    + [(kind, "is read-only") for kind in ("configMap", "secret", "downwardAPI", "projected", "image")],
)
def test_a_volume_that_cannot_carry_code_to_another_pod_is_refused(kind, reason):
    with pytest.raises(ConfigError, match=f"a volume of kind {kind} {reason}.*use a persistentVolumeClaim") as caught:
        lasting_volume([{"name": "w", kind: {}}], "w", argument="workdir_volume_mount")
    assert caught.value.argument == "volumes"
    assert "workdir_volume_mount names this volume 'w'" in str(caught.value)


@pytest.mark.parametrize("merge", [merged_volumes, merged_mounts])
@pytest.mark.parametrize("entries", [{"name": "w", "mountPath": "/w", "emptyDir": {}}, "w"])
def test_one_entry_is_no_list(merge, entries):
    with pytest.raises(ConfigError, match="write a list"):
        merge(entries)


@pytest.mark.parametrize("volume", [{"name": "w"}, {"name": "w", "persistentVolumeClaim": None}], ids=["bare", "none"])
def test_a_volume_without_a_source_is_an_empty_dir(volume):
    """So the API server defaults it."""
    with pytest.raises(ConfigError, match="kind emptyDir"):
        lasting_volume([volume], "w", argument="workdir_volume_mount")


@pytest.mark.parametrize(
    "source",
    [{"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}, {"nfs": {"server": "s", "readOnly": True}}],
    ids=["claim", "nfs"],
)
def test_a_read_only_volume_is_refused(source):
    with pytest.raises(ConfigError, match="no code can be copied to it; remove its readOnly"):
        lasting_volume([{"name": "w", **source}], "w", argument="workdir_volume_mount")


@pytest.mark.parametrize(
    ("volumes", "there"),
    [([], "nothing"), ([CLAIM, {"name": "x", "emptyDir": {}}], "'w', 'x'")],
    ids=["none", "some"],
)
def test_an_absent_volume_is_refused_with_a_list_of_those_there_are(volumes, there):
    with pytest.raises(ConfigError) as caught:
        lasting_volume(volumes, "work", argument="workdir_volume_mount")
    assert str(caught.value) == (
        f"workdir_volume_mount='work': no volume of that name in volumes, which holds {there}; add or rename it"
    )


@pytest.mark.parametrize(
    ("mounts", "merged"),
    [
        pytest.param([], [], id="none"),
        pytest.param([W, W], [W], id="equal"),
        pytest.param([W, {**W, "mountPath": "/work/"}], [W], id="same-path-written-otherwise"),
        pytest.param([W, {**W, "subPath": "", "readOnly": False, "subPathExpr": None}], [W], id="nothing-said"),
        pytest.param([{**W, "subPath": "a/"}, {**W, "subPath": "a"}], [{**W, "subPath": "a"}], id="same-sub-path"),
        pytest.param([W, {**W, "mountPath": "/work2"}], [W, {**W, "mountPath": "/work2"}], id="one-volume-twice"),
        pytest.param(
            [{"name": "b", "mountPath": "/b"}, W, {"name": "a", "mountPath": "/a"}],
            [{"name": "b", "mountPath": "/b"}, W, {"name": "a", "mountPath": "/a"}],
            id="order-stays",
        ),
        pytest.param([{**W, "new": 1}], [{**W, "new": 1}], id="fields-of-tomorrow"),
        pytest.param([{**W, "mountPath": "C:\\x"}], [{**W, "mountPath": "C:\\x"}], id="other-path"),
        pytest.param([{**W, "subPath": 1}], [{**W, "subPath": 1}], id="left-to-the-server"),
    ],
)
def test_one_path_has_one_entry(mounts, merged):
    before = copy.deepcopy(mounts)
    result = merged_mounts(mounts)
    assert result == merged
    assert mounts == before
    assert not {id(entry) for entry in result} & {id(entry) for entry in mounts}


@pytest.mark.parametrize(
    "other",
    [
        {"name": "x", "mountPath": "/work"},
        {**W, "subPath": "b"},
        {**W, "readOnly": True},
        {**W, "mountPath": "/work/.", "subPath": "b"},
    ],
    ids=["volume", "sub-path", "read-only", "other-spelling"],
)
def test_two_different_mounts_at_one_path_are_refused(other):
    with pytest.raises(ConfigError) as caught:
        merged_mounts([W, other])
    assert caught.value.value == [W, {**other, "mountPath": "/work"}]
    assert "two different mounts at /work" in str(caught.value)


@pytest.mark.parametrize("path", ["/work/a", "/work/a/b", "/work/a/b/", "/work/a/b/code"])
def test_a_mount_on_the_way_to_the_code_is_refused(path):
    with pytest.raises(ConfigError, match="it would hide the code directory /work/a/b/code"):
        merged_mounts(
            [{"name": "x", "mountPath": path}], hiding=(PurePosixPath("/work"), PurePosixPath("/work/a/b/code"))
        )


@pytest.mark.parametrize(
    "path", ["/work", "/", "/work/a/b/code/data", "/work/ab", "/work/a/bc", "/work2", "/a", "/work/a/b/cod"]
)
def test_a_mount_beside_the_way_is_not(path):
    mount = {"name": "x", "mountPath": path}
    hiding = (PurePosixPath("/work"), PurePosixPath("/work/a/b/code"))
    assert merged_mounts([mount], hiding=hiding) == [mount]


@pytest.mark.parametrize(
    "mount",
    ["/work", {"name": "w"}, {"mountPath": "/w"}, {"name": 1, "mountPath": "/w"}],
    ids=["text", "no-path", "no-name", "number"],
)
def test_an_entry_that_is_no_mount_is_refused(mount):
    with pytest.raises(ConfigError) as caught:
        merged_mounts([mount])
    assert (caught.value.argument, caught.value.value) == ("volume_mounts", mount)


@pytest.mark.parametrize(
    ("volumes", "merged"),
    [
        pytest.param([CLAIM, copy.deepcopy(CLAIM)], [CLAIM], id="equal"),
        pytest.param(
            [CLAIM, {"name": "w", "persistentVolumeClaim": {"claimName": "shared", "readOnly": False}}],
            [CLAIM],
            id="nothing-said",
        ),
        pytest.param(
            [{"name": "e", "emptyDir": {}}, CLAIM, {"name": "e", "emptyDir": {}, "nfs": None}],
            [{"name": "e", "emptyDir": {}}, CLAIM],
            id="an-empty-source-is-said",
        ),
        pytest.param(
            [{"name": "p", "projected": {"sources": [{"secret": {"name": "s", "optional": False}}]}}] * 2,
            [{"name": "p", "projected": {"sources": [{"secret": {"name": "s", "optional": False}}]}}],
            id="lists-inside",
        ),
    ],
)
def test_one_volume_name_has_one_entry(volumes, merged):
    before = copy.deepcopy(volumes)
    assert merged_volumes(volumes) == merged
    assert volumes == before


def test_two_different_volumes_of_one_name_are_refused():
    other = {"name": "w", "emptyDir": {}}
    with pytest.raises(ConfigError) as caught:
        merged_volumes([CLAIM, other])
    assert caught.value.value == [CLAIM, other]
    assert "two different volumes are called 'w'; rename one" in str(caught.value)


@pytest.mark.parametrize("volume", ["w", {}, {"name": ""}, {"name": 1}], ids=["text", "empty", "no-name", "number"])
def test_an_entry_that_is_no_volume_is_refused(volume):
    with pytest.raises(ConfigError, match="each entry is a pod volume with a 'name'"):
        merged_volumes([volume])


@pytest.mark.parametrize(
    ("volume", "claim"),
    [(CLAIM, "shared"), ({"name": "w", "emptyDir": {}}, None), ({"name": "w", "persistentVolumeClaim": {}}, None)],
    ids=["claim", "other", "nameless"],
)
def test_a_volume_tells_its_claim(volume, claim):
    assert claim_of(volume) == claim
