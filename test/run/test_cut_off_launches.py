"""A launch that ends in the middle of the create: no TrainJob stays without somebody who knows of it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time

import pytest
from children import PATIENCE, python, wait_for

import nemo_run as run
from nemo_run._kube.resources import TRAINJOB
from nemo_run.exceptions import Rejected, ServerError
from nemo_run.testing import Delay, Respond

CLIENT = """
    import nemo_run as run
    executor = run.KubeflowExecutor(image="python:3.12", spec_kwargs={"suspend": True})
    run.run(run.Script(inline="true"), executor=executor, name="train")
"""


def executor():
    return run.KubeflowExecutor(image="python:3.12", spec_kwargs={"suspend": True})


def jobs(kube):
    return kube.do(lambda store: store.list(TRAINJOB, "default"))


def records(tmp_path):
    return json.loads((tmp_path / "nemorun" / ".kubeflow_jobs.json").read_text())


def status():
    """Give how the only task stands, as another process would see it."""
    facts = run.Experiment.from_title("train").status(return_dict=True)["train"]
    return str(facts["status"])


def launching(kube, start_child):
    """Start a client, and give it while its request to create the TrainJob is on the way."""
    child = start_child(*python(CLIENT), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: any(entry.struck for entry in kube._cluster.faults._active), child)
    return child


def test_interrupted_it_is_taken_back_though_it_arrives_late(kube, start_child):
    with kube.fault(Delay(3, on="POST */trainjobs", times=1)):
        child = launching(kube, start_child)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (130, "")
    assert "Interrupted: no job was launched." in out
    assert jobs(kube) == []
    assert status() == "CANCELLED"


def test_interrupted_and_unsure_it_says_what_may_be_there_and_finds_it(kube, start_child):
    with kube.fault(Delay(14, on="POST */trainjobs", times=1)):
        child = launching(kube, start_child)
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=PATIENCE)
        assert (child.returncode, err) == (143, "")
        assert re.search(r"may have been created: train-\w+ in default; check with", " ".join(out.split()))
        assert "no job was launched" not in out
        assert status() == "UNSUBMITTED"
        wait_for(lambda: jobs(kube))
    wait_for(lambda: status() == "PENDING")
    run.Experiment.from_title("train").cancel("train")
    assert jobs(kube) == []
    assert status() == "CANCELLED"


def test_killed_right_after_the_request_the_job_is_found(kube, start_child, tmp_path):
    with kube.fault(Delay(2, on="POST */trainjobs", times=1)):
        child = launching(kube, start_child)
        child.kill()
        child.communicate(timeout=PATIENCE)
        wait_for(lambda: jobs(kube))
    wait_for(lambda: status() == "PENDING")
    (record,) = records(tmp_path).values()
    (job,) = jobs(kube)
    assert (record["job_name"], record["uid"]) == (job["metadata"]["name"], job["metadata"]["uid"])


@pytest.mark.parametrize("name_taken", [False, True])
def test_killed_before_the_request_arrives_it_was_never_created(kube, start_child, tmp_path, name_taken):
    """Said once no request can be on the way any more; at once where the name is somebody else's."""
    with kube.fault(Respond(503, on="POST */trainjobs")):
        child = start_child(*python(CLIENT), stdout=subprocess.PIPE)
        path = tmp_path / "nemorun" / ".kubeflow_jobs.json"
        wait_for(path.exists, child)
        child.kill()
        child.communicate(timeout=PATIENCE)
    assert status() == "UNSUBMITTED"
    ((app_id, record),) = records(tmp_path).items()
    if name_taken:
        executor().launch("other", ["true"])
        body = jobs(kube)[0]
        body["metadata"] = {"name": record["job_name"]}
        body.pop("status", None)
        kube.do(lambda store: store.create(TRAINJOB, "default", body))
    else:
        path.write_text(json.dumps({app_id: {**record, "submitted_at": time.time() - 3600}}))
    assert status() == "CANCELLED"
    assert "never created" in records(tmp_path)[app_id]["reason"]


def test_what_the_server_refuses_leaves_no_record(kube, tmp_path):
    with kube.fault(Respond(422, on="POST */trainjobs")), pytest.raises(Rejected):
        run.run(run.Script(inline="true"), executor=executor(), name="train")
    assert records(tmp_path) == {}


def test_an_answer_that_never_comes_costs_no_job(kube):
    """Created, but the server says otherwise until we give up: it is taken back."""
    with (
        kube.fault(Respond(501, on="POST */trainjobs", carried_out=True)),
        pytest.raises(ServerError),
    ):
        run.run(run.Script(inline="true"), executor=executor(), name="train")
    assert jobs(kube) == []
    assert status() == "CANCELLED"
