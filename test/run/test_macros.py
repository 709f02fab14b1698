"""Macros stand for the variables by which an executor tells a node its place."""

from __future__ import annotations

import re

import nemo_run as run
from nemo_run.core.execution.base import ExecutorMacros


def test_macros_in_arguments_and_variables_become_kubeflow_s(tmp_path):
    script = run.Script(
        "train.sh",
        args=[f"--nodes=$${ExecutorMacros.NUM_NODES_VAR}", ExecutorMacros.NODE_RANK_VAR],
        env={"HEAD": f"$${ExecutorMacros.HEAD_NODE_IP_VAR}"},
    )
    with run.Experiment("macros", executor=run.KubeflowExecutor(), base_dir=str(tmp_path), clean_mode=True) as exp:
        exp.add(script, name="t")
        trainer = exp.dryrun()["t"]["spec"]["trainer"]
    (line,) = re.findall("^exec .*", trainer["command"][2], re.MULTILINE)
    # Kubernetes makes one dollar sign of two.
    assert line.replace("$$", "$") == r'exec bash train.sh "--nodes=${PET_NNODES-\$PET_NNODES}" PET_NODE_RANK'
    assert trainer["env"] == [{"name": "HEAD", "value": "$$PET_MASTER_ADDR"}]
