"""The Role in the guide to KubeRayExecutor is enough for all of a job, and what is missing of it is named early."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from raying import movers, ray_kube, tree, workdir_executor

from nemo_run.exceptions import NotAuthorized
from nemo_run.run.ray.job import RayJob

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/executors/kuberay.md"


def documented():
    (text,) = re.findall(r"^```yaml\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return [
        {"apiGroups": rule["apiGroups"], "resources": [resource], "verbs": [verb]}
        for rule in yaml.safe_load(text)["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@pytest.fixture(scope="module")
def running():
    with ray_kube() as kube:
        yield kube


@pytest.fixture
def kube(running, monkeypatch):
    monkeypatch.setenv("NEMO_RUN_LOCAL_KUBE", str(running.kubeconfig))
    yield running
    running.rules = None


def test_the_role_of_the_guide_is_enough_for_all_of_a_job(kube, tmp_path, capsys):
    kube.rules = documented()
    before = len(kube.requests)
    code = tree(tmp_path / "src", {"hello.sh": "echo hello from the volume"})
    job = RayJob(name="whole", executor=workdir_executor())
    job.start(command="bash hello.sh", workdir=str(code))
    assert job.backend.follow_logs_until_completion(poll_interval=1, delete_on_finish=False)["jobStatus"] == "SUCCEEDED"
    assert job.status(display=False)["jobStatus"] == "SUCCEEDED"
    job.logs()
    assert "hello from the volume" in capsys.readouterr().out
    job.stop(wait=True)
    assert [request for request in kube.requests[before:] if request.status == 403] == []


@pytest.mark.parametrize(
    "missing", ["create pods", "get pods", "delete pods", "get pods/exec", "create pods/exec", "create rayjobs"]
)
def test_what_a_start_cannot_do_without_is_named_before_a_copy_pod_is_made(kube, tmp_path, missing):
    verb, resource = missing.split()
    kube.rules = [rule for rule in documented() if (rule["verbs"], rule["resources"]) != ([verb], [resource])]
    code = tree(tmp_path / "src", {"hello.sh": "echo hello"})
    with pytest.raises(NotAuthorized) as caught:
        RayJob(name="early", executor=workdir_executor()).start(command="true", workdir=str(code))
    text = str(caught.value)
    assert re.search(rf'{verb} {resource}\b|cannot {verb} resource "{resource}"', text)
    assert "context localkube" in text
    assert "namespace default" in text
    assert movers(kube) == []
