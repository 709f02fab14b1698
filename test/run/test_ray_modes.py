"""Ray jobs in other modes and on other releases of KubeRay, and those that KubeRay refuses or tries again."""

from __future__ import annotations

import pytest
from raying import WORK, ray_kube, tree, workdir_executor

from nemo_run._kube.api import connect
from nemo_run._kube.exec import PodRef, run_exec
from nemo_run._kube.resources import POD, RAYJOB
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup
from nemo_run.exceptions import ConfigError, NotFound
from nemo_run.run.ray.kuberay import KubeRayCluster, KubeRayJob
from nemo_run.testing import LocalKube


@pytest.fixture(params=["1.3", "1.5", "1.7"])
def every_release(request):
    with ray_kube(request.param) as kube:
        yield request.param, kube


@pytest.fixture(scope="module")
def running():
    with ray_kube() as kube:
        yield kube


@pytest.fixture
def kube(running, monkeypatch):
    """One cluster for the tests that need no release of their own."""
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(running.kubeconfig))
    return running


def submitted(job, command, **spec):
    """Create the RayJob as somebody else might, with *spec* over its own; None removes."""
    body = job.start(command=command, dryrun=True)
    merged = {**body["spec"], **spec}
    body["spec"] = {key: value for key, value in merged.items() if value is not None}
    connect().create(RAYJOB, "default", body)


def followed(job):
    return job.follow_logs_until_completion(poll_interval=1, delete_on_finish=False)


def test_every_release_runs_a_job_to_its_end(every_release, capsys, tmp_path):
    release, _ = every_release
    job = KubeRayJob(name="Some_Long.Name@that-is-49-characters-in-all-1234", executor=workdir_executor())
    job.start(command="cat a; exit 4", workdir=str(tree(tmp_path / "src", {"a": "text\n"})))
    status = followed(job)
    assert (status["jobStatus"], status["jobDeploymentStatus"]) == ("FAILED", "Failed"), release
    assert "text\n" in capsys.readouterr().out
    assert len(job.job_name) <= 47


def test_a_directory_can_be_named_after_the_job(tmp_path):
    executor = workdir_executor(code_subpath="{job_name}/{workdir}")
    code = str(tree(tmp_path / "src", {"a": ""}))
    job = KubeRayJob(name="eval 1", executor=executor).start("x", workdir=code, dryrun=True)
    assert job["metadata"]["annotations"]["nemo-run/code-dir"] == "/nemo_run/eval 1/src"
    cluster = KubeRayCluster(name="dev", executor=executor).create(dryrun=True)
    assert cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["workingDir"] == "/nemo_run/dev"


def test_without_kuberay_that_is_what_is_said():
    with LocalKube():
        with pytest.raises(NotFound, match="install KubeRay"):
            KubeRayJob(name="x", executor=KubeRayExecutor()).start(command="true")
        with pytest.raises(NotFound, match="install KubeRay"):
            KubeRayCluster(name="x", executor=KubeRayExecutor()).create()


def test_an_invalid_job_ends_on_every_release(every_release, capsys):
    """Up to 1.4 an event tells of it, and nothing else."""
    job = KubeRayJob(name="invalid", executor=KubeRayExecutor())
    submitted(job, "true", shutdownAfterJobFinishes=False, ttlSecondsAfterFinished=60)
    status = followed(job)
    assert status["jobDeploymentStatus"] == "ValidationFailed"
    assert "shutdown" in status["message"]


@pytest.mark.parametrize("mode", ["HTTPMode", "SidecarMode"])
def test_logs_come_without_a_submitter_pod(kube, mode, capsys):
    job = KubeRayJob(name=f"mode-{mode.lower()}", executor=KubeRayExecutor())
    command = "for i in 1 2 3; do echo line $i; sleep 0.5; done"
    submitted(job, command, submissionMode=mode, submitterPodTemplate=None, shutdownAfterJobFinishes=False)
    assert followed(job)["jobStatus"] == "SUCCEEDED"
    out = capsys.readouterr().out
    assert [out.count(f"line {number}\n") for number in (1, 2, 3)] == [1, 1, 1]
    job.logs(lines=50)
    assert "line 3\n" in capsys.readouterr().out
    job.stop()


def test_another_try_is_no_end(kube, capsys, tmp_path):
    executor = workdir_executor(retries=1, code_subpath="retried")
    job = KubeRayJob(name="retried", executor=executor)
    code = tree(tmp_path / "src", {"a": ""})
    job.start(command="if [ -f tried ]; then echo second; else touch tried; echo first; exit 1; fi", workdir=str(code))
    assert followed(job)["jobStatus"] == "SUCCEEDED"
    out = capsys.readouterr().out
    assert "first\n" in out
    assert "second\n" in out
    job.stop()


def test_a_newer_field_is_refused_by_its_name_on_an_older_release():
    with ray_kube("1.5"):
        job = KubeRayJob(name="deadline", executor=KubeRayExecutor(pre_running_deadline_seconds=60))
        with pytest.raises(ConfigError, match=r"pre_running_deadline_seconds=60: it needs KubeRay 1.6"):
            job.start(command="true")


def test_a_field_passed_through_that_this_release_does_not_know_is_left_out_with_a_warning(caplog):
    with ray_kube("1.3") as kube:
        executor = KubeRayExecutor(spec_kwargs={"hostnameOverride": "x"})
        cluster = KubeRayCluster(name="older", executor=executor)
        cluster.create()
        assert "spec_kwargs['hostnameOverride']" in caplog.text
        executor.strict = True
        with pytest.raises(ConfigError, match="hostnameOverride"):
            KubeRayJob(name="older", executor=executor).start(command="true")
        assert kube.do(lambda store: store.list(RAYJOB, "default")) == []


@pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "own"])
def test_every_container_reads_the_synced_file_where_it_starts(kube, reuse, tmp_path):
    """The mount stands in workdir_volume_mount alone; one group has a volume of its own besides."""
    scratch = {"name": "scratch", "emptyDir": {}}
    groups = [
        KubeRayWorkerGroup("plain"),
        KubeRayWorkerGroup("own", volumes=[scratch], volume_mounts=[{"name": "scratch", "mountPath": "/scratch"}]),
    ]
    executor = workdir_executor(
        volumes=[WORK, {"name": "data", "emptyDir": {}}],
        volume_mounts=[{"name": "data", "mountPath": "/data"}],
        worker_groups=groups,
        reuse_volumes_in_worker_groups=reuse,
        code_subpath=f"each-{reuse}",
    )
    job = KubeRayJob(name=f"each-{reuse}".lower(), executor=executor)
    job.start(command="sleep 300", workdir=str(tree(tmp_path / "src", {"a.txt": "synced\n"})))
    api = connect()
    pods = []
    for _ in range(300):
        cluster = job.status(display=False)["rayClusterName"]
        pods = api.list(POD, "default", labels=f"ray.io/cluster={cluster}") if cluster else []
        if len(pods) == 3 and all(pod["status"].get("phase") == "Running" for pod in pods):
            break
        job._clock.sleep(0.2)
    read = [
        run_exec(
            api, PodRef("default", pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]), ["cat", "a.txt"]
        )
        for pod in pods
    ]
    assert [result.stdout for result in read] == [b"synced\n"] * 3
    mounted = {
        pod["metadata"]["labels"]["ray.io/group"]: {
            m["mountPath"] for m in pod["spec"]["containers"][0]["volumeMounts"]
        }
        for pod in pods
    }
    assert {"/nemo_run", "/data"} <= mounted["headgroup"]
    assert ("/data" in mounted["plain"]) is reuse
    assert "/scratch" in mounted["own"]
    job.stop()


def test_another_live_job_in_the_same_directory_is_told(kube, tmp_path, caplog):
    code = tree(tmp_path / "shared-dir", {"a": "1"})
    first = KubeRayJob(name="first-here", executor=workdir_executor())
    first.start(command="sleep 300", workdir=str(code))
    second = KubeRayJob(name="second-here", executor=workdir_executor())
    second.start(command="true", workdir=str(code))
    assert f"RayJob {first.job_name} runs in" in caplog.text
    first.stop()
    second.stop()
