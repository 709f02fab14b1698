"""Verbs of the Kubeflow executor that create, find and delete TrainJobs, against LocalKube's API server."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from fakes.answers import Server, kubeconfig, status

from nemo_run._kube.resources import CLUSTER_TRAINING_RUNTIME, POD, TRAINJOB
from nemo_run._kube.waiting import poll_until
from nemo_run.core.execution.kubeflow import KubeflowExecutor, KubeflowJobState
from nemo_run.exceptions import (
    ConfigError,
    Conflict,
    JobFailed,
    NotAuthorized,
    NotFound,
    Rejected,
    WaitTimeout,
)
from nemo_run.testing import LocalKube, Respond

WORK = {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}
MOUNT = {"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"}


def executor(**fields: Any) -> KubeflowExecutor:
    """Give an executor whose jobs no pod is started for."""
    made = KubeflowExecutor(spec_kwargs={"suspend": True, **fields.pop("spec_kwargs", {})}, **fields)
    made.assign("exp_1", "/nonexistent", "train", "train")
    return made


def jobs(kube: LocalKube, namespace: str = "default") -> list[dict[str, Any]]:
    return kube.do(lambda store: store.list(TRAINJOB, namespace))


@pytest.fixture(params=["2.1", "2.2", "2.3"])
def every_kube(request: pytest.FixtureRequest) -> Iterator[LocalKube]:
    with LocalKube(trainer=request.param) as kube:
        yield kube


class TestDialect:
    """Which field a TrainJob has for pod settings."""

    def test_it_is_the_servers(self, every_kube):
        made = executor(volumes=[WORK], workdir_volume_mount=MOUNT)
        made.launch("train", ["true"])
        (job,) = jobs(every_kube)
        fields = {"podTemplateOverrides", "runtimePatches"} & job["spec"].keys()
        assert fields == {"podTemplateOverrides"} if every_kube._trainer == "2.1" else {"runtimePatches"}

    def test_the_server_is_asked_once(self, kube):
        made = executor()
        made.launch("train", ["true"])
        made.launch("train", ["true"])
        assert sum("openapi" in request.path for request in kube.requests) == 1

    def test_2_0_has_no_place_for_a_workdir(self):
        with LocalKube(trainer="2.0") as kube:
            with pytest.raises(ConfigError, match="cannot take the pod settings containers, volumes"):
                executor(volumes=[WORK], workdir_volume_mount=MOUNT).launch("train", ["true"])
            assert jobs(kube) == []
            executor().launch("train", ["true"])
            assert len(jobs(kube)) == 1

    def test_a_server_that_keeps_its_schema_to_itself_is_taken_for_a_new_one(self, kube):
        with kube.fault(Respond(403, on="GET /openapi/*")):
            executor(volumes=[WORK], workdir_volume_mount=MOUNT).launch("train", ["true"])
        assert "runtimePatches" in jobs(kube)[0]["spec"]

    @pytest.mark.parametrize("answer", [Respond(404, on="GET /openapi/*"), Respond(200, on="GET /openapi/*", body={})])
    def test_a_server_without_trainer_is_named(self, kube, answer):
        with kube.fault(answer), pytest.raises(NotFound, match="install Kubeflow Trainer") as caught:
            executor().launch("train", ["true"])
        assert caught.value.server == kube.url

    def test_the_wrong_dialect_written_down_is_the_servers_refusal(self, kube):
        with pytest.raises(Rejected, match="podTemplateOverrides"):
            executor(trainer_api="2.1", volumes=[WORK], workdir_volume_mount=MOUNT).launch("train", ["true"])


class TestPassThrough:
    """Fields that this server does not know."""

    FIELDS: ClassVar[dict[str, Any]] = {
        "container_kwargs": {"workingDir": "/x", "image": "i"},
        "pod_spec_overrides": {"hostNetwork": True, "resourceClaims": [{"name": "x"}], "nodeSelector": {"a": "b"}},
        "spec_kwargs": {"labels": {"a": "b"}},
    }

    def test_are_left_out_with_one_warning(self, kube, caplog):
        made = executor(**copy.deepcopy(self.FIELDS))
        made.launch("train", ["true"])
        made.launch("train", ["true"])
        job, _ = jobs(kube)
        assert "workingDir" not in job["spec"]["trainer"]
        assert job["spec"]["trainer"]["image"] == "i"
        template = job["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
        assert template["template"]["spec"]["template"]["spec"] == {"nodeSelector": {"a": "b"}}
        (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert warning.startswith("left out, since the TrainJob of this server has no such field: ")
        assert warning.endswith("strict=True makes it an error")
        for name in (
            "container_kwargs['workingDir']",
            "['hostNetwork']",
            "['resourceClaims']",
            "spec_kwargs['labels']",
        ):
            assert name in warning

    def test_raise_where_asked_to(self, kube):
        with pytest.raises(ConfigError, match=r"container_kwargs\['workingDir'\]"):
            executor(strict=True, container_kwargs={"workingDir": "/x"}).launch("train", ["true"])
        assert jobs(kube) == []

    def test_a_name_in_snake_case_is_sent_as_kubernetes_has_it(self, kube, caplog):
        executor(pod_spec_overrides={"node_selector": {"a": "b"}}).launch("train", ["true"])
        assert "'nodeSelector'" in caplog.text
        assert "left out" not in caplog.text

    def test_an_unknown_field_below_a_known_one_is_left_out_alone(self, kube, caplog):
        executor(pod_spec_overrides={"tolerations": [{"key": "a", "wrong": 1}]}).launch("train", ["true"])
        assert "pod_spec_overrides['tolerations']" in caplog.text
        assert '"tolerations": [{"key": "a"}]' in str(jobs(kube)).replace("'", '"')

    def test_what_is_wrong_otherwise_stays_an_error(self, kube):
        with pytest.raises(Rejected):
            executor(pod_spec_overrides={"tolerations": "all"}).launch("train", ["true"])

    @pytest.mark.parametrize(
        "passed",
        [
            {"spec_kwargs": {"runtimePatches": [{"manager": "a/b"}]}},
            {"pod_spec_overrides": {"volumes": [{"name": "other", "emptyDir": {}}]}},
            {"spec_kwargs": {"trainer": {"image": "x"}}},
        ],
        ids=str,
    )
    @pytest.mark.parametrize(
        "own",
        [
            {"tolerations": [{"key": "a", "operatr": "Exists"}]},
            {"volumes": [{"name": "more", "emptyDir": {"siz": "1Gi"}}]},
            {"env_list": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optionl": True}}}]},
        ],
        ids=str,
    )
    def test_an_unknown_field_of_ours_is_not_blamed_on_what_was_passed_through(self, kube, own, passed):
        with pytest.raises(Rejected, match="unknown field"):
            executor(**own, **passed).launch("train", ["true"])
        assert jobs(kube) == []

    def test_a_patch_of_the_users_is_to_blame_for_its_own_fields(self, kube, caplog):
        made = executor(tolerations=[{"key": "a"}], spec_kwargs={"runtimePatches": [{"manager": "a/b", "nonsense": 1}]})
        made.launch("train", ["true"])
        assert "spec_kwargs['runtimePatches'] (spec.runtimePatches[1].nonsense)" in caplog.text
        assert [patch["manager"] for patch in jobs(kube)[0]["spec"]["runtimePatches"]] == ["nemo-run/executor", "a/b"]


class TestLaunch:
    """Creating exactly one TrainJob."""

    def test_name_and_state(self, kube):
        made = executor()
        name, state = made.launch("train", ["true"])
        assert state is KubeflowJobState.CREATED
        (job,) = jobs(kube)
        assert job["metadata"]["name"] == name
        assert len(job["metadata"]["annotations"]["nemo-run/launch-id"]) == 32

    def test_each_launch_has_a_name_of_its_own(self, kube):
        made = executor()
        assert made.launch("train", ["true"])[0] != made.launch("train", ["true"])[0]
        assert len(jobs(kube)) == 2

    def test_an_answer_lost_on_the_way_is_no_failure(self, kube):
        with kube.fault(Respond(503, on="POST */trainjobs", times=1, carried_out=True, retry_after=0)):
            name, _ = executor().launch("train", ["true"])
        assert [job["metadata"]["name"] for job in jobs(kube)] == [name]

    def test_another_object_of_that_name_is_an_error_and_left_alone(self, kube):
        first = executor()
        token = first._session.token
        first.launch("train", ["true"])
        (before,) = jobs(kube)
        second = executor()
        second._session.token = token
        with pytest.raises(Conflict, match=r"another one already exists, \w+ since 20.*left alone"):
            second.launch("train", ["true"])
        assert jobs(kube) == [before]

    def test_a_rehearsal_tells_of_another_object_in_the_same_words(self, kube, tmp_path):
        first = executor()
        first.launch("train", ["true"])
        made = executor(volumes=[WORK], workdir_volume_mount=MOUNT)
        made.assign("exp_1", str(tmp_path), "train", "train")
        made._session.token = jobs(kube)[0]["metadata"]["name"].removeprefix("train-")
        with pytest.raises(Conflict, match=r"another one already exists, \w+ since 20.*left alone"):
            made.package(made.packager, "train")

    def test_overrides_of_a_subclass_take_effect(self, kube):
        class Mine(KubeflowExecutor):
            def get_job_body(self, name, command):
                body = super().get_job_body(name, command)
                body["metadata"]["labels"]["mine"] = "yes"
                return body

        Mine(spec_kwargs={"suspend": True}).launch("train", ["true"])
        assert jobs(kube)[0]["metadata"]["labels"]["mine"] == "yes"

    def test_no_secret_shows_in_a_refusal(self, kube):
        secret = "hf_very$ecret"
        refusal = Respond(422, on="POST */trainjobs", message=f'spec.trainer.env[0]: Invalid value: "{secret}"')
        made = executor(env_vars={"HF_TOKEN": secret})
        with kube.fault(refusal), pytest.raises(Rejected) as caught:
            made.launch("train", ["true"])
        assert secret not in str(caught.value) + repr(caught.value)

    @pytest.mark.parametrize(("status", "error"), [(403, NotAuthorized), (422, Rejected)])
    def test_a_refusal_raises(self, kube, status, error):
        made = executor()
        with kube.fault(Respond(status, on="POST */trainjobs", retry_after=0)), pytest.raises(error):
            made.launch("train", ["true"])
        assert made._session.launched == {}

    def test_waiting_ends_with_what_was_last_seen(self, kube):
        made = executor()
        with pytest.raises(WaitTimeout, match="last seen: KubeflowJobState") as caught:
            made.launch("train", ["true"], wait=True, timeout=0, poll_interval=1)
        assert isinstance(caught.value, RuntimeError)

    def test_waiting_in_vain_ends_with_what_kubernetes_says(self, kube):
        class Mine(KubeflowExecutor):
            def status(self, job_name):
                (job,) = jobs(kube)
                kube.do(lambda store: store.event(job, "TrainJobResourcesCreationFailed", "exceeded quota: gpus"))
                return super().status(job_name)

        made = Mine(spec_kwargs={"managedBy": "kueue.x-k8s.io/multikueue"})
        with pytest.raises(WaitTimeout, match="CREATED: TrainJobResourcesCreationFailed: exceeded quota: gpus"):
            made.launch("train", ["true"], wait=True, timeout=0, poll_interval=1)

    def test_waiting_for_a_job_that_vanishes_ends(self, kube):
        details = {"group": TRAINJOB.group, "kind": TRAINJOB.plural, "name": "x"}
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        gone = Respond(404, on="GET */trainjobs/*", body={**body, "message": "not found", "details": details})
        with kube.fault(gone), pytest.raises(JobFailed, match="was deleted"):
            executor().launch("train", ["true"], wait=True)


class TestStatus:
    """What the cluster says, and nothing else."""

    def test_none_is_only_what_the_cluster_says_is_gone(self, kube):
        assert executor().status("no-such") is None
        assert executor().report("no-such") is None

    @pytest.mark.parametrize(("status", "error"), [(403, NotAuthorized), (400, Rejected)])
    def test_a_cluster_that_will_not_say_is_not_a_cluster_that_says_no(self, kube, status, error):
        with kube.fault(Respond(status, on="GET */trainjobs/*", retry_after=0)), pytest.raises(error):
            executor().status("x")

    def test_a_report_names_object_and_cluster(self, kube):
        made = executor()
        name, _ = made.launch("train", ["true"])
        report = made.report(name)
        (job,) = jobs(kube)
        assert report is not None
        assert (report.name, report.namespace, report.uid) == (name, "default", job["metadata"]["uid"])
        assert (report.server, report.context) == (kube.url, "localkube")

    def test_what_keeps_a_job_from_starting_is_told(self, kube):
        made = executor(spec_kwargs={"managedBy": "kueue.x-k8s.io/multikueue", "suspend": False})
        name, _ = made.launch("train", ["true"])
        (job,) = jobs(kube)
        kube.do(lambda store: store.event(job, "TrainJobResourcesCreationFailed", "exceeded quota: gpus"))
        report = made.report(name)
        assert report is not None
        assert "TrainJobResourcesCreationFailed: exceeded quota: gpus" in report.message

    def test_without_the_right_to_look_closer_the_state_stands(self, kube):
        made = executor(spec_kwargs={"managedBy": "kueue.x-k8s.io/multikueue", "suspend": False})
        name, _ = made.launch("train", ["true"])
        with kube.fault(Respond(403, on="GET */pods"), Respond(403, on="GET */events")):
            report = made.report(name)
        assert report is not None
        assert (report.state, report.message) == (KubeflowJobState.CREATED, "")

    def test_all_jobs_of_an_experiment_take_one_request(self, kube):
        made = executor()
        names = {made.launch(f"t{number}", ["true"])[0] for number in range(3)}
        other = executor()
        other.experiment_id = "exp_2"
        other.launch("train", ["true"])
        before = len(kube.requests)
        assert made.reports().keys() == names
        assert len(kube.requests) == before + 1


class TestSilence:
    """No line of a job that is not there, of one that waits, and of one that says nothing."""

    @pytest.mark.parametrize("stream", [False, True])
    def test_of_a_job_that_is_not_there(self, kube, caplog, stream):
        assert list(executor().fetch_logs("no-such", stream=stream)) == []
        assert "namespace default has no TrainJob no-such" in caplog.text

    def test_of_one_that_waits(self, kube, caplog):
        made = executor()
        name, _ = made.launch("train", ["true"])
        job = lambda: jobs(kube)[0].get("status", {}).get("conditions")  # noqa: E731
        poll_until(job, bool, what="suspension", timeout=30, interval=0.05)
        assert list(made.fetch_logs(name)) == []
        assert f"TrainJob {name} has written nothing so far; it is pending (Suspended: suspended" in caplog.text


class TestCancel:
    """Deleting the right TrainJob."""

    def test_by_its_name(self, kube):
        name, _ = executor().launch("train", ["true"])
        assert executor().cancel(name) is None
        assert jobs(kube) == []

    def test_by_the_tasks_name_through_the_executor_it_was_cloned_from(self, kube):
        original = KubeflowExecutor(spec_kwargs={"suspend": True})
        clone = original.clone()
        clone.assign("exp_1", "/nonexistent", "train", "train")
        clone.launch("train", ["true"])
        assert original.cancel("train", wait=True, poll_interval=1) is True
        assert jobs(kube) == []

    def test_by_the_tasks_name_from_another_process(self, kube):
        executor().launch("train", ["true"])
        executor().cancel("train")
        assert jobs(kube) == []

    def test_two_unfinished_jobs_of_a_task_are_named(self, kube):
        names = [executor().launch("train", ["true"])[0] for _ in range(2)]
        with pytest.raises(ConfigError) as caught:
            executor().cancel("train")
        assert all(name in str(caught.value) for name in names)
        assert len(jobs(kube)) == 2

    def test_a_finished_job_of_the_task_is_left_alone(self, kube):
        done, _ = executor().launch("train", ["true"])
        condition = {"type": "Complete", "status": "True", "reason": "AllJobsCompleted", "message": ""}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        kube.do(lambda store: store.patch_status(TRAINJOB, "default", done, {"conditions": [condition]}))
        executor().launch("train", ["true"])
        executor().cancel("train")
        assert [job["metadata"]["name"] for job in jobs(kube)] == [done]

    def test_what_is_gone_already_is_done(self, kube):
        made = executor()
        name, _ = made.launch("train", ["true"])
        assert made.cancel(name, wait=True, poll_interval=1) is True
        assert made.cancel(name, wait=True) is None
        assert made.cancel("train") is None

    def test_pods_that_stay_are_told_apart_from_a_job_that_is_gone(self, kube):
        made = executor()
        name, _ = made.launch("train", ["true"])
        labels = {"jobset.sigs.k8s.io/jobset-name": name}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "stays", "labels": labels},
            "spec": {"containers": [{"name": "a", "image": "alpine", "command": ["sleep", "60"]}]},
        }
        kube.do(lambda store: store.create(POD, "default", body))
        assert made.cancel(name, wait=True, timeout=0, poll_interval=1) is False

    @pytest.mark.parametrize(("status", "error"), [(403, NotAuthorized), (400, Rejected)])
    def test_a_refusal_raises(self, kube, status, error):
        name, _ = executor().launch("train", ["true"])
        with kube.fault(Respond(status, on="DELETE */trainjobs/*", retry_after=0)), pytest.raises(error):
            executor().cancel(name)
        assert len(jobs(kube)) == 1


class TestRuntime:
    """The ClusterTrainingRuntime that a job names."""

    def test_one_that_is_not_there(self, kube):
        with pytest.raises(ConfigError, match=r"runtime_ref='torch'.*'torch-distributed'"):
            executor(runtime_ref="torch").launch("train", ["true"])
        assert jobs(kube) == []

    @pytest.mark.parametrize("trainer_api", ["2.1", "2.2"])
    def test_one_without_the_container(self, trainer_api):
        """Trainer's own examples say ``trainer``; its runtimes say ``node``."""
        with LocalKube(trainer=trainer_api) as kube:
            with pytest.raises(ConfigError, match=r"container_name='trainer'.*but 'node'"):
                executor(container_name="trainer", volumes=[WORK], workdir_volume_mount=MOUNT).launch("t", ["true"])
            with pytest.raises(ConfigError, match="container_name='sidecar'"):
                executor(pod_spec_overrides={"containers": [{"name": "sidecar"}]}).launch("t", ["true"])
            assert jobs(kube) == []

    def test_without_the_right_to_read_it_nothing_is_checked(self, kube):
        with kube.fault(Respond(403, on="GET */clustertrainingruntimes/*")):
            executor(container_name="trainer", volumes=[WORK], workdir_volume_mount=MOUNT).launch("train", ["true"])
        assert len(jobs(kube)) == 1

    @pytest.fixture(params=["2.1", "2.3"])
    def furnished(self, request: pytest.FixtureRequest) -> Iterator[LocalKube]:
        """A cluster whose runtime ``furnished`` has volumes and mounts of its own."""
        with LocalKube(trainer=request.param, claims=["shared"]) as kube:
            runtime = kube.do(lambda store: store.get(CLUSTER_TRAINING_RUNTIME, "", "torch-distributed"))
            runtime["metadata"] = {"name": "furnished", "labels": runtime["metadata"]["labels"]}
            pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
            pod["volumes"] = [{"name": name, "emptyDir": {}} for name in ("cache", "shm")]
            pod["containers"][0]["volumeMounts"] = [
                {"name": "shm", "mountPath": "/dev/shm"},
                {"name": "cache", "mountPath": "/cache", "subPath": "x"},
                {"name": "cache", "mountPath": "/models", "readOnly": True},
                {"name": "cache", "mountPath": "/slash/"},
            ]
            kube.do(lambda store: store.create(CLUSTER_TRAINING_RUNTIME, "", runtime))
            yield kube

    def launch(self, **fields: Any) -> None:
        made = executor(runtime_ref="furnished", volumes=[WORK], workdir_volume_mount=MOUNT, **fields)
        made.launch("train", ["true"])

    @pytest.mark.parametrize(
        "fields",
        [
            {"volume_mounts": [{"name": "dta", "mountPath": "/data"}]},
            {"container_kwargs": {"volumeMounts": [{"name": "dta", "mountPath": "/data"}]}},
        ],
    )
    def test_a_mount_of_a_volume_that_nobody_has(self, furnished, fields):
        """Its pods would never be created."""
        known = "volumes and pod_spec_overrides have 'work', and ClusterTrainingRuntime 'furnished' has 'cache', 'shm'"
        with pytest.raises(ConfigError, match=f"^volume_mounts=.*no volume 'dta': {known}"):
            self.launch(**fields)
        assert jobs(furnished) == []

    def test_mounts_of_volumes_that_somebody_has(self, furnished):
        self.launch(
            volume_mounts=[{"name": name, "mountPath": f"/mnt/{name}"} for name in ("cache", "extra", "work")],
            pod_spec_overrides={"volumes": [{"name": "extra", "emptyDir": {}}, {"name": "shm", "emptyDir": {}}]},
        )
        assert len(jobs(furnished)) == 1

    @pytest.mark.parametrize("path", ["/cache", "/slash"])
    def test_a_mount_that_the_runtimes_would_change(self, furnished, path):
        with pytest.raises(ConfigError, match="choose another mountPath"):
            self.launch(volume_mounts=[{"name": "work", "mountPath": path}])
        assert jobs(furnished) == []

    def test_a_mount_that_says_the_same_or_more(self, furnished, caplog):
        self.launch(
            volume_mounts=[
                {"name": "cache", "mountPath": "/cache", "subPath": "x"},
                {"name": "work", "mountPath": "/dev/shm", "readOnly": True},
            ]
        )
        assert len(jobs(furnished)) == 1
        assert "keeps" not in caplog.text

    def test_a_mount_that_stays_read_only_is_told(self, furnished, caplog):
        self.launch(volume_mounts=[{"name": "work", "mountPath": "/models"}])
        assert len(jobs(furnished)) == 1
        assert "at /models already, of which Kubernetes keeps {'readOnly': True}" in caplog.text

    def test_a_volume_of_another_kind_than_the_runtimes(self, furnished):
        with pytest.raises(ConfigError, match="rename yours") as caught:
            executor(
                runtime_ref="furnished", volumes=[{"name": "shm", "persistentVolumeClaim": {"claimName": "shared"}}]
            ).launch("train", ["true"])
        assert caught.value.argument == "volumes"

    def test_what_is_patched_into_other_jobs_is_not_looked_at(self, kube):
        pod = {"containers": [{"name": "model-initializer", "volumeMounts": [{"name": "m", "mountPath": "/m"}]}]}
        job = {"name": "model-initializer", "template": {"spec": {"template": {"spec": pod}}}}
        spec = {"template": {"spec": {"replicatedJobs": [job]}}}
        patches = [{"manager": "example.com/mine", "trainingRuntimeSpec": spec}]
        executor(spec_kwargs={"runtimePatches": patches}).launch("train", ["true"])
        assert len(jobs(kube)) == 1


class TestCluster:
    """Which cluster is asked."""

    @pytest.mark.parametrize(("context", "asked"), [(None, "a"), ("a", "a"), ("b", "b")])
    def test_it_is_the_contexts_and_not_the_current_one(self, tmp_path, context, asked):
        gone = status(404, "NotFound", "not found", kind="trainjobs", name="x")
        with Server(lambda _: gone) as a, Server(lambda _: gone) as b:
            config = kubeconfig(tmp_path / "a", a.url, context="a")
            other = json.loads(kubeconfig(tmp_path / "b", b.url, context="b").read_text())
            merged = json.loads(config.read_text())
            merged["contexts"].append({"name": "b", "context": {"cluster": "of b", "user": "u", "namespace": "wrong"}})
            merged["clusters"].append({"name": "of b", "cluster": other["clusters"][0]["cluster"]})
            config.write_text(json.dumps(merged))
            made = KubeflowExecutor(kubeconfig=str(config), context=context, namespace="research", trainer_api="2.2")
            assert made.status("x") is None
            target = made._connect().websocket_target("research", "p", container="c", command=["true"], stdin=False)
            here, elsewhere = (a, b) if asked == "a" else (b, a)
            assert [request.path for request in here.requests] == [TRAINJOB.path("research", "x")]
            assert elsewhere.requests == []
            assert target.url.startswith(here.url.replace("http", "ws"))


def test_a_job_is_not_created_where_its_code_is_not(tmp_path):
    made = executor(volumes=[WORK], workdir_volume_mount=MOUNT)
    made.assign("exp_1", str(tmp_path), "train", "train")
    made.materialize_launch_script(["true"])
    with LocalKube(images={"alpine*": "busybox"}, claims=["shared"]):
        made.package(made.packager, job_name="train")
    with LocalKube(claims=["shared"]) as other:
        with pytest.raises(ConfigError, match=r"the code was copied to .* launch again"):
            made.launch("train", made.start_command(["true"]))
        assert [request for request in other.requests if request.method == "POST" and "trainjobs" in request.path] == []


def test_what_a_busy_server_quotes_is_not_repeated(kube, caplog):
    caplog.set_level(logging.INFO, "nemo_run")
    quoting = Respond(500, on="POST */trainjobs", times=1, message="webhook: got hunter2", retry_after=0)
    with kube.fault(quoting):
        executor(env_vars={"API_TOKEN": "hunter2"}).launch("train", ["true"])
    assert "hunter2" not in caplog.text
    assert "create TrainJob" in caplog.text
    assert "500 InternalError; trying again" in caplog.text
