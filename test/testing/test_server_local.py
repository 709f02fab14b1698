"""LocalKube as a whole: what it changes while it runs, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from nemo_run._kube.resources import CLAIM, CONFIG_MAP, EVENT, POD
from nemo_run.testing import LocalKube, _homes
from nemo_run.testing.local import ENVIRONMENT

SLEEPER = """
from nemo_run.testing import LocalKube
kube = LocalKube()
kube.start()
print(kube.home, flush=True)
input()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of this test's own for the homes of LocalKubes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / f"nemo-run-localkube-{os.getuid()}"


def get(url: str) -> Any:
    with urllib.request.urlopen(url) as response:
        return json.load(response)


def test_nothing_is_left(temporary: Path) -> None:
    threads = threading.active_count()
    with LocalKube(claims=["shared"]) as kube:
        (kube.claim("shared") / "file").write_text("x")
        url = kube.url
        assert os.environ[ENVIRONMENT] == str(kube.kubeconfig)
    assert ENVIRONMENT not in os.environ
    assert not temporary.exists()
    assert threading.active_count() == threads
    with pytest.raises(OSError, match="refused"):
        get(f"{url}/version")


def test_nothing_is_left_after_an_error(temporary: Path) -> None:
    with pytest.raises(KeyError), LocalKube():
        raise KeyError
    assert not temporary.exists()
    assert ENVIRONMENT not in os.environ


@pytest.mark.parametrize("options", [{"trainer": "1.9"}, {"kuberay": "0.1"}])
def test_a_start_that_fails_leaves_nothing(temporary: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one of"), LocalKube(**options):
        pass
    assert not temporary.exists()
    assert ENVIRONMENT not in os.environ


def test_the_kubeconfig_is_for_its_owner_alone(kube: LocalKube) -> None:
    assert stat.S_IMODE(kube.kubeconfig.stat().st_mode) == 0o600
    assert stat.S_IMODE(kube.home.stat().st_mode) == 0o700
    config = json.loads(kube.kubeconfig.read_text())
    assert config["clusters"] == [{"name": "localkube", "cluster": {"server": kube.url}}]
    assert get(f"{kube.url}/version")["minor"] == "36"


def test_the_innermost_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "/outside")
    outer, inner = LocalKube(), LocalKube()
    with outer:
        with inner:
            assert os.environ[ENVIRONMENT] == str(inner.kubeconfig)
        assert os.environ[ENVIRONMENT] == str(outer.kubeconfig)
        inner.start()
    assert os.environ[ENVIRONMENT] == str(inner.kubeconfig)
    inner.stop()
    assert os.environ[ENVIRONMENT] == "/outside"


def test_claims_are_in_every_namespace_unless_one_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    with LocalKube(claims={"shared": mine, "team/own": tmp_path / "own"}) as kube:
        kube.namespace("other")
        found = kube.do(lambda store: [tuple(_place(claim)) for claim in store.list(CLAIM)])
        assert kube.claim("shared") == kube.claim("shared", "other") == mine
        assert kube.claim("new", "third") == kube.home / "claims" / "third" / "new"
    shared = [(name, "shared") for name in ("default", "kube-system", "kubeflow-system", "other", "team")]
    assert sorted(found) == sorted([*shared, ("team", "own")])
    assert mine.is_dir()


def _place(obj: dict[str, Any]) -> list[str]:
    return [obj["metadata"]["namespace"], obj["metadata"]["name"]]


@pytest.mark.parametrize("name", ["../x", "/x", "A", ""])
def test_a_claim_cannot_lead_elsewhere(kube: LocalKube, name: str) -> None:
    with pytest.raises(Exception, match=r"invalid|no name|required"):
        kube.claim(name)


def test_a_home_of_ones_own_is_kept(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with LocalKube(home=home, claims=["shared"]) as kube:
        (kube.claim("shared") / "file").write_text("x")
    assert (home / "claims/default/shared/file").read_text() == "x"
    assert not (home / "kubeconfig").exists()


def test_what_a_killed_one_left_is_swept(temporary: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", SLEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        home = Path(child.stdout.readline().strip())
        with LocalKube() as kube:
            assert home.exists()
            assert kube.home.parent == home.parent == temporary
        child.send_signal(signal.SIGKILL)
        child.wait()
        with LocalKube():
            assert not home.exists()


def test_a_process_of_the_same_number_is_not_the_owner(temporary: Path) -> None:
    """Process ids are used again: the start time tells them apart."""
    home = _homes.make_home()
    owner = json.loads((home / _homes.OWNER).read_text())
    assert _homes.sweep(lambda _: None) == []
    (home / _homes.OWNER).write_text(json.dumps({**owner, "started": "1"}))
    assert _homes.sweep(lambda _: None) == [home]


def test_a_home_of_another_pid_namespace_is_left_alone(temporary: Path) -> None:
    """A container that shares the directory has processes of its own: there, that number may be alive."""
    home = _homes.make_home()
    owner = json.loads((home / _homes.OWNER).read_text())
    (home / _homes.OWNER).write_text(json.dumps({**owner, "pid": 2**22, "namespace": "pid:[1]"}))
    assert _homes.sweep(lambda _: None) == []


def test_what_bears_no_mark_of_ours_is_left_alone(temporary: Path) -> None:
    home = temporary / "kube-mine"
    home.mkdir(parents=True)
    (home / "data").write_text("mine")
    os.utime(home, (0, 0))
    assert _homes.sweep(lambda _: None) == []
    (home / _homes.OWNER).write_text("{}")
    assert _homes.sweep(lambda _: None) == []
    assert (home / "data").read_text() == "mine"


def test_nothing_is_swept_behind_a_link(temporary: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    temporary.symlink_to(elsewhere)
    (elsewhere / "kube-x").mkdir(parents=True)
    os.utime(elsewhere / "kube-x", (0, 0))
    assert _homes.sweep(lambda _: None) == []
    with pytest.raises(OSError, match="a link"):
        _homes.remove_home(temporary)
    assert (elsewhere / "kube-x").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_home_with_a_mount_is_left_alone_whatever_its_path_is_called(tmp_path: Path) -> None:
    """The mount table knows no links and writes blanks its own way."""
    home, data = tmp_path / "real dir" / "kube-x", tmp_path / "data"
    (home / "claims").mkdir(parents=True)
    data.mkdir()
    (data / "f").touch()
    (tmp_path / "link").symlink_to("real dir")
    code = "import pathlib, sys; from nemo_run.testing import _homes; _homes.remove_home(pathlib.Path(sys.argv[1]))"
    mounting = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$5"'
    arguments = [str(data), str(home / "claims"), sys.executable, code, str(tmp_path / "link" / "kube-x")]
    done = subprocess.run(["unshare", "-m", "sh", "-c", mounting, "sh", *arguments], capture_output=True, text=True)
    assert "OSError: still mounted" in done.stderr
    assert (data / "f").exists()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_end_it(temporary: Path) -> None:
    """What is registered to run at exit runs in forked processes too."""
    with LocalKube() as kube:
        child = os.fork()
        if child == 0:
            kube.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert kube.home.exists()
        assert get(f"{kube.url}/version")


def test_a_home_of_the_users_keeps_what_is_in_it(temporary: Path, tmp_path: Path) -> None:
    """Even where its kubeconfig is a link to the user's own."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "config").write_text("mine")
    (home / "kubeconfig").symlink_to(tmp_path / "config")
    (home / "notes").write_text("mine")
    with LocalKube(home=home):
        assert json.loads((home / "kubeconfig").read_text())
    assert (tmp_path / "config").read_text() == (home / "notes").read_text() == "mine"


def test_a_home_that_is_just_being_made_is_left_alone(temporary: Path) -> None:
    temporary.mkdir()
    young = temporary / "kube-young"
    young.mkdir()
    assert _homes.sweep(lambda _: None) == []
    os.utime(young, (0, 0))
    assert _homes.sweep(lambda _: None) == [young]


def test_a_strangers_directory_is_not_used(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    temporary.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="TMPDIR"):
        _homes.make_home()


def test_rules_requests_and_compaction(kube: LocalKube) -> None:
    kube.rules = []
    assert kube.rules == []
    kube.rules = None
    get(f"{kube.url}/api/v1/namespaces")
    assert [(request.method, request.path, request.status) for request in kube.requests] == [
        ("GET", "/api/v1/namespaces", 200)
    ]
    kube.compact()
    with pytest.raises(Exception, match="too old resource version"):
        kube.do(lambda store: store.subscribe(EVENT, since=1))


@pytest.mark.parametrize("trainer", ["2.1", "2.2", "2.3"])
def test_trainer_says_its_version_from_2_2_on(trainer: str) -> None:
    with LocalKube(trainer=trainer) as kube:
        maps = kube.do(lambda store: store.list(CONFIG_MAP, "kubeflow-system"))
    expected = {"2.1": [], "2.2": ["v2.2.1"], "2.3": ["v2.3.0"]}[trainer]
    assert [each["data"]["kubeflow_trainer_version"] for each in maps] == expected


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-m", "nemo_run.testing", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)


def test_a_script_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys\n"
        "config = json.load(open(os.environ['NEMO_RUN_LOCAL_KUBE']))\n"
        "assert os.environ['KUBECONFIG'] == os.environ['NEMO_RUN_LOCAL_KUBE']\n"
        "print(config['current-context'], *sys.argv[1:])\n"
        "sys.exit(3)\n"
    )
    done = run("--claim", "shared", "--namespace", "team", str(script), "--trainer", "x", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, "localkube --trainer x\n", "")


def test_a_module_can_be_run_too(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("import sys\nprint(sys.argv[1:])\n")
    done = run("-m", "module", "a", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "['a']\n")


def test_a_script_that_a_signal_ended(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert run("script.py", cwd=tmp_path).returncode == 137


def test_a_program_must_be_named(tmp_path: Path) -> None:
    done = run(cwd=tmp_path)
    assert done.returncode == 2
    assert "SCRIPT" in done.stderr


def test_a_namespace_is_there_when_it_is_used_and_a_claim_unless_they_are_listed() -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "i", "command": ["true"]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        },
    }

    def claims(**options: object) -> list[str]:
        with LocalKube(**options) as kube:  # type: ignore[arg-type]
            kube.do(lambda store: store.create(POD, "team", pod))
            return [claim["metadata"]["name"] for claim in kube.do(lambda store: store.list(CLAIM, "team"))]

    assert claims() == ["data"]
    assert claims(claims=["other"]) == ["other"]
