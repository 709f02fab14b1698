"""The launch script in a container of its own: wherever the volume is mounted, whoever runs it."""

from __future__ import annotations

import os
import shlex
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pytest

from nemo_run.core.execution._script import Workdir, launch_script, with_parents

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts an overlay and changes uids; LocalKube's tests do without"),
]

SHOW = ["bash", "-c", 'pwd; readlink /nemo_run || echo no link; printenv NEMO_RUN_DIR; printf "%s\n" "$@"', "show"]

_BOX = """
set -e
mount -t tmpfs t {box}; mkdir {box}/u {box}/w {box}/m
mount -t overlay o -o lowerdir=/,upperdir={box}/u,workdir={box}/w,userxattr {box}/m
chmod 755 {box} {box}/m
{prepare}
mkdir -p {box}/m{mount_path}
mount --bind {volume} {box}/m{mount_path}
{readonly}
exec chroot --userspec={uid}:{uid} {box}/m env -i PATH=/usr/bin:/bin HOME=/ bash {script}
"""


@dataclass
class Box:
    """A container with one volume."""

    tmp_path: Path
    mount_path: str
    code_subpath: str
    uid: int = 0
    readonly: bool = False
    prepare: str = ""
    """Commands that change the image, whose root is ``$m``."""
    files: list[str] = field(default_factory=list)

    @property
    def code_dir(self) -> PurePosixPath:
        return PurePosixPath(self.mount_path) / self.code_subpath

    @property
    def volume(self) -> Path:
        return self.tmp_path / "volume"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Copy a launch script and the files to the volume, and run it as the container's command."""
        code = self.volume / self.code_subpath
        for name in self.files:
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            (code / name).write_text(name)
        workdir = Workdir(
            code_dir=self.code_dir,
            mount_paths=[PurePosixPath(self.mount_path)],
            sent=with_parents(map(PurePosixPath, self.files)),
        )
        code.mkdir(parents=True, exist_ok=True)
        (code / "launch.sh").write_text(launch_script([*SHOW, *arguments], exports=(), workdir=workdir))
        box = self.tmp_path / "box"
        box.mkdir(exist_ok=True)
        inside = _BOX.format(
            box=box,
            prepare=f"m={box}/m; {self.prepare}",
            mount_path=self.mount_path,
            volume=self.volume,
            readonly=f"mount -o remount,ro {box}/m" if self.readonly else "",
            uid=self.uid,
            script=shlex.quote(str(self.code_dir / "launch.sh")),
        )
        command = ["unshare", "--mount", "--pid", "--fork", "--propagation", "private", "sh", "-c", inside]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)


PLACES = {
    "at /nemo_run": "/nemo_run",
    "elsewhere": "/data/work",
    "beside /nemo_run": "/nemo_run_shared",
    "below /nemo_run": "/nemo_run/shared",
}
SUBPATHS = {"user": "alice", "mount itself": "", "code": "code", "nested": "alice/exp_1/task/code", "odd": "a b/$X/é"}


@pytest.mark.parametrize("code_subpath", SUBPATHS.values(), ids=SUBPATHS)
@pytest.mark.parametrize("mount_path", PLACES.values(), ids=PLACES)
def test_the_task_starts_in_its_code(tmp_path, mount_path, code_subpath):
    box = Box(tmp_path, mount_path, code_subpath, files=["code/a.py", "configs/c"])
    done = box.run("/nemo_run/code/a.py", "/nemo_run/code/other")
    linked = mount_path in ("/data/work", "/nemo_run_shared")
    code = "/nemo_run/code/a.py" if linked else f"{box.code_dir}/code/a.py"
    assert done.stdout.splitlines() == [
        f"{box.code_dir}/code",
        str(box.code_dir) if linked else "no link",
        str(box.code_dir),
        code,
        "/nemo_run/code/other",
    ]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("mount_path", PLACES.values(), ids=PLACES)
def test_without_packaged_code_the_images_own_directory_stands(tmp_path, mount_path):
    done = Box(tmp_path, mount_path, "alice", files=["scripts/s.sh"]).run()
    assert done.stdout.splitlines()[0] == "/"
    assert done.returncode == 0


@pytest.mark.parametrize("mount_path", PLACES.values(), ids=PLACES)
def test_nothing_is_written_to_the_volume(tmp_path, mount_path):
    box = Box(tmp_path, mount_path, "alice", files=["code/a.py"])
    box.run()
    found = sorted(str(path.relative_to(box.volume)) for path in box.volume.rglob("*"))
    assert found == ["alice", "alice/code", "alice/code/a.py", "alice/launch.sh"]


@pytest.mark.parametrize("readonly", [False, True], ids=["writable", "read-only"])
@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("mount_path", ["/nemo_run", "/data/work"])
def test_who_may_not_write_to_the_root_is_warned_and_still_finds_the_files(tmp_path, mount_path, uid, readonly):
    box = Box(tmp_path, mount_path, "alice", uid=uid, readonly=readonly, files=["code/a.py"])
    done = box.run("/nemo_run/code/a.py")
    may_link = uid == 0 and not readonly
    tried = mount_path == "/data/work"
    assert done.returncode == 0, done.stderr
    assert ("cannot link /nemo_run" in done.stderr) == (tried and not may_link)
    expected = "/nemo_run/code/a.py" if tried and may_link else f"{box.code_dir}/code/a.py"
    assert done.stdout.splitlines()[-1] == expected


def test_a_directory_of_the_image_at_nemo_run_is_left_alone(tmp_path):
    """NeMo-Run made a link inside it."""
    box = Box(
        tmp_path, "/data", "alice", files=["code/a.py"], prepare="mkdir -p $m/nemo_run/code; touch $m/nemo_run/mine"
    )
    done = box.run("/nemo_run/code/a.py")
    assert done.stdout.splitlines()[1:] == ["no link", "/data/alice", "/data/alice/code/a.py"]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("target", ["/data/other", "/no/such/place"])
def test_a_link_of_the_image_at_nemo_run_is_replaced(tmp_path, target):
    box = Box(tmp_path, "/data", "alice", files=["code/a.py"], prepare=f"mkdir -p $m/data; ln -s {target} $m/nemo_run")
    done = box.run()
    assert done.stdout.splitlines()[1] == "/data/alice"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_link_that_is_right_already_is_kept_by_who_may_not_write(tmp_path):
    """As after a restart of the container."""
    box = Box(tmp_path, "/data", "alice", uid=1000, files=["code/a.py"], prepare="ln -s /data/alice $m/nemo_run")
    done = box.run("/nemo_run/code/a.py")
    assert done.stdout.splitlines()[1:] == ["/data/alice", "/data/alice", "/nemo_run/code/a.py"]
    assert (done.returncode, done.stderr) == (0, "")


def test_code_that_is_missing_ends_the_job_with_the_reason(tmp_path):
    workdir = Workdir(
        code_dir=PurePosixPath(f"/no-such-{uuid.uuid4().hex}"),
        mount_paths=[PurePosixPath("/nemo_run")],
        sent=["code/a"],
    )
    text = launch_script(SHOW, exports=(), workdir=workdir)
    done = subprocess.run(["bash", "-c", text, "launch.sh"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "No such file or directory" in done.stderr
