"""What setting up a pod's volumes leaves alone on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nemo_run.testing._volumes import CannotMount, Volumes

CONFIG_MAP = {"data": {"k": "text"}}


def volumes(tmp_path: Path, *entries: dict[str, Any], **context: Any) -> Volumes:
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"volumes": entries, "securityContext": context}}
    return Volumes(pod, tmp_path / "pod", lambda namespace, name: tmp_path / name, lambda *asked: CONFIG_MAP)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.root
def test_fs_group_does_not_reach_directories_of_the_machine(tmp_path):
    """Kubernetes leaves hostPath volumes alone, and so must what runs on somebody's laptop."""
    (tmp_path / "host").mkdir(mode=0o755)
    (tmp_path / "claim").mkdir(mode=0o755)
    host = {"name": "h", "hostPath": {"path": str(tmp_path / "host")}}
    claim = {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}}
    volumes(tmp_path, host, claim, fsGroup=2000).set_up()
    facts = [(tmp_path / name).stat() for name in ("host", "claim")]
    assert [(each.st_gid, oct(each.st_mode & 0o7777)) for each in facts] == [(0, "0o755"), (2000, "0o2775")]


@pytest.mark.parametrize("path", ["../out", "a/../../../out", "/out"])
def test_a_file_of_a_config_map_stays_in_its_volume(tmp_path, path):
    volume = {"name": "v", "configMap": {"name": "m", "items": [{"key": "k", "path": path}]}}
    with pytest.raises(CannotMount, match="invalid path"):
        volumes(tmp_path, volume).set_up()
    assert not list(tmp_path.rglob("out"))
