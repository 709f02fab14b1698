"""The job finds its code, wherever the volume is mounted and whatever the directory is called."""

from __future__ import annotations

import getpass
from concurrent.futures import ThreadPoolExecutor

import pytest

import nemo_run as run

USER = getpass.getuser()


@pytest.mark.parametrize("mount_path", ["/nemo_run", "/data", "/nemo_run_shared", "/nemo_run/shared"])
@pytest.mark.parametrize("code_subpath", [None, "{user}", "", "code", "a/{user}/b c"])
def test_the_code_is_the_working_directory(local, mount_path, code_subpath):
    executor = local.executor(
        workdir_volume_mount={"name": "work", "mountPath": mount_path, "subPath": "team-a"}, code_subpath=code_subpath
    )
    outcome = local.run(executor)
    assert outcome.status == "SUCCEEDED", outcome.log
    directory = outcome.probe["env"]["NEMO_RUN_DIR"]
    assert directory.startswith(mount_path)
    assert outcome.probe["cwd"] == f"{directory}/code"
    assert {"launch.sh", "code/probe.py"} <= set(outcome.probe["beside"])
    linked = mount_path in ("/data", "/nemo_run_shared")
    assert outcome.probe["link"] == (directory if linked else None)


@pytest.mark.parametrize(
    "security",
    [
        pytest.param({"runAsUser": 1000, "runAsGroup": 1000}, id="uid 1000"),
        pytest.param({"readOnlyRootFilesystem": True}, id="read-only root"),
        pytest.param({"readOnlyRootFilesystem": True, "runAsUser": 1000}, id="both"),
    ],
)
@pytest.mark.parametrize("mount_path", ["/nemo_run", "/data"])
@pytest.mark.root
def test_an_ordinary_user_and_a_read_only_root_can_run_it(local, mount_path, security):
    executor = local.executor(
        workdir_volume_mount={"name": "work", "mountPath": mount_path},
        container_kwargs={"securityContext": security},
    )
    outcome = local.run(executor)
    assert outcome.status == "SUCCEEDED", outcome.log
    assert outcome.probe["uid"] == security.get("runAsUser", 0)


def test_a_stale_link_on_the_volume_is_replaced_and_never_followed(local):
    """NeMo-Run left ``/nemo_run/code`` links to other jobs' directories on shared claims."""
    other = local.claim / "team-a" / "other" / "code"
    other.mkdir(parents=True)
    (other / "launch.sh").write_text("exit 9")
    (local.claim / "team-a" / "code").symlink_to("/nemo_run/other/code")
    outcome = local.run(local.executor(code_subpath="code"))
    assert outcome.status == "SUCCEEDED", outcome.log
    assert (other / "launch.sh").read_text() == "exit 9"
    assert not (local.claim / "team-a" / "code").is_symlink()


def test_every_node_reads_what_the_copy_pod_wrote(cluster, every_dialect):
    """The mount stands in workdir_volume_mount alone."""
    outcome = cluster.run(cluster.executor(num_nodes=2, volume_mounts=[]))
    assert outcome.status == "SUCCEEDED", outcome.log
    assert [probe["file"] for probe in outcome.probes] == [True, True]
    assert {probe["env"]["PET_NODE_RANK"] for probe in outcome.probes} == {"0", "1"}


def test_one_volume_can_stand_at_two_paths(local, every_dialect):
    (local.claim / "datasets").mkdir()
    (local.claim / "datasets" / "x.txt").write_text("words")
    executor = local.executor(volume_mounts=[{"name": "work", "mountPath": "/datasets", "subPath": "datasets"}])
    outcome = local.run(executor, run.Script(inline="cat /datasets/x.txt; ls $NEMO_RUN_DIR/launch.sh"))
    assert outcome.status == "SUCCEEDED", outcome.log
    assert "words" in outcome.log


def test_one_path_cannot_hold_two_mounts(local):
    executor = local.executor(volume_mounts=[{"name": "work", "mountPath": "/nemo_run", "subPath": "team-b"}])
    with pytest.raises(ValueError, match=r"(?s)team-b.*team-a"):
        local.run(executor)
    assert not [request for request in local.kube.requests if request.method == "POST"]


def test_ten_jobs_at_once_share_a_claim_and_nothing_else(local):
    executor = local.executor(env_vars={"X": "1"})
    with ThreadPoolExecutor(10) as pool:
        outcomes = list(pool.map(lambda number: local.run(executor, name=f"job{number}"), range(10)))
    assert [outcome.status for outcome in outcomes] == ["SUCCEEDED"] * 10
    assert len({outcome.probe["cwd"] for outcome in outcomes}) == 10
    assert all(len(outcome.probes) == 1 for outcome in outcomes)
    assert [path.name for path in local.claim.iterdir()] == ["team-a"]
    assert [path.name for path in (local.claim / "team-a").iterdir()] == [USER]


def test_an_inline_script_is_sent_and_runs(cluster):
    outcome = cluster.run(cluster.executor(packager=run.Packager()), run.Script(inline="echo it runs in $PWD\nexit 0"))
    assert outcome.status == "SUCCEEDED", outcome.log
    assert "it runs in " in outcome.log


def test_without_a_workdir_the_script_travels_in_the_manifest(cluster):
    executor = cluster.executor(volumes=[], workdir_volume_mount=None, packager=run.Packager())
    outcome = cluster.run(executor, run.Script(path="-c", entrypoint="bash", args=["echo no volume needed"]))
    assert outcome.status == "SUCCEEDED", outcome.log
    assert "no volume needed" in outcome.log


def test_a_failing_job_says_where_and_how(cluster, capfd):
    outcome = cluster.run(cluster.executor(), run.Script(inline="echo about to fail; exit 3"))
    assert outcome.status == "FAILED"
    assert "about to fail" in outcome.log
    said = capfd.readouterr()
    assert "exit code 3" in said.out + said.err
