"""Where on the volume is it: the layout's rules, one by one."""

import copy
import re
from pathlib import PurePosixPath

import pytest

from nemo_run._kube.layout import DEPRECATED_VOLUME, WorkdirLayout
from nemo_run.exceptions import ConfigError

DEFAULT = "{user}/{experiment_id}/{job_name}/code"
VALUES = {"user": "alice", "experiment_id": "exp_1", "job_name": "train", "workdir": "src"}
VOLUME = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}
SCRATCH = {"name": "scratch", "emptyDir": {}}


def resolve(**fields):
    """Resolve an executor's fields, where everything but *fields* is as executors have it."""
    fields = {
        "volumes": [VOLUME],
        "volume_mounts": [],
        "workdir_volume_mount": None,
        "code_subpath": None,
        "default_subpath": DEFAULT,
        "values": VALUES,
    } | fields
    before = copy.deepcopy(fields)
    try:
        return WorkdirLayout.resolve(**fields)
    finally:
        assert fields == before, "what the caller passed was changed"


class TestPlaces:
    def test_everything_lies_below_the_code_directory(self):
        layout = resolve(workdir_volume_mount=MOUNT)
        assert layout == WorkdirLayout(VOLUME, MOUNT, PurePosixPath("/nemo_run/alice/exp_1/train/code"), None)
        assert layout.launch_script == PurePosixPath("/nemo_run/alice/exp_1/train/code/launch.sh")
        assert layout.package_dir == PurePosixPath("/nemo_run/alice/exp_1/train/code/code")
        assert layout.configs_dir == PurePosixPath("/nemo_run/alice/exp_1/train/code/configs")
        assert layout.scripts_dir == PurePosixPath("/nemo_run/alice/exp_1/train/code/scripts")

    def test_no_workdir_is_no_layout(self):
        assert resolve() is None

    def test_a_path_alone_asks_for_no_workdir(self):
        assert resolve(workdir_pvc=None, workdir_pvc_path="/nemo_run") is None
        assert resolve(workdir_pvc="", workdir_pvc_path="/nemo_run") is None

    @pytest.mark.parametrize("sub_path", [None, "team-a"])
    def test_the_default_does_not_depend_on_the_sub_path(self, sub_path):
        layout = resolve(workdir_volume_mount={**MOUNT, "subPath": sub_path})
        assert layout.code_dir == PurePosixPath("/nemo_run/alice/exp_1/train/code")

    def test_before_a_task_is_assigned_the_default_keeps_user_and_code(self):
        layout = resolve(workdir_volume_mount=MOUNT, values={"user": "alice"})
        assert layout.code_dir == PurePosixPath("/nemo_run/alice/code")

    @pytest.mark.parametrize(
        ("code_subpath", "code_dir"),
        [("{user}", "/nemo_run/alice"), ("", "/nemo_run"), ("code", "/nemo_run/code"), ("{workdir}", "/nemo_run/src")],
        ids=["user", "mount-itself", "literal", "workdir"],
    )
    def test_a_template_replaces_the_default(self, code_subpath, code_dir):
        layout = resolve(workdir_volume_mount=MOUNT, code_subpath=code_subpath)
        assert layout.code_dir == PurePosixPath(code_dir)

    def test_a_bad_template_is_refused(self):
        with pytest.raises(ConfigError, match=r"code_subpath='\{nope\}': allowed are"):
            resolve(workdir_volume_mount=MOUNT, code_subpath="{nope}")

    def test_two_jobs_never_meet(self):
        jobs = [("e1", "a"), ("e1", "b"), ("e2", "a"), ("e2", "b")]
        places = {
            resolve(workdir_volume_mount=MOUNT, values={**VALUES, "experiment_id": e, "job_name": j}).code_dir
            for e, j in jobs
        }
        assert len(places) == len(jobs)


class TestMount:
    def test_the_mount_is_in_its_normal_form(self):
        layout = resolve(workdir_volume_mount={**MOUNT, "mountPath": "//nemo_run/./", "subPath": "team-a/"})
        assert layout.mount == MOUNT

    def test_work_and_work2_differ(self):
        layout = resolve(workdir_volume_mount={**MOUNT, "mountPath": "/work"}, code_subpath="a/b")
        other = {"name": "work", "mountPath": "/work2"}
        assert layout.mounts([other]) == [other, {**MOUNT, "mountPath": "/work"}]

    def test_a_bad_mount_is_refused_by_its_argument(self):
        with pytest.raises(ConfigError) as caught:
            resolve(workdir_volume_mount={**MOUNT, "mountPath": "/"})
        assert caught.value.argument == "workdir_volume_mount"

    @pytest.mark.parametrize(("name", "argument"), [("nope", "workdir_volume_mount"), ("scratch", "volumes")])
    def test_its_volume_must_be_there_and_last(self, name, argument):
        with pytest.raises(ConfigError, match="workdir_volume_mount") as caught:
            resolve(volumes=[VOLUME, SCRATCH], workdir_volume_mount={**MOUNT, "name": name})
        assert caught.value.argument == argument

    def test_the_layout_shares_nothing_with_the_caller(self):
        volume, mount = copy.deepcopy(VOLUME), copy.deepcopy(MOUNT)
        layout = resolve(volumes=[volume], workdir_volume_mount=mount)
        volume["persistentVolumeClaim"]["claimName"] = "other"
        mount["subPath"] = "other"
        assert (layout.volume, layout.mount) == (VOLUME, MOUNT)

    @pytest.mark.parametrize(
        ("said", "mover"),
        [
            pytest.param({}, {}, id="as-it-is"),
            pytest.param({"readOnly": True}, {}, id="read-only"),
            pytest.param({"readOnly": True, "recursiveReadOnly": "Enabled"}, {}, id="recursively-read-only"),
            pytest.param(
                {"mountPropagation": "HostToContainer"}, {"mountPropagation": "HostToContainer"}, id="propagation"
            ),
            pytest.param(
                {"mountPropagation": "Bidirectional"},
                {"mountPropagation": "HostToContainer"},
                id="privileged-propagation",
            ),
        ],
    )
    def test_the_copy_pod_sees_the_same_directory_and_may_write(self, said, mover):
        layout = resolve(workdir_volume_mount={**MOUNT, **said})
        assert layout.mount == {**MOUNT, **said}
        assert layout.mover_mount == {**MOUNT, **mover}


class TestMerging:
    layout = resolve(workdir_volume_mount=MOUNT)

    def test_volumes_are_joined_once_in_a_stable_order(self):
        others = [SCRATCH, VOLUME]
        once = self.layout.volumes(others)
        assert once == [SCRATCH, VOLUME]
        assert self.layout.volumes(once) == once
        assert self.layout.volumes([]) == [VOLUME]
        assert others == [SCRATCH, VOLUME]

    def test_mounts_are_joined_once_in_a_stable_order(self):
        data = {"name": "work", "mountPath": "/data", "subPath": "d"}
        once = self.layout.mounts([data])
        assert once == [data, MOUNT]
        assert self.layout.mounts(once) == once
        assert self.layout.mounts([]) == [MOUNT]

    def test_the_workdir_mount_may_be_repeated(self):
        assert self.layout.mounts([{**MOUNT, "mountPath": "/nemo_run/", "readOnly": False}]) == [MOUNT]

    def test_what_it_gives_is_new(self):
        self.layout.volumes([])[0]["persistentVolumeClaim"]["claimName"] = "x"
        self.layout.mounts([])[0]["subPath"] = "x"
        self.layout.mover_mount["subPath"] = "x"
        assert (self.layout.volume, self.layout.mount) == (VOLUME, MOUNT)

    def test_another_mount_may_name_a_volume_of_the_runtime(self):
        assert self.layout.mounts([{"name": "runtime", "mountPath": "/x"}])[0] == {"name": "runtime", "mountPath": "/x"}

    @pytest.mark.parametrize(
        "other",
        [{**MOUNT, "subPath": "team-b"}, {"name": "other", "mountPath": "/nemo_run"}],
        ids=["sub-path", "volume"],
    )
    def test_another_mount_at_its_path_is_refused_showing_both(self, other):
        with pytest.raises(ConfigError) as caught:
            self.layout.mounts([other])
        assert caught.value.value == [other, MOUNT]

    @pytest.mark.parametrize("path", ["/nemo_run/alice", "/nemo_run/alice/exp_1/train/code"])
    def test_a_mount_that_hides_the_code_is_refused(self, path):
        with pytest.raises(ConfigError, match="hide the code directory /nemo_run/alice/exp_1/train/code"):
            self.layout.mounts([{"name": "scratch", "mountPath": path}])

    @pytest.mark.parametrize("path", ["/nemo_run/data", "/nemo_run/alice/exp_1/train/code/data", "/nemo_run_shared"])
    def test_a_mount_that_does_not_is_fine(self, path):
        other = {"name": "scratch", "mountPath": path}
        assert self.layout.mounts([other]) == [other, MOUNT]

    def test_another_volume_of_its_name_is_refused(self):
        with pytest.raises(ConfigError, match="two different volumes are called 'work'"):
            self.layout.volumes([{"name": "work", "emptyDir": {}}])


class TestAmong:
    """A pod with volumes of its own."""

    layout = resolve(workdir_volume_mount=MOUNT)

    def test_a_claim_that_the_pod_has_already_is_not_declared_again(self):
        own = {"name": "own", "persistentVolumeClaim": {"claimName": "shared"}}
        here = self.layout.among([SCRATCH, own])
        assert here.volumes([SCRATCH, own]) == [SCRATCH, own]
        assert here.mount == {**MOUNT, "name": "own"}
        assert here.code_dir == self.layout.code_dir

    @pytest.mark.parametrize(
        "volumes",
        [
            [],
            [SCRATCH],
            [VOLUME],
            [{"name": "own", "persistentVolumeClaim": {"claimName": "shared"}}, VOLUME],
            [{"name": "own", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}}],
        ],
        ids=["none", "others", "the-same", "the-same-too", "read-only"],
    )
    def test_otherwise_it_stays(self, volumes):
        assert self.layout.among(volumes) is self.layout

    def test_a_volume_without_claim_stays(self):
        nfs = {"name": "work", "nfs": {"server": "nas", "path": "/"}}
        layout = resolve(volumes=[nfs], workdir_volume_mount=MOUNT)
        assert layout.among([SCRATCH]) is layout


class TestOldArguments:
    def test_a_claim_that_is_not_declared_is_added(self):
        layout = resolve(volumes=[SCRATCH], workdir_pvc="p", workdir_pvc_path="/nemo_run")
        added = {"name": DEPRECATED_VOLUME, "persistentVolumeClaim": {"claimName": "p"}}
        mount = {"name": DEPRECATED_VOLUME, "mountPath": "/nemo_run"}
        assert layout == WorkdirLayout(
            added,
            mount,
            PurePosixPath("/nemo_run/alice/exp_1/train/code"),
            f"volumes={[SCRATCH, added]!r}, workdir_volume_mount={mount!r}",
        )

    def test_a_path_that_is_not_given_is_the_old_default(self):
        assert resolve(workdir_pvc="p").mount["mountPath"] == "/nemo_run"

    def test_a_claim_that_is_declared_gets_the_mount_under_its_name(self):
        layout = resolve(workdir_pvc="shared", workdir_pvc_path="/nemo_run/")
        mount = {"name": "work", "mountPath": "/nemo_run"}
        assert (layout.volume, layout.mount) == (VOLUME, mount)
        assert layout.replaced == f"workdir_volume_mount={mount!r}"

    def test_a_mount_that_is_there_is_taken_with_its_sub_path(self):
        layout = resolve(
            volume_mounts=[{"name": "work", "mountPath": "/data"}, {**MOUNT, "mountPath": "/nemo_run/"}],
            workdir_pvc="shared",
            workdir_pvc_path="/nemo_run",
        )
        assert layout.mount == MOUNT
        assert layout.replaced == f"workdir_volume_mount={MOUNT!r}"

    def test_of_two_volumes_with_the_claim_the_mounted_one_is_taken(self):
        other = {"name": "other", "persistentVolumeClaim": {"claimName": "shared"}}
        mount = {"name": "other", "mountPath": "/nemo_run"}
        layout = resolve(volumes=[VOLUME, other], volume_mounts=[mount], workdir_pvc="shared")
        assert (layout.volume, layout.mount) == (other, mount)

    def test_mounts_elsewhere_are_not_taken(self):
        layout = resolve(volume_mounts=[{**MOUNT, "mountPath": "/data"}], workdir_pvc="shared")
        assert layout.mount == {"name": "work", "mountPath": "/nemo_run"}

    def test_what_to_write_instead_gives_the_same_layout(self):
        """The message can be taken literally."""
        old = resolve(volumes=[SCRATCH], workdir_pvc="p", workdir_pvc_path="/nemo-workspace")
        fields = eval(f"dict({old.replaced})")
        new = resolve(**fields)
        assert (new.volume, new.mount, new.code_dir, new.replaced) == (old.volume, old.mount, old.code_dir, None)

    @pytest.mark.parametrize(
        ("fields", "argument", "hint"),
        [
            pytest.param({"workdir_pvc_path": "nemo"}, "workdir_pvc_path", "must be absolute", id="relative"),
            pytest.param({"workdir_pvc_path": "/"}, "workdir_pvc_path", "container's own root", id="root"),
            pytest.param({"workdir_pvc": 7}, "workdir_pvc", "name of a PersistentVolumeClaim", id="no-text"),
            pytest.param(
                {"volumes": [{"name": "w", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}}]},
                "volumes",
                "remove its readOnly",
                id="read-only-claim",
            ),
            pytest.param(
                {"volume_mounts": [{"name": "work", "mountPath": "/nemo_run", "subPathExpr": "$(X)"}]},
                "volume_mounts",
                "into 'subPath'",
                id="sub-path-expression",
            ),
            pytest.param(
                {"volumes": [{"name": DEPRECATED_VOLUME, "emptyDir": {}}]},
                "volumes",
                "rename one",
                id="its-name-is-taken",
            ),
        ],
    )
    def test_what_cannot_be_mapped_is_refused(self, fields, argument, hint):
        with pytest.raises(ConfigError, match=hint) as caught:
            resolve(**{"workdir_pvc": "shared", **fields})
        assert caught.value.argument == argument

    def test_old_and_new_may_say_the_same(self):
        mount = {"name": "work", "mountPath": "/nemo_run"}
        layout = resolve(workdir_volume_mount=mount, workdir_pvc="shared", workdir_pvc_path="/nemo_run/")
        assert (layout.volume, layout.mount) == (VOLUME, mount)
        assert layout.replaced == f"workdir_volume_mount={mount!r}"

    def test_old_and_new_may_say_the_same_with_a_sub_path(self):
        layout = resolve(workdir_volume_mount=MOUNT, volume_mounts=[MOUNT], workdir_pvc="shared")
        assert layout.mount == MOUNT

    @pytest.mark.parametrize(
        "old",
        [
            {"workdir_pvc": "other"},
            {"workdir_pvc": "shared", "workdir_pvc_path": "/work"},
            {"workdir_pvc": "shared", "workdir_pvc_path": "/nemo_run"},
        ],
        ids=["claim", "path", "sub-path"],
    )
    def test_old_and_new_that_differ_are_refused(self, old):
        with pytest.raises(ConfigError, match="remove workdir_pvc and workdir_pvc_path") as caught:
            resolve(workdir_volume_mount=MOUNT, **old)
        assert (caught.value.argument, caught.value.value) == ("workdir_volume_mount", MOUNT)


class TestFirstMount:
    mounts = [MOUNT, {"name": "scratch", "mountPath": "/scratch"}]  # noqa: RUF012

    def resolve(self, **fields):
        fields = {"volumes": [VOLUME, SCRATCH], "volume_mounts": self.mounts, "first_mount": True} | fields
        return resolve(**fields, default_subpath="{user}/code/{workdir}")

    def test_it_stands_in_for_a_workdir_mount(self):
        assert self.resolve() == WorkdirLayout(
            VOLUME, MOUNT, PurePosixPath("/nemo_run/alice/code/src"), f"workdir_volume_mount={MOUNT!r}"
        )

    def test_only_where_it_is_asked_for(self):
        assert self.resolve(first_mount=False) is None

    def test_a_workdir_mount_comes_first(self):
        mount = {"name": "work", "mountPath": "/work"}
        layout = self.resolve(workdir_volume_mount=mount)
        assert (layout.mount, layout.replaced) == (mount, None)

    def test_no_mounts_at_all_are_no_workdir(self):
        assert self.resolve(volume_mounts=[]) is None

    @pytest.mark.parametrize(("name", "argument"), [("scratch", "volumes"), ("nope", "volume_mounts[0]")])
    def test_one_that_keeps_no_files_is_refused(self, name, argument):
        with pytest.raises(ConfigError, match=re.escape("volume_mounts[0]")) as caught:
            self.resolve(volume_mounts=[{"name": name, "mountPath": "/x"}])
        assert caught.value.argument == argument
