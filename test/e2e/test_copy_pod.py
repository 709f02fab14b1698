"""The copy pod: gone before the job exists, and gone whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from children import PATIENCE, wait_for

from nemo_run._kube.api import connect
from nemo_run._kube.resources import POD
from nemo_run._kube.waiting import SYSTEM_CLOCK
from nemo_run.exceptions import NemoRunError
from nemo_run.testing import Cut, Pod, Respond

ROOT = Path(__file__).resolve().parents[2]


def left_over(local):
    """Give the names of the copy pods that are still there."""
    names = [pod["metadata"]["name"] for pod in connect().list(POD, local.defaults["namespace"])]
    return [name for name in names if "mover" in name]


def test_it_is_gone_before_the_trainjob_is_created(local):
    outcome = local.run(local.executor())
    assert outcome.status == "SUCCEEDED", outcome.log
    requests = local.kube.requests
    created = next(
        number
        for number, request in enumerate(requests)
        if request.method == "POST" and "/trainjobs" in request.path and "dryRun" not in request.query
    )
    gone = [
        number
        for number, request in enumerate(requests[:created])
        if request.method == "GET" and "mover" in request.path and request.status == 404
    ]
    assert gone, [str(request) for request in requests[:created]]
    assert left_over(local) == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Pod("*mover*", "ImagePullBackOff"), id="image"),
        pytest.param(Pod("*mover*", "never-ready"), id="never ready"),
        pytest.param(Respond(403, on="GET */pods/*/exec*"), id="exec refused"),
        pytest.param(Respond(500, on="GET */pods/*/exec*"), id="exec broken"),
        pytest.param(Cut("exec", 100, times=None), id="always cut"),
    ],
)
def test_it_is_removed_after_a_failure_and_no_job_was_made(local, fault, monkeypatch):
    monkeypatch.setattr(SYSTEM_CLOCK, "pace", 4.0)
    with local.kube.fault(fault), pytest.raises((NemoRunError, TimeoutError)):
        local.run(local.executor(data_mover_timeout=20))
    assert left_over(local) == []
    made = [r for r in local.kube.requests if r.method == "POST" and "/trainjobs" in r.path and "dryRun" not in r.query]
    assert made == []


def test_a_stream_that_is_cut_once_is_retried(local):
    with local.kube.fault(Cut("exec", 100, times=1)):
        outcome = local.run(local.executor())
    assert outcome.status == "SUCCEEDED", outcome.log


def test_a_refused_job_is_refused_before_a_byte_is_copied(local):
    quota = Respond(403, on="POST */trainjobs*", message='exceeded quota: "gpus"')
    with local.kube.fault(quota), pytest.raises(NemoRunError, match="exceeded quota"):
        local.run(local.executor())
    assert not [request for request in local.kube.requests if request.method == "POST" and "/pods" in request.path]


LAUNCH = """
    import nemo_run as run
    executor = run.KubeflowExecutor(
        namespace="research", image="python:3.12",
        volumes=[{"name": "work", "persistentVolumeClaim": {"claimName": "shared"}}],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run"},
    )
    run.run(run.Script(inline="echo started; sleep 60"), executor=executor, name="interrupted")
"""


def launched(start_child, script):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-u", str(script)]
    return start_child(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_while_copying_leaves_nothing(local, start_child, tmp_path, number):
    script = tmp_path / "launch.py"
    script.write_text(textwrap.dedent(LAUNCH).replace("research", local.defaults["namespace"]))
    with local.kube.fault(Pod("*mover*", "never-ready")):
        process = launched(start_child, script)
        wait_for(lambda: left_over(local), process)
        process.send_signal(number)
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number, output
    assert left_over(local) == []
    assert "Traceback" not in output


def test_ctrl_c_while_following_leaves_the_job_and_says_how_to_come_back(local, start_child, tmp_path):
    script = tmp_path / "launch.py"
    script.write_text(textwrap.dedent(LAUNCH).replace("research", local.defaults["namespace"]))
    process = launched(start_child, script)
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "started" in line:
            break
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=PATIENCE)
    output = "".join(seen) + rest
    assert process.returncode == 130, output
    assert "keeps running" in rest
    assert "cancel" in rest
    assert "Traceback" not in output
