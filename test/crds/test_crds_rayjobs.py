"""RayJob manifests as the operators of three years see them: nothing unknown, nothing twice."""

import pytest
from schemas import findings
from test_crds_rayclusters import EVERYTHING, MOUNT, WORK

from nemo_run.core.execution._rayjob import RayJobSpec, rayjob
from nemo_run.core.execution.kuberay import KubeRayExecutor, KubeRayWorkerGroup

DEADLINES = {"active_deadline_seconds": 60, "ttl_seconds_after_finished": 5, "retries": 1}
SUBMITTER = {"submitter": {"containers": [{"name": "ray-job-submitter", "env": [{"name": "A", "value": "1"}]}]}}


@pytest.mark.parametrize("version", ["1.3.2", "1.5.2", "1.7.0"])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="defaults"),
        pytest.param(
            {"volumes": [WORK], "workdir_volume_mount": MOUNT, "worker_groups": [KubeRayWorkerGroup("w")]}, id="workdir"
        ),
        pytest.param({**EVERYTHING, **DEADLINES, **SUBMITTER}, id="everything"),
    ],
)
def test_every_manifest_is_known_to_the_operator_to_the_last_field(version, fields):
    executor = KubeRayExecutor(**fields)
    job = RayJobSpec(
        name="my-job",
        command="python t.py",
        layout=executor.workdir("/home/me/src") if fields else None,
        synced=bool(fields),
        runtime_env="env_vars: {A: '1'}\n",
        pre_ray_start_commands=["export X=1"],
    )
    assert findings(f"kuberay_v{version}_rayjobs.yaml", rayjob(executor, job)) == []


@pytest.mark.parametrize("version", ["1.3.2", "1.5.2", "1.7.0"])
def test_a_job_on_a_cluster_that_is_there_is_known_too(version):
    body = rayjob(KubeRayExecutor(), RayJobSpec(name="my-job", command="x", cluster_name="big"))
    assert findings(f"kuberay_v{version}_rayjobs.yaml", body) == []


@pytest.mark.parametrize(("version", "known"), [("1.3.2", False), ("1.5.2", False), ("1.7.0", True)])
def test_the_deadline_before_running_is_newer(version, known):
    body = rayjob(KubeRayExecutor(pre_running_deadline_seconds=60), RayJobSpec(name="my-job", command="x"))
    assert (findings(f"kuberay_v{version}_rayjobs.yaml", body) == []) is known
