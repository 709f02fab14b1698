"""What holds of a layout whatever is thrown at it."""

import copy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nemo_run._kube.layout import WorkdirLayout
from nemo_run._kube.segments import PLACEHOLDERS
from nemo_run.exceptions import ConfigError

NAMES = st.sampled_from(["w", "w", "w", "x", "y"])
PATHS = st.sampled_from(
    ["/w", "/w/", "/w//./", "/wx", "/x", "/x/y", "/w/a", "/w/a/b", "/w/a/code", "/", "/w/../x", "w"]
)
SOURCES = st.sampled_from(
    [
        {"persistentVolumeClaim": {"claimName": "c"}},
        {"nfs": {"server": "s"}},
        {"hostPath": {"path": "/"}},
        {"emptyDir": {}},
    ]
)
VOLUMES = st.lists(st.builds(lambda name, source: {"name": name, **source}, NAMES, SOURCES), max_size=4).map(
    lambda volumes: [
        {"name": "w", "persistentVolumeClaim": {"claimName": "c"}},
        *(v for v in volumes if v["name"] != "w"),
    ]
)
MOUNTS = st.fixed_dictionaries(
    {"name": NAMES, "mountPath": PATHS},
    optional={
        "subPath": st.sampled_from([None, "", "a", "a/", "a", "../x"]),
        "readOnly": st.sampled_from([None, False, True]),
    },
)
TEXT = st.text(max_size=12) | st.sampled_from([".", "..", "/", "../..", "a/../..", "/etc", "", "\x00", "alice@corp"])
VALUES = st.dictionaries(st.sampled_from(PLACEHOLDERS), st.none() | TEXT)
PIECES = st.sampled_from([*(f"{{{name}}}" for name in PLACEHOLDERS), "..", ".", "a", "b", "code", "{{}}", "", "é"])
TEMPLATES = (
    st.none()
    | st.lists(st.lists(PIECES, min_size=1, max_size=2).map("".join), max_size=4).map("/".join)
    | st.text("{}/.:!userjob_name", max_size=12)
)
FIELDS = st.fixed_dictionaries(
    {
        "volumes": VOLUMES,
        "volume_mounts": st.lists(MOUNTS, max_size=3),
        "workdir_volume_mount": st.none() | MOUNTS,
        "code_subpath": TEMPLATES,
        "default_subpath": st.sampled_from(["{user}/{experiment_id}/{job_name}/code", "{user}/code/{workdir}"]),
        "values": VALUES,
        "workdir_pvc": st.sampled_from([None, None, None, "c", "d"]),
        "workdir_pvc_path": st.none() | PATHS,
        "first_mount": st.booleans(),
    }
)


def unlinked(path):
    """Walk *path* the way a kernel does and give the names it ends up below."""
    walked = []
    for part in str(path).split("/"):
        if part == "..":
            walked.pop()
        elif part not in ("", "."):
            walked.append(part)
    return walked


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a loaded machine
@given(fields=FIELDS, others=st.lists(MOUNTS, max_size=3))
def test_a_layout_is_sound_or_refused(fields, others):
    before = copy.deepcopy((fields, others))
    try:
        layout = WorkdirLayout.resolve(**fields)
        if layout is None:
            return
        mounts = layout.mounts(others)
        volumes = layout.volumes(fields["volumes"])
    except ConfigError:
        return
    finally:
        assert (fields, others) == before, "no input is changed"

    top = unlinked(layout.mount["mountPath"])
    assert unlinked(layout.code_dir)[: len(top)] == top, "the code stays below the mount"
    assert "\0" not in str(layout.code_dir)

    paths = [mount["mountPath"] for mount in mounts]
    assert len(paths) == len(set(paths)), "no two entries share a mountPath"
    assert all(path == "/" or not path.endswith("/") for path in paths)
    assert dict(layout.mount) in mounts
    hiding = [path for path in paths if len(top) < len(unlinked(path)) and layout.code_dir.is_relative_to(path)]
    assert not hiding, "nothing hides the code"
    assert layout.mounts(mounts) == mounts, "merging again changes nothing"

    names = [volume["name"] for volume in volumes]
    assert len(names) == len(set(names))
    assert layout.mount["name"] in names
    assert layout.volumes(volumes) == volumes
    assert {key: layout.mount.get(key) for key in ("name", "mountPath", "subPath")} == {
        key: layout.mover_mount.get(key) for key in ("name", "mountPath", "subPath")
    }, "both pods see one directory"
    assert "readOnly" not in layout.mover_mount


@given(one=TEXT, other=TEXT)
def test_two_users_have_two_directories(one, other):
    try:
        first, second = (
            WorkdirLayout.resolve(
                volumes=[{"name": "w", "nfs": {"server": "s"}}],
                volume_mounts=[],
                workdir_volume_mount={"name": "w", "mountPath": "/w"},
                code_subpath="{user}/code",
                default_subpath="",
                values={"user": user},
            )
            for user in (one, other)
        )
    except ConfigError:
        assert {one, other} & {".", ".."}
        return
    assert (first == second) == (one == other)
