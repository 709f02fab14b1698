"""
Measure a training recipe on Kubernetes: launch, read the logs, try again after failures that come and go.

What Kubernetes is to get is given as JSON and passed on as it is; what this
program does not know is passed on to the recipe.
"""

from __future__ import annotations

import argparse
import json
import logging
import shlex
import sys
import tempfile
from pathlib import Path

from logs import FLAKY, collected, losses, settled
from plugins import CloudPlugin, MoreArguments, ProfilerPlugin

import nemo_run as run
from nemo_run.config import get_nemorun_home, set_nemorun_home  # noqa: F401  # as launchers for Slurm and Kubernetes do
from nemo_run.core.execution.launcher import SlurmTemplate  # noqa: F401

logger = logging.getLogger("performance")

ACCEPTED = ("SUCCEEDED", "SUBMITTED", "PENDING", "RUNNING")
CACHE = "golden-values"


def arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--entrypoint", required=True)
    parser.add_argument("--namespace", default="default")
    parser.add_argument("--image", required=True)
    parser.add_argument("--num_nodes", type=int, default=1)
    parser.add_argument("--gpus_per_node", type=int, default=8)
    parser.add_argument("--workdir_pvc")
    parser.add_argument("--workdir_pvc_path", default="/nemo_run")
    parser.add_argument("--workdir_local_path")
    for name in ("volumes", "volume_mounts", "env_list", "tolerations", "image_pull_secrets"):
        parser.add_argument(f"--{name}", type=json.loads, default=[])
    for name in ("env_vars", "affinity", "resource_requests", "resource_limits", "pod_spec", "container", "labels"):
        parser.add_argument(f"--{name}", type=json.loads, default={})
    parser.add_argument("--pod_annotations", type=json.loads, default={})
    parser.add_argument("--cloud", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--wrap", action="store_true")
    parser.add_argument("--dryrun", action="store_true")
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--max_retries", type=int, default=2)
    parser.add_argument("--settle_seconds", type=float, default=10)
    return parser.parse_known_args()


def executor_of(args: argparse.Namespace) -> run.KubeflowExecutor:
    return run.KubeflowExecutor(
        launcher=run.Torchrun(),
        runtime_ref="torch-distributed",
        cpu_requests="8",
        memory_requests="32Gi",
        namespace=args.namespace,
        image=args.image,
        num_nodes=args.num_nodes,
        gpus_per_node=args.gpus_per_node,
        volumes=args.volumes,
        volume_mounts=args.volume_mounts,
        workdir_pvc=args.workdir_pvc,
        workdir_pvc_path=args.workdir_pvc_path,
        workdir_local_path=args.workdir_local_path,
        train_job_basename=f"perf-{args.recipe}",
        image_pull_secrets=args.image_pull_secrets,
        env_vars=args.env_vars,
        env_list=args.env_list,
        tolerations=args.tolerations,
        affinity=args.affinity,
        extra_resource_requests=args.resource_requests,
        extra_resource_limits=args.resource_limits,
        pod_spec_overrides=args.pod_spec,
        container_kwargs=args.container,
        labels=args.labels,
        pod_labels=args.labels,
        pod_annotations=args.pod_annotations,
        packager=run.GitArchivePackager(include_submodules=True),
    )


def script_of(args: argparse.Namespace, forwarded: list[str]) -> run.Script:
    """Give the recipe's script; wrapped, it is a shell script that sets the stage first."""
    task = run.Script(
        path=args.entrypoint,
        entrypoint="python",
        env={"PYTHONPATH": f"{Path(args.entrypoint).parent}/src:$PYTHONPATH"},
        args=["--recipe", args.recipe, *forwarded],
    )
    logger.info("to run: %s", task.to_command())
    if not args.wrap:
        return task
    command = shlex.join(task.to_command(with_entrypoint=True))
    return run.Script(
        inline=f"export STAGE=set\n{command}\n", env=task.env.copy(), metadata=task.metadata.copy(), entrypoint="bash"
    )


def plugins_of(args: argparse.Namespace) -> list[run.Plugin]:
    plugins: list[run.Plugin] = []
    if args.cloud:
        plugins.append(CloudPlugin(provider="efa"))
    if args.profile:
        plugins.append(ProfilerPlugin(ranks=[0]))
    if not args.wrap:
        plugins.append(MoreArguments(arguments=["--steps", "3"]))
    return plugins


def place_and_status(name: str) -> tuple[str, str]:
    """Ask a new object, as a program would that is started later."""
    found = run.Experiment.from_title(name).status(return_dict=True)
    first = next(iter(found.values()))
    return first["local_dir"], str(first["status"])


def cached(executor: run.KubeflowExecutor, args: argparse.Namespace) -> dict[str, int] | None:
    """Read what earlier runs left on the volume; whatever goes wrong, there is nothing."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            executor.copy_from_workspace(remote_cache(args), directory, label="gv-cache-read")
            return json.loads(Path(directory, "values.json").read_text())
        except Exception as error:
            logger.info("no cache: %s", error)
            return None


def keep(executor: run.KubeflowExecutor, args: argparse.Namespace, values: dict[str, int]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "values.json").write_text(json.dumps(values))
        try:
            executor.copy_to_workspace(directory, remote_cache(args), label="gv-cache-write")
        except Exception as error:
            logger.warning("the cache was not written: %s", error)


def remote_cache(args: argparse.Namespace) -> str:
    return f"{args.workdir_pvc_path}/{CACHE}/{args.recipe}"


def main() -> int:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    args, forwarded = arguments()
    name = f"{args.recipe}_{args.num_nodes}x{args.gpus_per_node}"
    executor = executor_of(args)
    plugins = plugins_of(args)
    statuses, caches = [], []
    for attempt in range(1, args.max_retries + 2):
        if not args.dryrun:
            caches.append(cached(executor, args))
        if attempt > 1:
            executor.env_vars.update({"WANDB_RUN_ID": f"run-{args.recipe}", "WANDB_RESUME": "allow"})
        run.run(
            script_of(args, forwarded),
            executor=executor,
            plugins=plugins,
            dryrun=args.dryrun,
            detach=args.detach,
            name=name,
        )
        if args.dryrun:
            break
        directory, status = place_and_status(name)
        statuses.append(status)
        if args.detach:
            break
        text = settled(collected(directory, name), seconds=args.settle_seconds)
        keep(executor, args, {"attempts": attempt})
        if status in ACCEPTED or not FLAKY.search(text):
            break
    else:
        logger.error("failed %d times", args.max_retries + 1)
    report = {
        "statuses": statuses,
        "caches": caches,
        "losses": losses(text) if statuses and not args.detach else {},
        "env_vars": executor.env_vars,
        "volumes": executor.volumes,
        "volume_mounts": executor.volume_mounts,
        "container_kwargs": executor.container_kwargs,
        "pod_annotations": executor.pod_annotations,
        "profiled": executor.get_launcher().nsys_profile,
        "home": get_nemorun_home(),
    }
    print("REPORT", json.dumps(report))
    return 0 if args.dryrun or statuses[-1] in ACCEPTED else 1


if __name__ == "__main__":
    sys.exit(main())
