"""What NeMo-Run's documentation told people to write goes on working."""

from __future__ import annotations

import warnings

import pytest

import nemo_run as run


def test_the_documented_configuration_runs_unchanged_and_warns_once(local):
    executor = run.KubeflowExecutor(
        **local.defaults,
        workdir_pvc="shared",
        workdir_pvc_path="/nemo-workspace",
        volumes=[{"name": "model-cache", "persistentVolumeClaim": {"claimName": "shared"}}],
        volume_mounts=[{"name": "model-cache", "mountPath": "/nemo-workspace"}],
    )
    script = run.Script(inline="echo trained; pwd; cp $NEMO_RUN_DIR/launch.sh $NEMO_RUN_DIR/result.txt")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcomes = [local.run(executor, script), local.run(executor, script)]
    assert [outcome.status for outcome in outcomes] == ["SUCCEEDED"] * 2, outcomes[0].log
    (warning,) = [text for entry in caught if "workdir_pvc" in (text := str(entry.message))]
    assert "workdir_volume_mount={'name': 'model-cache', 'mountPath': '/nemo-workspace'}" in warning
    written = sorted(local.claim.rglob("result.txt"))
    assert [path.parent.name for path in written] == ["code", "code"]


def test_the_claim_alone_is_enough(local):
    executor = run.KubeflowExecutor(**local.defaults, workdir_pvc="shared")
    with pytest.warns(DeprecationWarning, match="nemo-run-workdir"):
        outcome = local.run(executor, run.Script(inline="echo $NEMO_RUN_DIR"))
    assert outcome.status == "SUCCEEDED", outcome.log
    assert "/nemo_run/" in outcome.log


def test_a_saved_config_is_run_as_it_is(local):
    config = run.Config(run.KubeflowExecutor, **local.defaults, workdir_pvc="shared", workdir_pvc_path="/w")
    import fiddle as fdl

    executor = fdl.build(config)
    with pytest.warns(DeprecationWarning, match="'mountPath': '/w'"):
        outcome = local.run(executor, run.Script(inline="echo $NEMO_RUN_DIR"))
    assert outcome.status == "SUCCEEDED", outcome.log
    assert "/w/" in outcome.log


def test_both_ways_at_once_must_agree(local):
    executor = local.executor(workdir_pvc="shared", workdir_pvc_path="/elsewhere")
    with pytest.raises(ValueError, match="workdir_pvc"):
        local.run(executor)
