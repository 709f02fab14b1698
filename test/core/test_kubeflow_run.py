"""Jobs of the Kubeflow executor that really run, on LocalKube: files there and back, environment, logs, ends."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run.core.execution.kubeflow import JobReport, KubeflowExecutor, KubeflowJobState
from nemo_run.core.execution.launcher import Torchrun
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError, NoRepository, NotAuthorized, PackagingError, Rejected, TransferError
from nemo_run.testing import LocalKube, Pod, Respond

WORK = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}

ENDED = (KubeflowJobState.SUCCEEDED, KubeflowJobState.FAILED)
PATIENT = ["bash", "-c", "trap 'exit 0' TERM; sleep 30 & wait"]
"""As PID 1, a program without a handler ignores TERM, and takes the whole grace period to end."""
SHOW = [
    "python3",
    "-c",
    "import json, os, sys; print('SEEN', json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))",
]


@pytest.fixture
def executor(tmp_path: Path) -> KubeflowExecutor:
    return made(tmp_path, volumes=[dict(WORK)], workdir_volume_mount=dict(MOUNT))


def made(tmp_path: Path, **fields: Any) -> KubeflowExecutor:
    executor = KubeflowExecutor(image="python:3.12", **fields)
    executor.assign("exp_1", str(tmp_path / "exp"), "train", "train")
    return executor


def run(executor: KubeflowExecutor, command: list[str]) -> tuple[JobReport, list[str]]:
    """Run *command* as an experiment does, and give the last report and all lines of all nodes."""
    executor.materialize_launch_script(command)
    executor.package(executor.packager, executor.job_name)
    name, _ = executor.launch(executor.job_name, executor.start_command(command))
    lines: list[str] = []
    executor.follow_logs(name, write=lambda line: lines.append(line.text), on_state=lambda text: None)
    deadline = time.monotonic() + 60
    while (report := executor.report(name)) and report.state not in ENDED and time.monotonic() < deadline:
        time.sleep(0.1)
    assert report is not None
    return report, lines


def seen(lines: list[str]) -> tuple[list[str], dict[str, str], str]:
    (line,) = [line for line in lines if line.startswith("SEEN ")]
    arguments, environment, directory = json.loads(line.removeprefix("SEEN "))
    return arguments, environment, directory


TEXTS = ["a b", "it's", '"q"', "$X", "${X}", "$$", "$$X", "$(X)", "$(HOME)", "`id`", "l1\nl2\n", "é", "", "\\$X\\", "*"]


@pytest.mark.parametrize("workdir", [True, False], ids=["synced script", "script in the manifest"])
def test_environment_and_arguments_arrive_byte_for_byte(kube, tmp_path, workdir):
    fields = {"volumes": [WORK], "workdir_volume_mount": MOUNT} if workdir else {}
    executor = made(tmp_path, **fields, env_vars={f"V{n}": text for n, text in enumerate(TEXTS)} | {"N": 3, "U": None})
    executor.env_vars |= {"BASE": "/from/executor", "MY-NAME.x": "$MY-NAME.x"}
    executor.env_list = [{"name": "REFERS", "value": "$(BASE)/x:$BASE"}]
    executor._task_env.update({"PYTHONPATH": "/x y:$PYTHONPATH", "T": "task's"})
    report, lines = run(executor, [*SHOW, *TEXTS, "rank $PET_NODE_RANK of ${PET_NNODES}, $BASE, $NOT_SET"])
    assert report.state is KubeflowJobState.SUCCEEDED
    arguments, environment, _ = seen(lines)
    assert arguments == [*TEXTS, "rank 0 of 1, /from/executor, $NOT_SET"]
    assert [environment[f"V{n}"] for n in range(len(TEXTS))] == TEXTS
    assert environment["PYTHONPATH"].startswith("/x y:")
    assert (environment["N"], environment["T"], environment["REFERS"]) == ("3", "task's", "/from/executor/x:$BASE")
    assert environment["MY-NAME.x"] == "$MY-NAME.x"
    assert "U" not in environment


def test_the_copy_pod_is_gone_before_the_job_is_created(kube, executor):
    run(executor, ["true"])
    asked = [(request.method, request.path.rpartition("/")[2]) for request in kube.requests if request.status < 300]
    first_dry, created = [n for n, each in enumerate(asked) if each == ("POST", "trainjobs")]
    pod = asked.index(("POST", "pods"))
    deleted = next(n for n, (method, name) in enumerate(asked) if method == "DELETE" and "-data-mover-" in name)
    assert first_dry < pod < deleted < created
    after = [request for request in kube.requests if "-data-mover-" in request.path and request.status == 404]
    assert after


@pytest.mark.parametrize(
    "refusal",
    [
        Respond(403, on="POST */trainjobs", message='trainjobs "x" is forbidden: exceeded quota: gpus'),
        Respond(422, on="POST */trainjobs"),
    ],
    ids=["quota", "invalid"],
)
def test_a_job_that_the_server_refuses_costs_no_copy(kube, executor, refusal):
    executor.materialize_launch_script(["true"])
    with kube.fault(refusal), pytest.raises(Rejected):
        executor.package(executor.packager, "train")
    assert not any(request.method == "POST" and request.path.endswith("/pods") for request in kube.requests)
    assert list(kube.claim("shared").rglob("*")) == []


def test_a_missing_right_is_named_before_anything_is_created(kube, executor):
    executor.materialize_launch_script(["true"])
    kube.rules = [
        {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "delete", "list"]},
    ]
    with pytest.raises(NotAuthorized, match="pods/exec"):
        executor.package(executor.packager, "train")
    assert not any(request.method == "POST" and request.path.endswith("/pods") for request in kube.requests)


def test_a_copy_pod_that_never_gets_ready_is_removed(kube, executor):
    executor.materialize_launch_script(["true"])
    executor.data_mover_timeout = 2
    with kube.fault(Pod("*-data-mover-*", "never-ready")), pytest.raises(TimeoutError):
        executor.package(executor.packager, "train")
    assert kube.do(lambda store: store.list(POD, "default")) == []


def test_what_a_job_sends(kube, executor, tmp_path):
    job = tmp_path / "exp" / "train"
    partial = ("configs/train_fn_or_script", "configs/train_config.yaml", "configs/train_executor.yaml")
    for name in (*partial, "configs/script_config.yaml", "scripts/s.sh", "log-allranks_0.out"):
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_text(name)
    (tmp_path / "exp" / "__main__.py").write_text("token = 'a script that launches may hold secrets'")
    local = tmp_path / "local"
    (local / ".git").mkdir(parents=True)
    (local / ".git" / "HEAD").touch()
    (local / "empty").mkdir()
    (local / "tool.sh").write_text("x")
    (local / "tool.sh").chmod(0o700)
    (local / "launch.sh").write_text("not this one")
    executor.workdir_local_path = str(local)
    executor.packager = _Packs({"train.py": "x"})
    run(executor, ["bash", str(local / "tool.sh")])
    there = kube.claim("shared") / "team-a" / Path(executor.code_dir).relative_to("/nemo_run")
    found = {str(path.relative_to(there)): oct(path.stat().st_mode & 0o777) for path in there.rglob("*")}
    assert found == {
        "code": "0o755",
        "code/train.py": "0o644",
        "configs": "0o755",
        "configs/train_config.yaml": "0o644",
        "configs/train_fn_or_script": "0o644",
        "empty": "0o755",
        "launch.sh": "0o644",
        "scripts": "0o755",
        "scripts/s.sh": "0o644",
        "tool.sh": "0o755",
    }
    assert (there / "launch.sh").read_text().endswith(f"exec bash {executor.code_dir}/tool.sh\n")
    assert sorted(path.name for path in (tmp_path / "exp" / "train").iterdir()) == [
        ".nemo_run-packed", "code", "configs", "launch.sh", "log-allranks_0.out", "scripts",
    ]  # fmt: skip


class _Packs(Packager):
    """Packs files given as a dict, or raises."""

    def __init__(self, files: dict[str, str] | Exception) -> None:
        super().__init__()
        self.files = files

    def package(self, path: Path, job_dir: str, name: str) -> str:
        import io
        import tarfile

        if isinstance(self.files, Exception):
            raise self.files
        archive = Path(job_dir, f"{name}.tar.gz")
        if archive.exists():
            return str(archive)
        with tarfile.open(archive, "w:gz") as tar:
            for member, text in self.files.items():
                info = tarfile.TarInfo(member)
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        return str(archive)


class TestPackager:
    """The code that goes along."""

    def test_its_files_are_the_working_directory(self, kube, executor):
        executor.packager = _Packs({"pkg/x.py": "print('ran', __file__)"})
        report, lines = run(executor, ["python3", "pkg/x.py"])
        assert report.state is KubeflowJobState.SUCCEEDED
        assert "ran" in lines[-1]
        assert run(executor, SHOW)[0].state is KubeflowJobState.SUCCEEDED

    def test_packing_again_gives_what_is_there_now(self, kube, executor):
        packager = executor.packager = _Packs({"a.py": "1", "old.py": "1"})
        executor.materialize_launch_script(["true"])
        packager.files = {"a.py": "2"}
        executor.materialize_launch_script(["true"])
        code = Path(executor.job_dir, "code")
        assert {path.name: path.read_text() for path in code.iterdir()} == {"a.py": "2"}

    def test_no_repository_at_all_is_but_a_warning(self, kube, executor, caplog):
        executor.packager = _Packs(NoRepository("no git repository at /home/me"))
        report, lines = run(executor, SHOW)
        assert report.state is KubeflowJobState.SUCCEEDED
        assert "the image's own code runs" in caplog.text
        assert seen(lines)[2] == "/"

    def test_without_a_workdir_its_files_reach_no_pod_and_that_is_told_once(self, tmp_path, caplog):
        class Packs(_Packs):
            pass

        for packager in (Packs({"train.py": "x"}), Packs({"train.py": "x"}), Packager()):
            made(tmp_path, packager=packager).materialize_launch_script(["python3", "train.py"])
        (warning,) = [record.getMessage() for record in caplog.records]
        assert warning.startswith("Packs is not used: there is no workdir, so its files reach no pod")

    def test_a_script_that_it_did_not_pack_is_told_with_the_nearest_one(self, executor, caplog):
        executor.packager = _Packs({"train.py": "x"})
        for _ in range(2):
            executor.materialize_launch_script(["torchrun", "--nnodes=2", "trian.py", "--steps", "2"])
        (warning,) = [record.getMessage() for record in caplog.records]
        assert warning == "'trian.py' is not among the files that the packager packed; did you mean 'train.py'?"

    def test_any_other_failure_raises(self, executor):
        executor.packager = _Packs(PackagingError("Your repo has uncommitted changes."))
        with pytest.raises(RuntimeError, match="uncommitted changes"):
            executor.materialize_launch_script(["true"])

    def test_upstreams_order_works_without_a_launch_script(self, kube, executor):
        """``package`` and ``launch`` alone, with a command of one's own."""
        executor.packager = _Packs({"a.py": "print('own')"})
        executor.package(executor.packager, "train")
        name, _ = executor.launch("train", ["python3", f"{executor.code_dir}/code/a.py"], wait=True, poll_interval=1)
        assert list(executor.fetch_logs(name, stream=True)) == ["own"]


class TestResults:
    """What comes back."""

    def test_only_what_the_job_left(self, kube, executor, tmp_path):
        executor.packager = _Packs({"kept.py": "x", "changed.txt": "before"})
        run(
            executor,
            ["bash", "-c", "echo after, longer > changed.txt; mkdir -p out; echo r > out/r; echo l > log_x.out"],
        )
        job = tmp_path / "exp" / "train"
        (job / "log-allranks_0.out").write_text("kept")
        before = {path: path.stat().st_mtime_ns for path in (job / "launch.sh", job / "code" / "kept.py")}
        executor.pull_results("train")
        assert (job / "code" / "changed.txt").read_text() == "after, longer\n"
        assert (job / "code" / "out" / "r").read_text() == "r\n"
        assert {path: path.stat().st_mtime_ns for path in before} == before
        assert (job / "log-allranks_0.out").read_text() == "kept"

    def test_elsewhere(self, kube, executor, tmp_path):
        run(executor, ["bash", "-c", "echo r > $NEMO_RUN_DIR/r"])
        executor.pull_results("train", dest_dir=str(tmp_path / "elsewhere"))
        assert (tmp_path / "elsewhere" / "r").read_text() == "r\n"

    def test_nobody_says_where_to(self, kube):
        executor = KubeflowExecutor(volumes=[WORK], workdir_volume_mount=MOUNT)
        with pytest.raises(TransferError, match="give dest_dir"):
            executor.pull_results("train")

    def test_without_a_workdir_there_is_nothing(self, kube, caplog):
        KubeflowExecutor().pull_results("train", "/nonexistent")
        assert "no workdir" in caplog.text


class TestWorkspace:
    """Copies to and from any place on the volume, by an executor that no experiment knows."""

    def test_there_and_back(self, kube, tmp_path):
        executor = KubeflowExecutor(volumes=[WORK], workdir_volume_mount=MOUNT)
        here = tmp_path / "here"
        here.mkdir()
        (here / "golden values.json").write_bytes(bytes(range(256)))
        executor.copy_to_workspace(str(here), "/nemo_run/cache/a", label="gv-cache-write")
        assert (kube.claim("shared") / "team-a" / "cache" / "a" / "golden values.json").exists()
        executor.copy_from_workspace("/nemo_run/cache/a", str(tmp_path / "back"), label="gv-cache-read")
        assert (tmp_path / "back" / "golden values.json").read_bytes() == bytes(range(256))
        assert kube.do(lambda store: store.list(POD, "default")) == []

    def test_what_is_not_there_is_an_error(self, kube, tmp_path):
        executor = KubeflowExecutor(volumes=[WORK], workdir_volume_mount=MOUNT)
        with pytest.raises(TransferError):
            executor.copy_from_workspace("/nemo_run/no/such", str(tmp_path / "back"))
        assert kube.do(lambda store: store.list(POD, "default")) == []

    @pytest.mark.parametrize("path", ["/data/x", "relative", "/nemo_run/../etc", "/nemo_run_shared"])
    def test_a_path_off_the_volume_is_refused_before_any_request(self, kube, path):
        executor = KubeflowExecutor(volumes=[WORK], workdir_volume_mount=MOUNT)
        with pytest.raises(ConfigError, match="give a path below it"):
            executor.copy_to_workspace("/tmp", path)
        assert kube.requests == []

    def test_without_a_workdir_nothing_happens(self, kube):
        KubeflowExecutor().copy_to_workspace("/nonexistent", "/x")
        KubeflowExecutor().copy_from_workspace("/x", "/nonexistent")
        assert kube.requests == []

    def test_the_copy_pod_runs_where_the_job_runs(self, kube):
        """Else it could bind a claim where the job cannot go, or wait for an image it has no right to."""
        seen: list[dict[str, Any]] = []

        class Mine(KubeflowExecutor):
            def _rsync_to_pod(self, pod_name, local_path, remote_path):
                seen.extend(kube.do(lambda store: store.list(POD, "default")))

        terms = [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        executor = Mine(
            volumes=[WORK],
            workdir_volume_mount=MOUNT,
            tolerations=[{"key": "gpu", "operator": "Exists"}],
            affinity=affinity,
            image_pull_secrets=["registry"],
            pod_spec_overrides={"nodeSelector": {"zone": "a"}, "serviceAccountName": "default"},
            data_mover={"securityContext": {"runAsUser": 0}},
        )
        executor.copy_to_workspace("/here", "/nemo_run/there")
        ((spec, metadata),) = [(pod["spec"], pod["metadata"]) for pod in seen]
        assert [each["key"] for each in spec["tolerations"] if each["key"] == "gpu"] == ["gpu"]
        assert (spec["affinity"], spec["nodeSelector"]) == (affinity, {"zone": "a"})
        assert (spec["imagePullSecrets"], spec["serviceAccountName"]) == ([{"name": "registry"}], "default")
        assert spec["securityContext"] == {"runAsUser": 0}
        assert metadata["annotations"]["sidecar.istio.io/inject"] == "false"

    def test_a_subclass_may_copy_in_its_own_way(self, kube, tmp_path):
        calls: list[tuple[str, ...]] = []

        class Mine(KubeflowExecutor):
            def _rsync_to_pod(self, pod_name, local_path, remote_path):
                calls.append(("to", pod_name, local_path, remote_path))

            def _start_data_mover_pod(self, pod_name, timeout=120):
                calls.append(("start", pod_name))

            def _delete_data_mover_pod(self, pod_name, timeout=120):
                calls.append(("delete", pod_name))

        executor = Mine(volumes=[WORK], workdir_volume_mount=MOUNT)
        executor.copy_to_workspace("/here", "/nemo_run/there", label="x")
        name = executor._data_mover_pod_name("x")
        assert calls == [("start", name), ("to", name, "/here", "/nemo_run/there"), ("delete", name)]


class TestEnd:
    """How a job ended, in words."""

    def test_a_failure_names_pod_container_and_exit_code(self, kube, executor):
        report, _ = run(executor, ["bash", "-c", "exit 3"])
        assert report.state is KubeflowJobState.FAILED
        assert "container node: Error, exit code 3" in report.message
        assert f"pod {report.name}-node-0-0-" in report.message

    def test_memory_that_ran_out_is_named(self, kube, executor):
        with kube.fault(Pod("*-node-0-0-*", "OOMKilled")):
            report, _ = run(executor, ["sleep", "30"])
        assert report.state is KubeflowJobState.FAILED
        assert "OOMKilled, exit code 137" in report.message

    def test_an_image_that_cannot_be_pulled_is_told_and_the_job_goes_on(self, kube, tmp_path):
        executor = made(tmp_path)
        with kube.fault(Pod("*-node-0-0-*", "ImagePullBackOff")):
            name, _ = executor.launch("train", ["true"])
            deadline = time.monotonic() + 30
            while (
                (report := executor.report(name)) and "ImagePull" not in report.message and time.monotonic() < deadline
            ):
                time.sleep(0.1)
            assert report is not None
            assert report.state is KubeflowJobState.PENDING
            assert "'python:3.12'" in report.message
        executor.cancel(name)

    def test_pods_that_cannot_be_created_are_told_for_as_long(self, kube, tmp_path):
        """Only an event says so; a later warning of another kind does not hide it."""
        executor = made(tmp_path, volume_mounts=[{"name": "nope", "mountPath": "/data"}])
        with kube.fault(Respond(403, on="GET */clustertrainingruntimes/*")):
            name, _ = executor.launch("train", ["true"])
        states: list[str] = []
        following = threading.Thread(
            target=executor.follow_logs, args=(name,), kwargs={"write": print, "on_state": states.append}
        )
        following.start()
        refused = re.compile(r'JobCreationFailed: .*volumeMounts\[0\]\.name: Not found: "nope"')
        deadline = time.monotonic() + 30
        while not (states and refused.search(states[-1])) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert states[-1].startswith("no pod yet: JobCreationFailed: ")
        job = kube.do(lambda store: store.get(TRAINJOB, "default", name))
        kube.do(lambda store: store.event(job, "Other", "later"))
        report = executor.report(name)
        assert report is not None
        assert refused.match(report.message)
        executor.cancel(name)
        following.join(30)
        assert not following.is_alive()
        assert [text for text in states if "Other" in text] == []

    def test_a_queue_is_what_a_suspended_job_waits_for(self, kube, tmp_path):
        executor = made(tmp_path, spec_kwargs={"suspend": True})
        name, _ = executor.launch("train", ["true"])
        states: list[str] = []
        following = threading.Thread(
            target=executor.follow_logs, args=(name,), kwargs={"write": print, "on_state": states.append}
        )
        following.start()
        deadline = time.monotonic() + 30
        while "no pod yet: suspended, waiting in queue" not in states and time.monotonic() < deadline:
            time.sleep(0.1)
        executor.cancel(name)
        following.join(30)
        assert "no pod yet: suspended, waiting in queue" in states

    def test_launch_can_wait_until_it_runs(self, kube, tmp_path):
        executor = made(tmp_path)
        name, state = executor.launch("train", PATIENT, wait=True, poll_interval=1)
        assert state is KubeflowJobState.RUNNING
        assert executor.status(name) is KubeflowJobState.RUNNING
        assert executor.cancel("train", wait=True, poll_interval=1) is True
        assert executor.status(name) is None


class TestLogs:
    """What the nodes wrote."""

    def test_streaming_ends_with_the_job_and_keeps_all_nodes_lines(self, kube, tmp_path):
        executor = made(tmp_path, num_nodes=2)
        name, _ = executor.launch("train", ["bash", "-c", "for i in 1 2 3; do echo node $PET_NODE_RANK line $i; done"])
        assert list(executor.fetch_logs(name, stream=True)) == [f"node 0 line {n}" for n in (1, 2, 3)]
        log = tmp_path / "exp" / "train" / "log-allranks_0.out"
        texts = [re.sub(r"^\[pod/train-\w+-node-0-\d-\w+/node\] ", "", line) for line in log.read_text().splitlines()]
        assert sorted(texts) == [f"node {r} line {n}" for r in (0, 1) for n in (1, 2, 3)]
        assert list(executor.fetch_logs(name, lines=2)) == ["node 0 line 2", "node 0 line 3"]

    def test_streaming_right_after_the_launch_waits_and_says_for_what(self, kube, tmp_path, caplog):
        executor = made(tmp_path)
        caplog.set_level("INFO", "nemo_run")
        with kube.fault(Pod("*-node-0-0-*", "ImagePullBackOff", times=1)):
            name, _ = executor.launch("train", ["echo", "at last"])
            assert list(executor.fetch_logs(name, stream=True)) == ["at last"]
        assert f"TrainJob {name}: pod {name}-node-0-0-" in caplog.text
        assert "has written nothing" not in caplog.text

    def test_a_job_that_wrote_nothing_says_so(self, kube, tmp_path, caplog):
        executor = made(tmp_path)
        name, _ = executor.launch("train", ["true"])
        assert list(executor.fetch_logs(name, stream=True)) == []
        assert f"TrainJob {name} has written nothing so far; it is succeeded" in caplog.text

    def test_a_reader_that_has_enough_stops_the_following(self, kube, tmp_path):
        executor = made(tmp_path)
        name, _ = executor.launch("train", ["bash", "-c", "trap exit TERM; while :; do echo line; done"])
        before = threading.active_count()
        lines = iter(executor.fetch_logs(name, stream=True))
        assert next(lines) == "line"
        lines.close()
        executor.cancel(name, wait=True, poll_interval=1)
        deadline = time.monotonic() + 20
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert threading.active_count() <= before


def test_torchrun_on_two_nodes(kube, executor):
    executor.launcher = Torchrun()
    executor.num_nodes = 2
    executor.nprocs_per_node = 2
    executor.packager = _Packs({"t.py": "import os; print('RANK', os.environ['RANK'], os.environ['WORLD_SIZE'])"})
    report, lines = run(executor, executor.launcher_command(["python", "t.py"]))
    assert report.state is KubeflowJobState.SUCCEEDED, lines
    assert sorted(line.partition("RANK")[2] for line in lines if "RANK" in line) == [f" {n} 4" for n in range(4)]


def test_nothing_is_left_at_the_volumes_root(kube, executor):
    run(executor, ["true"])
    assert [path.name for path in kube.claim("shared").iterdir()] == ["team-a"]
    user = Path(executor.code_dir).relative_to("/nemo_run").parts[0]
    assert [path.name for path in (kube.claim("shared") / "team-a").iterdir()] == [user]


def test_two_dialects_run_the_same_job(tmp_path):
    for trainer in ("2.1", "2.2"):
        with LocalKube(trainer=trainer, images={"alpine*": "busybox"}, claims=["shared"]):
            executor = made(
                tmp_path / trainer,
                volumes=[WORK],
                workdir_volume_mount=MOUNT,
                volume_mounts=[{"name": "work", "mountPath": "/data", "subPath": "data"}],
            )
            report, lines = run(executor, ["bash", "-c", "ls -d /data $NEMO_RUN_DIR/launch.sh"])
            assert report.state is KubeflowJobState.SUCCEEDED
            assert lines == ["/data", f"{executor.code_dir}/launch.sh"]
