"""What the packager gives lies in ``<job_dir>/code``, and nobody's files are lost for it."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import pytest

from nemo_run.core.execution._files import pack_code
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError


@dataclass(kw_only=True)
class Packs(Packager):
    """Packs texts, to where it is asked to or to *place*."""

    files: dict[str, str] = field(default_factory=dict)
    place: str = ""

    def package(self, path: Path, job_dir: str, name: str) -> str:
        archive = self.place or str(Path(job_dir, f"{name}.tar.gz"))
        with tarfile.open(archive, "w:gz") as tar:
            for member, text in self.files.items():
                info = tarfile.TarInfo(member)
                info.size = len(text)
                tar.addfile(info, BytesIO(text.encode()))
        return archive


def texts(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_packing_again_replaces_what_was_packed_and_keeps_results(tmp_path):
    pack_code(Packs(files={"a/b.py": "1", "a/old.py": "1", "gone/x.py": "1"}), tmp_path, "train")
    (tmp_path / "code/a/result").write_text("pulled back")
    pack_code(Packs(files={"./a/b.py": "2"}), tmp_path, "train")
    assert texts(tmp_path / "code") == {"a/b.py": "2", "a/result": "pulled back"}
    assert not (tmp_path / "code/gone").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".nemo_run-packed", "code"]


@pytest.mark.parametrize("kind", ["directory", "link", "file"])
def test_what_others_call_code_is_left_alone(tmp_path, kind):
    """A job directory may be one of the user's."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x.py").write_text("mine")
    if kind == "directory":
        (tmp_path / "mine").rename(tmp_path / "code")
    elif kind == "link":
        (tmp_path / "code").symlink_to("mine")
    else:
        (tmp_path / "code").write_text("mine")
    before = texts(tmp_path)
    with pytest.raises(ConfigError, match="was not made by nemo_run"):
        pack_code(Packs(files={"x.py": "ours"}), tmp_path, "train")
    assert texts(tmp_path) == before


def test_an_empty_code_directory_is_in_nobodys_way(tmp_path):
    (tmp_path / "code").mkdir()
    pack_code(Packs(files={"x.py": "1"}), tmp_path, "train")
    assert texts(tmp_path / "code") == {"x.py": "1"}


def test_a_list_that_was_tampered_with_removes_nothing_elsewhere(tmp_path):
    job = tmp_path / "job"
    pack_code(Packs(files={"x.py": "1"}), job, "train")
    (tmp_path / "kept").write_text("kept")
    (job / "kept").write_text("kept")
    (job / "code" / "up").symlink_to("..")
    (job / ".nemo_run-packed").write_text(f"../kept\0../../kept\0{tmp_path}/kept\0up/kept\0.\0")
    pack_code(Packs(files={"x.py": "2"}), job, "train")
    assert (tmp_path / "kept").read_text() == (job / "kept").read_text() == "kept"


def test_an_archive_that_is_kept_elsewhere_stays(tmp_path):
    archive = tmp_path / "kept.tar.gz"
    pack_code(Packs(files={"x.py": "1"}, place=str(archive)), tmp_path / "job", "train")
    assert archive.is_file()


def test_a_name_never_leads_out_of_the_job_directory(tmp_path):
    (tmp_path / "x.tar.gz").write_text("kept")
    pack_code(Packs(files={"x.py": "1"}), tmp_path / "job", "../x")
    assert (tmp_path / "x.tar.gz").read_text() == "kept"
    assert texts(tmp_path / "job" / "code") == {"x.py": "1"}
