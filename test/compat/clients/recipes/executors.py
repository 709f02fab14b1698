"""A user's executors, as they lie in ``$NEMORUN_HOME``."""

import nemo_run as run


def cluster():
    return run.KubeflowExecutor(
        image="python:3.12",
        gpus_per_node=2,
        volumes=[
            {"name": "work", "persistentVolumeClaim": {"claimName": "shared"}},
            {"name": "image", "persistentVolumeClaim": {"claimName": "image"}},
        ],
        volume_mounts=[{"name": "image", "mountPath": "/opt/app"}],
        workdir_volume_mount={"name": "work", "mountPath": "/nemo_run", "subPath": "team-a"},
        env_vars={"PYTHONPATH": "/opt/app", "SEED": "1"},
    )


def elsewhere():
    executor = cluster()
    executor.workdir_volume_mount = {"name": "work", "mountPath": "/workspace"}
    return executor


EXECUTOR_MAP = {"cluster": cluster, "elsewhere": elsewhere(), "local": run.LocalExecutor}
