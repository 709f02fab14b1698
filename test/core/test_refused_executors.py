"""What launchers import and this package does not run: built, saved, asked; refused when it is to act."""

from __future__ import annotations

from typing import Any

import fiddle as fdl
import pytest

import nemo_run as run
from nemo_run.core.execution.slurm import SlurmJobDetails, get_packaging_job_key
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.core.tunnel.client import Tunnel
from nemo_run.exceptions import ConfigError

DGX = dict.fromkeys(
    ("base_url", "kube_apiserver_url", "client_id", "project_name", "container_image", "pvc_nemo_run_dir"), "x"
)
EXECUTORS = [
    (run.SlurmExecutor(account="a", nodes=2, ntasks_per_node=8), 2, 8),
    (run.SlurmExecutor(account="a", torchrun_nproc_per_node=1, ntasks_per_node=8), 1, 1),
    (run.DockerExecutor(container_image="i", ntasks_per_node=2), 1, 2),
    (run.SkypilotExecutor(num_nodes=2, gpus_per_node=4), 2, 4),
    (run.SkypilotJobsExecutor(), 1, 1),
    (run.LeptonExecutor(container_image="i", nemo_run_dir="/n", nodes=3, gpus_per_node=8), 3, 8),
    (run.DGXCloudExecutor(**DGX, client_secret="s3cret", nprocs_per_node=2), 1, 2),
]
IDS = [type(executor).__name__ for executor, _, _ in EXECUTORS]


@pytest.mark.parametrize(("executor", "nodes", "processes"), EXECUTORS, ids=IDS)
def test_can_be_asked_and_saved(executor: Any, nodes: int, processes: int) -> None:
    assert (executor.nnodes(), executor.nproc_per_node()) == (nodes, processes)
    assert executor.clone() == executor
    serializer = ZlibJSONSerializer()
    assert fdl.build(serializer.deserialize(serializer.serialize(executor.to_config()))) == executor


@pytest.mark.parametrize(("executor", "nodes", "processes"), EXECUTORS, ids=IDS)
def test_job_is_refused_with_advice(executor: Any, nodes: int, processes: int) -> None:
    for act in (lambda: executor.assign("e", "/e", "t", "t"), lambda: executor.launch("t", ["true"])):
        with pytest.raises(ConfigError, match="use one of these, or NVIDIA's NeMo-Run") as caught:
            act()
        assert caught.value.value == type(executor).__name__


def test_secret_is_not_printed() -> None:
    assert "s3cret" not in repr(run.DGXCloudExecutor(**DGX, client_secret="s3cret"))


@pytest.mark.parametrize(
    "tunnel",
    [run.LocalTunnel(job_dir="/j"), run.SSHTunnel(job_dir="/j", host="h", user="u", identity="~/.ssh/id")],
    ids=["local", "ssh"],
)
def test_tunnel_is_a_value(tunnel: Tunnel) -> None:
    acts = (tunnel.connect, lambda: tunnel.run("ls"), lambda: tunnel.put("a", "b"), lambda: tunnel.get("a", "b"))
    for act in acts:
        with pytest.raises(ConfigError, match="without tunnels"):
            act()
    tunnel.cleanup()
    assert fdl.build(tunnel.to_config()) == tunnel


def test_slurm_names() -> None:
    details = SlurmJobDetails(job_name="j", folder="/f")
    assert [str(path) for path in (details.stdout, details.srun_stderr)] == [
        "/f/sbatch_j_%j.out",
        "/f/log-j_%j_${SLURM_RESTART_COUNT:-0}.err",
    ]
    assert (details.ls_term, repr(details)) == ("/f/log*", "SlurmJobDetails(/f)")
    assert get_packaging_job_key("e", "j") == "e:j"
    assert run.SlurmExecutor(account="a").info() == "SlurmExecutor on @localhost"
    with pytest.raises(ConfigError, match="folder"):
        _ = SlurmJobDetails().stdout


def test_devspace_is_a_value() -> None:
    space = run.DevSpace("d", run.LocalExecutor())
    for act in (space.launch, space.execute_cmd, lambda: run.DevSpace.connect("u@h", "/p")):
        with pytest.raises(ConfigError, match="kubectl exec"):
            act()


def test_command_line_says_that_it_is_not_there() -> None:
    def task(x: int) -> int:
        return x

    assert run.cli.factory(task) is run.cli.entrypoint(task) is run.cli.factory(name="a")(task) is task
    assert run.cli.entrypoint(namespace="n")(task)(0) == 0
    acts: list[Any] = [
        lambda: run.cli.main(task),
        lambda: run.cli.create_cli(),
        lambda: run.cli.parse_partial(task, "x=1"),
        lambda: run.cli.list_factories(int),
        lambda: run.cli.list_entrypoints(),
        lambda: run.cli.resolve_factory(int, "a"),
        lambda: run.help(task),
        lambda: run.lazy_imports(),
        lambda: run.LazyEntrypoint("m.task").resolve(),
    ]
    for act in acts:
        with pytest.raises(ConfigError, match="no command line"):
            act()
    with pytest.raises(ConfigError, match="target"):
        run.cli.factory(target_arg="x")
