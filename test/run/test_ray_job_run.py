"""Ray jobs from start to end on a cluster with KubeRay."""

from __future__ import annotations

import _thread
import getpass
import json
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from raying import MOUNT, WORK, created, listing, movers, ray_kube, tree, workdir_executor

from nemo_run._kube.api import connect
from nemo_run._kube.resources import RAYJOB
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup, sync_workdir_via_pod
from nemo_run.exceptions import ConfigError, Conflict, NotFound, ServerError, Unreachable
from nemo_run.run.ray import _jobs
from nemo_run.run.ray.job import RayJob
from nemo_run.testing import Cut, Pod, Respond

USER = getpass.getuser()
COMMAND = """echo a && python -c 'print("$HOME `id` (1)")' | cat; echo $(basename $PWD) é; cat data/x.txt; exit 3"""


@pytest.fixture(scope="module")
def running():
    with ray_kube() as kube:
        yield kube


@pytest.fixture
def kube(running, monkeypatch):
    """One cluster for all tests here: a start of its own for each would take longer than the jobs."""
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(running.kubeconfig))
    return running


@pytest.fixture
def job(request, kube):
    """A job with a name of its own, which is gone after the test."""
    made = RayJob(name=f"t{abs(hash(request.node.name)) % 10**8}", executor=workdir_executor(), log_level="ERROR")
    yield made
    made.stop()


def ended(job):
    """Follow *job* to its end and give its status."""
    return job.backend.follow_logs_until_completion(poll_interval=1, delete_on_finish=False)


def test_a_command_runs_in_the_code_as_a_shell_would_run_it(kube, job, tmp_path, capsys):
    code = tree(tmp_path / "src", {"data/x.txt": "from the file\n", ".gitignore": "junk\n", "junk": "x", ".git/c": "x"})
    job.executor.worker_groups = [KubeRayWorkerGroup("w")]
    assert job.start(command=COMMAND, workdir=str(code)) is None
    assert movers(kube) == []
    status = ended(job)
    assert (status["jobStatus"], status["jobDeploymentStatus"], status["reason"]) == ("FAILED", "Failed", "AppFailed")
    assert "exit code 3" in status["message"]
    assert "a\n$HOME `id` (1)\nsrc é\nfrom the file\n" in capsys.readouterr().out
    place = kube.claim("shared") / "team-a" / USER / "code" / "src"
    assert listing(place) == {".gitignore": "junk\n", "data/x.txt": "from the file\n"}


def test_a_second_start_sends_what_changed_and_keeps_what_jobs_wrote(kube, job, tmp_path, capsys):
    code = tree(tmp_path / "again", {"a.py": "1", "gone.py": "1", "old/b.py": "1"})
    job.start(command="echo checkpoint > ckpt; echo x > old/made", workdir=str(code))
    assert ended(job)["jobStatus"] == "SUCCEEDED"
    job.stop(wait=True)
    (code / "gone.py").unlink()
    (code / "old" / "b.py").unlink()
    (code / "a.py").write_text("2")
    job.start(command="true", workdir=str(code))
    place = kube.claim("shared") / "team-a" / USER / "code" / "again"
    assert listing(place) == {"a.py": "2", "ckpt": "checkpoint\n", "old/made": "x\n"}


def test_without_a_volume_the_command_travels_in_the_manifest(kube, job, capsys):
    job.executor = job.backend.executor = KubeRayExecutor()
    job.start(command=["python3", "-c", "print('$HOME', \"it's\")"], workdir=None)
    status = ended(job)
    assert (status["jobStatus"], status["jobDeploymentStatus"]) == ("SUCCEEDED", "Complete")
    assert "$HOME it's\n" in capsys.readouterr().out
    assert job.status(display=False)["jobStatus"] == "SUCCEEDED"
    job.logs(lines=3)
    assert capsys.readouterr().out.count("\n") == 3
    job.stop(wait=True)
    assert job.status(display=False)["jobStatus"] == "SUCCEEDED"


def test_a_name_that_is_taken_is_an_error_before_anything_is_copied(kube, job, tmp_path):
    code = tree(tmp_path / "taken", {"a": "1"})
    job.start(command="sleep 60", workdir=str(code))
    before = len(created(kube, "pods"))
    with pytest.raises(Conflict, match=r"already exists.*stop it"):
        RayJob(name=job.name, executor=job.executor, log_level="ERROR").start(command="x", workdir=str(code))
    assert len(created(kube, "pods")) == before


def test_a_job_that_somebody_deletes_ends(kube, job, capsys):
    job.start(command="sleep 60", workdir=None)
    name = job.backend.job_name
    timer = threading.Timer(2, lambda: kube.do(lambda store: store.delete(RAYJOB, "default", name)))
    timer.start()
    status = ended(job)
    timer.join()
    assert (status["jobStatus"], status["jobDeploymentStatus"], status["reason"]) == ("STOPPED", "Failed", "Deleted")


def test_following_can_have_an_end(kube, job, caplog):
    job.start(command="sleep 60", workdir=None)
    job.log_level = "WARNING"
    job.logs(follow=True, timeout=1)
    assert "did not happen within 1 s; last seen:" in caplog.text


def test_lost_streams_and_answers_change_nothing(kube, job, capsys):
    """The end is read off the RayJob, never off a stream."""
    with kube.fault(Cut("log", after_bytes=200, times=3), Respond(503, on="GET */rayjobs/*", times=3)):
        job.start(command="for i in 1 2 3 4 5 6; do echo line $i; sleep 0.3; done", workdir=None)
        assert ended(job)["jobStatus"] == "SUCCEEDED"
    out = capsys.readouterr().out
    assert [out.count(f"line {number}\n") for number in range(1, 7)] == [1] * 6


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Cut("POST */rayjobs", carried_out=True, times=None), id="answer lost"),
        pytest.param(Respond(500, on="POST */rayjobs"), id="500"),
    ],
)
def test_a_create_that_fails_leaves_nothing(kube, job, fault):
    body = job.start(command="x", workdir=None, dryrun=True)
    api = connect().patient(0)
    with ExitStack() as stack:
        how = {"strict": True, "told": set(), "secrets": []}
        with pytest.raises((ServerError, Unreachable, Conflict)):
            _jobs.submit(api, body, {}, before=lambda: stack.enter_context(kube.fault(fault)), **how)
    with pytest.raises(NotFound):
        job.status()


def test_an_answer_that_got_lost_once_is_no_failure(kube, job):
    body = job.start(command="true", workdir=None, dryrun=True)
    with ExitStack() as stack:
        fault = kube.fault(Cut("POST */rayjobs", carried_out=True, times=1))
        how = {"strict": True, "told": set(), "secrets": []}
        stored = _jobs.submit(connect(), body, {}, before=lambda: stack.enter_context(fault), **how)
    assert (
        stored["metadata"]["uid"]
        == kube.do(lambda store: store.get(RAYJOB, "default", job.backend.job_name))["metadata"]["uid"]
    )


def test_ctrl_c_while_files_are_copied_leaves_nothing(kube, job, tmp_path):
    code = tree(tmp_path / "interrupted", {"a": "1"})
    timer = threading.Timer(2, _thread.interrupt_main)
    with kube.fault(Pod("*data-mover*", "never-ready")):
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            job.start(command="x", workdir=str(code))
    timer.join()
    assert movers(kube) == []
    with pytest.raises(NotFound):
        job.status()


def test_ctrl_c_while_a_job_is_followed_leaves_it_running(kube, job, caplog):
    job.start(command="sleep 60", workdir=None)
    timer = threading.Timer(1, _thread.interrupt_main)
    timer.start()
    job.log_level = "WARNING"
    with pytest.raises(KeyboardInterrupt) as interrupted:
        job.logs(follow=True)
    timer.join()
    assert interrupted.value.code == 130
    assert f"keeps running. To see it, or to end it, from any process:\n  RayJob(name={job.name!r}, " in caplog.text
    assert job.status(display=False)["reason"] == ""


@pytest.mark.parametrize("broken", [Respond(403, on="POST */rayjobs"), Respond(422, on="POST */rayjobs")])
def test_a_refusal_is_raised_and_nothing_is_copied(kube, job, tmp_path, broken):
    before = len(created(kube, "pods"))
    with kube.fault(broken), pytest.raises(RuntimeError):
        job.start(command="x", workdir=str(tree(tmp_path / "refused", {"a": "1"})))
    assert len(created(kube, "pods")) == before


def test_a_job_that_never_was_is_not_found(kube, job):
    with pytest.raises(NotFound):
        job.status()


def test_an_invalid_runtime_env_is_refused_before_any_request(kube, job):
    with pytest.raises(ConfigError, match="runtime_env_yaml"):
        job.start(command="x", workdir=None, runtime_env_yaml="no-such-file.yaml")


def test_runtime_env_values_keep_their_types(kube, job, tmp_path):
    given = {"env_vars": {"A": "1", "B": "é yes"}, "config": {"setup_timeout_seconds": 600, "eager_install": False}}
    from_dict = job.start(command="x", workdir=None, runtime_env_yaml=given, dryrun=True)
    file = tmp_path / "env.yaml"
    file.write_text(from_dict["spec"]["runtimeEnvYAML"])
    from_file = job.start(command="x", workdir=None, runtime_env_yaml=str(file), dryrun=True)
    assert from_file == from_dict
    import yaml

    assert yaml.safe_load(from_dict["spec"]["runtimeEnvYAML"]) == given


AWKWARD = 'a$$b `id` $(RAY_JOB_SUBMISSION_ID) $(id) \\\\$x é "q" it\'s $NOWHERE ${'


@pytest.mark.parametrize("form", [dict, "{{env_vars: {{A: {}}}}} # costs $5".format], ids=["dict", "yaml"])
def test_no_shell_on_the_way_to_ray_looks_into_the_runtime_env(kube, job, capsys, form):
    """KubeRay puts it into the submitter's script in double quotes, and the kubelet rewrites that once more."""
    given = {"env_vars": {"A": AWKWARD}} if form is dict else form(json.dumps(AWKWARD))
    job.executor.submitter = {"containers": [{"name": "ray-job-submitter", "env": [{"name": "B", "value": "b"}]}]}
    job.start(command="printenv A", workdir=None, runtime_env_yaml=given)
    assert ended(job)["jobStatus"] == "SUCCEEDED"
    assert f"\n{AWKWARD}\n" in capsys.readouterr().out


def test_a_dry_run_sends_nothing_and_masks_what_it_prints(kube, job, capsys):
    before = len(kube.requests)
    job.executor.env_vars = {"HF_TOKEN": "hf_abcdef"}
    body = job.start(command="x", workdir=None, dryrun=True)
    assert len(kube.requests) == before
    container = body["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "HF_TOKEN", "value": "hf_abcdef"}]
    assert "hf_abcdef" not in capsys.readouterr().out


def test_the_secrets_of_a_runtime_env_are_shown_nowhere(kube, job, capsys):
    variables = {"HF_TOKEN": "hf_abcdef", "DB_PASSWORD": "p$w d'x", "A": "plain"}
    body = job.start(command="x --with hf_abcdef", runtime_env_yaml={"env_vars": variables}, dryrun=True)
    printed = capsys.readouterr().out
    assert ("hf_abcdef" in printed, "w d'x" in printed, "plain" in printed) == (False, False, True)
    assert body["metadata"]["annotations"]["nemo-run/command"] == "x --with ***"
    assert "hf_abcdef" in body["spec"]["runtimeEnvYAML"]
    with pytest.raises(ConfigError) as refused:
        job.start(command="x", runtime_env_yaml="env_vars:\n  HF_TOKEN: hf_abcdef\n {")
    assert "hf_abcdef" not in str(refused.value)


def test_a_runtime_env_that_yaml_cannot_hold_is_refused(kube, job):
    with pytest.raises(ConfigError, match=r"runtime_env_yaml=.*no YAML"):
        job.start(command="x", runtime_env_yaml={"py_modules": [object()]})


def test_a_workdir_without_a_volume_is_refused(kube, job, tmp_path):
    job.executor = job.backend.executor = KubeRayExecutor()
    before = len(kube.requests)
    with pytest.raises(ConfigError, match="workdir_volume_mount"):
        job.start(command="x", workdir=str(tmp_path))
    with pytest.raises(ConfigError, match="no such directory"):
        job.start(command="x", workdir=str(tmp_path / "nowhere"))
    assert len(kube.requests) == before


def test_the_old_form_goes_to_the_first_mount_with_one_warning(kube, job, tmp_path, capsys):
    old = {"name": "work", "mountPath": "/old-form", "subPath": "team-b"}
    job.executor = job.backend.executor = KubeRayExecutor(volumes=[WORK], volume_mounts=[old])
    code = tree(tmp_path / "src", {"a": "1"})
    with pytest.warns(DeprecationWarning, match="workdir_volume_mount="):
        job.start(command="pwd; cat a", workdir=str(code))
    assert ended(job)["jobStatus"] == "SUCCEEDED"
    assert f"/old-form/{USER}/code/src\n1" in capsys.readouterr().out


def test_one_path_with_two_subpaths_is_refused_before_any_request(kube, job, tmp_path):
    job.executor.volume_mounts = [{**MOUNT, "subPath": "other"}]
    before = len(kube.requests)
    with pytest.raises(ConfigError, match=r"(?s)other.*team-a|team-a.*other"):
        job.start(command="x", workdir=str(tmp_path))
    assert len(kube.requests) == before


def test_the_function_that_copies_a_workdir_still_does(kube, tmp_path):
    code = tree(tmp_path / "copied", {"a": "1", "b": "2"})
    place = kube.claim("shared") / "team-a" / "copied here"

    def copy(core_v1_api=None):
        sync_workdir_via_pod(
            pod_name="mine-data-mover",
            namespace="default",
            user_workspace_path="/nemo_run/copied here",
            workdir=str(code),
            core_v1_api=core_v1_api,
            volumes=[WORK],
            volume_mounts=[MOUNT],
        )

    copy()
    (code / "b").unlink()
    (place / "made").write_text("by a job")
    copy()
    assert listing(place) == {"a": "1", "made": "by a job"}
    assert movers(kube) == []
    configuration = SimpleNamespace(host="https://elsewhere")
    with pytest.raises(ConfigError, match="elsewhere"):
        copy(SimpleNamespace(api_client=SimpleNamespace(configuration=configuration)))
