"""Jobs on Kubernetes as TrainJobs of Kubeflow Trainer 2."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._kube.names import TRAINJOB_MAX, dns_label, label_value
from nemo_run.core._signals import cleaned_up_at_sigterm
from nemo_run.core.execution import _files, _kubeflow_job, _ownership
from nemo_run.core.execution._checks import check_kubeflow
from nemo_run.core.execution._launched import Launched
from nemo_run.core.execution._script import with_parents
from nemo_run.core.execution._session import Session
from nemo_run.core.execution._torchrun import launched, of_trainjob
from nemo_run.core.execution._unsent import unsent
from nemo_run.core.execution._workdir import warn_replaced
from nemo_run.core.execution.base import Executor, ExecutorMacros, write_private
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

    from nemo_run._kube.api import KubeApi
    from nemo_run._kube.layout import WorkdirLayout
    from nemo_run._kube.logs import LogLine
    from nemo_run.core.execution._passthrough import Dialect

logger = logging.getLogger(__name__)

_KUBERNETES_AVAILABLE = True
"""Always true: the ``kubernetes`` package comes with nemo_run and is loaded when a verb needs it."""


class KubeflowJobState(Enum):
    """Where a TrainJob is in its life."""

    CREATED = "Created"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class JobReport:
    """What the cluster says of a TrainJob."""

    state: KubeflowJobState
    reason: str
    message: str
    """In words: what it waits for, or what it failed of."""
    uid: str
    name: str
    namespace: str = ""
    server: str = ""
    context: str = ""
    launch_id: str = ""
    """Random for each launch of nemo_run's."""
    untouched: str = ""
    """In words: that no controller has touched it, where one should have."""


@dataclass(kw_only=True, repr=False)
class KubeflowExecutor(Executor):
    """
    Runs a job as a TrainJob of Kubeflow Trainer 2.

    With a workdir (``workdir_volume_mount``) the code and the launch script are
    copied to a volume before the job starts; without one, the job runs what its
    image has. Only verbs that need the cluster connect to it.
    """

    runtime_ref: str = "torch-distributed"
    """The ClusterTrainingRuntime."""
    namespace: str = "default"
    image: str = ""
    """The container's image; empty: the runtime's."""
    num_nodes: int = 1
    nprocs_per_node: int | None = None
    """Processes on each node; None: one for each GPU."""
    gpus_per_node: int | None = None
    cpu_requests: str | None = None
    memory_requests: str | None = None
    cpu_limits: str | None = None
    memory_limits: str | None = None
    extra_resource_requests: dict[str, str] = field(default_factory=dict)
    extra_resource_limits: dict[str, str] = field(default_factory=dict)
    volume_mounts: list[dict[str, Any]] = field(default_factory=list)
    """VolumeMounts of the container; they may name volumes of the runtime."""
    volumes: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)
    """Labels of the TrainJob; Kueue's queue name belongs here."""
    annotations: dict[str, Any] = field(default_factory=dict)
    """Annotations of the TrainJob."""
    pod_annotations: dict[str, Any] = field(default_factory=dict)
    pod_labels: dict[str, Any] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    affinity: dict[str, Any] = field(default_factory=dict)
    env_list: list[dict[str, Any]] = field(default_factory=list)
    """EnvVars, such as ``{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": …}}``; they win over ``env_vars``."""
    pod_spec_overrides: dict[str, Any] = field(default_factory=dict)
    """More fields of the pod's spec."""
    data_mover_image: str = "alpine:3.19"
    """The copy pod's image; it needs ``sh``, ``tar`` and ``head``."""
    restart_policy: str = "OnFailure"
    """Kept for saved configs: a TrainJob has no such field."""
    image_pull_secrets: list[str] = field(default_factory=list)
    spec_kwargs: dict[str, Any] = field(default_factory=dict)
    """More fields of the TrainJob's spec."""
    container_kwargs: dict[str, Any] = field(default_factory=dict)
    """More fields of the container."""
    workdir_pvc: str | None = None
    """Deprecated: use ``workdir_volume_mount``."""
    workdir_pvc_path: str = "/nemo_run"
    """Deprecated: use ``workdir_volume_mount``."""
    workdir_local_path: str | None = None
    """A directory on this machine whose contents are copied along."""
    train_job_basename: str | None = None
    """What the TrainJob's name starts with; None: the task's name."""
    workdir_volume_mount: dict[str, Any] | None = None
    """The VolumeMount that carries the code; its volume is one of ``volumes``."""
    code_subpath: str | None = None
    """Where below that mount; knows ``{user}``, ``{experiment_id}``, ``{job_name}``, ``{workdir}``."""
    kubeconfig: str | None = None
    context: str | None = None
    gpu_resource: str = "nvidia.com/gpu"
    container_name: str = "node"
    """The runtime's training container."""
    trainer_api: str = "auto"
    """``"2.1"`` or ``"2.2"`` (and later) of Kubeflow Trainer; ``"auto"`` asks the server."""
    data_mover: dict[str, Any] = field(default_factory=dict)
    """Merged over the copy pod's spec; None removes."""
    data_mover_timeout: int = 600
    """Seconds for the copy pod to start."""
    strict: bool = False
    """Raise for fields of ``spec_kwargs`` and the like that the server does not know, instead of a warning."""

    job_name: str = field(init=False, default="")
    """The task's name; set by the experiment."""
    _task_env: dict[str, str] = field(init=False, repr=False, default_factory=dict)
    """The task's own variables; set by the experiment."""
    _task_files: dict[str, str] = field(init=False, repr=False, default_factory=dict)
    """Texts that the task needs below ``$NEMO_RUN_DIR`` where there is no workdir; set by the experiment."""
    _session: Session = field(init=False, repr=False, compare=False, default_factory=Session)

    def __post_init__(self) -> None:
        """Do nothing: an executor is a value until a verb is called."""

    def clone(self) -> Self:
        """Give an equal executor that shares nothing but the memory of what was launched, so that it can cancel it."""
        copy = super().clone()
        copy._session.launched, copy._session.known = self._session.launched, self._session.known
        return copy

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        """Take a job of an experiment; called by the experiment on its clone."""
        self.experiment_id = exp_id
        self.experiment_dir = exp_dir
        self.job_name = task_id
        self.job_dir = os.path.join(exp_dir, task_dir)

    def nnodes(self) -> int:
        """Give the number of nodes."""
        return self.num_nodes

    def nproc_per_node(self) -> int:
        """Give the number of processes on each node."""
        return self.nprocs_per_node or self.gpus_per_node or 1

    def macro_values(self) -> ExecutorMacros:
        """Give the names of the variables by which Kubeflow Trainer tells a node its place."""
        return ExecutorMacros(
            head_node_ip_var="PET_MASTER_ADDR",
            nproc_per_node_var="PET_NPROC_PER_NODE",
            num_nodes_var="PET_NNODES",
            node_rank_var="PET_NODE_RANK",
            het_group_host_var="PET_MASTER_ADDR",
        )

    def secret_values(self) -> list[str]:
        """Give the values of variables whose names say that they are secret, in each way that they are written."""
        return _kubeflow_job.secret_values(self)

    def workdir(self, local_dir: str | None = None) -> WorkdirLayout | None:
        """
        Give where on which volume the job's code lies; None without a workdir.

        Raises:
            ConfigError: the fields contradict each other, or what Kubernetes can do.
        """
        return _kubeflow_job.layout(self, local_dir)

    @property
    def code_dir(self) -> str:
        """The directory, seen from the container, that holds ``launch.sh``; empty without a workdir."""
        layout = self.workdir()
        return str(layout.code_dir) if layout else ""

    def create_job_dir(self) -> None:
        """Make the job's directory on this machine; tell here of deprecated arguments, before threads launch jobs."""
        super().create_job_dir()
        self._warn_replaced()

    def path_in_job(self, path: str) -> str | None:
        """Give where the job finds *path*, a file below ``job_dir``; None without a workdir."""
        layout = self.workdir()
        return str(layout.code_dir / Path(path).relative_to(self.job_dir)) if layout else None

    def get_job_body(self, name: str, command: list[str]) -> dict[str, Any]:
        """
        Give the manifest of the TrainJob *name* that runs *command* on each node. Needs no cluster.

        Raises:
            ConfigError: a field is wrong, or contradicts another.
        """
        return self._built(name, command).manifest

    def launcher_command(self, cmd: list[str]) -> list[str]:
        """Give what runs *cmd* under this executor's launcher: torchrun, a profiler, or nothing."""
        nodes = of_trainjob(self.nnodes())
        command = launched(cmd, self.get_launcher(), nodes, rdzv_id=self.job_name or "nemo-run")
        prefix = self.get_launcher_prefix()
        return [self.get_nsys_entrypoint()[0], *prefix, *command] if prefix else command

    def get_launcher_prefix(self) -> list[str] | None:
        """Give what goes before the command; a profile is written to the code directory, if there is one."""
        launcher = self.get_launcher()
        if not launcher.nsys_profile:
            return None
        os.makedirs(os.path.join(self.job_dir, launcher.nsys_folder), exist_ok=True)
        return launcher.get_nsys_prefix(profile_dir=self.code_dir or "/tmp")  # noqa: S108  # in the container

    def start_command(self, cmd: list[str]) -> list[str]:
        """Give the container's command for *cmd*: the synced launch script, or *cmd* itself without a workdir."""
        layout = self.workdir()
        return ["/bin/bash", str(layout.launch_script)] if layout else list(cmd)

    def materialize_launch_script(self, cmd: list[str], max_retries: int = 0) -> None:
        """
        Pack the code and write ``<job_dir>/launch.sh``, which runs *cmd*.

        Raises:
            ConfigError: a field or an argument is wrong.
            PackagingError: the packager failed.
        """
        check_kubeflow(self)
        directory = Path(self.job_dir)
        directory.mkdir(parents=True, exist_ok=True)
        if self.workdir():
            self._pack(self.packager, self.job_name or "code")
        else:
            _files.tell_unpacked(self.packager)
        sent = with_parents(source.path_in_archive for source in _files.of_job(self))
        script = _kubeflow_job.script(self, cmd, max_retries=max_retries, sent=sent)
        self._tell_once(unsent(cmd, sent, here=Path.cwd(), local=self.workdir_local_path))
        write_private(directory / "launch.sh", script)

    def package(self, packager: Packager, job_name: str) -> None:
        """
        Copy what the job needs to the volume, once the server has accepted the job; nothing without a workdir.

        Raises:
            KubeError: the server refuses the job, or the copy pod.
            PackagingError, TransferError, WaitTimeout: the code could not be packed or copied.
        """
        from nemo_run.core.execution import _runtime, _submit, _workspace

        layout = self.workdir()
        if layout is None:
            return
        api = self._connect()
        command = ["/bin/bash", str(layout.launch_script)]
        name = self._trainjob_name(job_name)
        body = self.get_job_body(name, command)
        _submit.check_rights(api, self.namespace)
        _runtime.check_runtime(api, body)
        _submit.create(api, body, dry_run=True, **self._handling(name, command))
        self._session.checked, self._session.server = True, api.server
        _workspace.prepare(self, api)
        if not self._session.packed:
            self._pack(packager, job_name)
        self.copy_to_workspace(self.job_dir, str(layout.code_dir), label=job_name)
        self._session.packed = False

    def launch(
        self, name: str, cmd: list[str], wait: bool = False, timeout: int = 300, poll_interval: int = 10
    ) -> tuple[str, KubeflowJobState]:
        """
        Create a TrainJob for the task *name*; return the TrainJob's name and its state.

        Args:
            wait: return only when it runs or has ended.
            timeout: seconds for that.

        Raises:
            Conflict: another TrainJob has the name; it is left alone.
            WaitTimeout: it did not start in time.
        """
        from nemo_run.core.execution import _progress, _runtime, _submit

        check_kubeflow(self)
        api = self._connect()
        trainjob = self._trainjob_name(name)
        body = self.get_job_body(trainjob, cmd)
        if self._session.checked and self._session.server != api.server:
            changed = f"the code was copied to {self._session.server}, and this leads to {api.server} now; launch again"
            raise ConfigError("kubeconfig", self.kubeconfig, changed)
        if not self._session.checked:
            _submit.check_rights(api, self.namespace)
            _runtime.check_runtime(api, body)
        job = Launched(self.namespace, trainjob, launch_id=secrets.token_hex(16))
        body["metadata"].setdefault("annotations", {})[_ownership.LAUNCH_ANNOTATION] = job.launch_id
        handling = self._handling(trainjob, cmd)
        if self._session.on_create:
            self._session.on_create(job)
        stored = _submit.create(api, body, **handling)
        logger.info("created TrainJob %s in namespace %s", trainjob, self.namespace)
        self._session.remember(name, replace(job, uid=stored["metadata"].get("uid") or ""))
        self._session.next_job()
        if not wait:
            return trainjob, KubeflowJobState.CREATED

        def why() -> str:
            return _progress.why_waiting(api, self.namespace, trainjob)

        state = _progress.started(self.status, trainjob, why=why, timeout=timeout, interval=poll_interval)
        return trainjob, state

    def status(self, job_name: str) -> KubeflowJobState | None:
        """Give the state of the TrainJob *job_name*; None only where the cluster says that it is gone."""
        from nemo_run.core.execution import _progress

        report = _progress.report(self._connect(), self.namespace, job_name)
        return report.state if report else None

    def report(self, job_name: str) -> JobReport | None:
        """Give the state of the TrainJob *job_name* and, in words, what it waits for or failed of; None if gone."""
        from nemo_run.core.execution import _progress

        api = self._connect()
        report = _progress.report(api, self.namespace, job_name)
        return report and _progress.explained(api, report)

    def reports(self) -> dict[str, JobReport]:
        """
        Give the states of all TrainJobs of this executor's experiment, by name, and what those wait for that wait.

        One request, and two more if any waits.
        """
        from nemo_run.core.execution import _progress, _submit

        api = self._connect()
        labels = {_ownership.EXPERIMENT_LABEL: label_value(self.experiment_id or "")}
        jobs = (_progress.reported(api, job) for job in _submit.found(api, self.namespace, labels))
        return _progress.all_explained(api, self.namespace, {job.name: job for job in jobs})

    def fetch_logs(self, job_name: str, stream: bool = False, lines: int = 100, timeout: int = 60) -> Iterable[str]:
        """
        Yield the log lines of the TrainJob *job_name*: rank 0's and the last rank's, or the first node's.

        Args:
            stream: go on until the job ends, and write all nodes' lines to ``<job_dir>/log-allranks_0.out``.
            lines: without *stream*, how many to give at most; the last ones.
            timeout: not needed any more, since every request has its own.
        """
        from nemo_run.core.execution import _joblogs

        api = self._connect()
        return _joblogs.streamed(self, api, job_name) if stream else _joblogs.read(self, api, job_name, lines=lines)

    def follow_logs(self, job_name: str, *, write: Callable[[LogLine], None], on_state: Callable[[str], None]) -> None:
        """Give *write* each log line of all nodes once, until the job has ended and all was read."""
        from nemo_run.core.execution import _joblogs

        _joblogs.follow(self, self._connect(), job_name, write=write, on_state=on_state)

    def cancel(self, job_name: str, wait: bool = False, timeout: int = 300, poll_interval: int = 5) -> bool | None:
        """
        Delete a TrainJob: *job_name* is its name, or the task's.

        One that somebody else created under the name of ours is left alone.

        Returns:
            None if there was none or *wait* is false; else whether it and its pods were gone in time.

        Raises:
            ConfigError: the task has more than one unfinished TrainJob; names them.
        """
        from nemo_run.core.execution import _submit

        api = self._connect()
        target = _submit.target(api, self, job_name)
        if target is None or not _submit.delete(api, target):
            logger.info("TrainJob %s is gone already", job_name)
            return None
        logger.info("deleted TrainJob %s in namespace %s", target.name, target.namespace)
        return _submit.gone(api, target, timeout=timeout, interval=poll_interval) if wait else None

    def copy_to_workspace(self, local_path: str, remote_path: str, label: str = "datamover") -> None:
        """
        Copy the contents of a local directory to *remote_path* on the workdir's volume; nothing without a workdir.

        Raises:
            KubeError, TransferError, WaitTimeout: no copy pod, or no copy.
        """
        with self._data_mover(label, remote_path) as pod_name:
            if pod_name:
                self._rsync_to_pod(pod_name, local_path, remote_path)

    def copy_from_workspace(self, remote_path: str, local_path: str, label: str = "datamover") -> None:
        """
        Copy the contents of *remote_path* on the workdir's volume to a local directory; nothing without a workdir.

        Raises:
            TransferError: there is no such directory, or the copy failed.
            KubeError, WaitTimeout: no copy pod.
        """
        with self._data_mover(label, remote_path) as pod_name:
            if pod_name:
                self._rsync_from_pod(pod_name, remote_path, local_path)

    def pull_results(self, job_name: str, dest_dir: str | None = None) -> None:
        """
        Copy what the job left in its code directory back, by default to the job's local directory.

        Raises:
            TransferError: nobody says where to, or the copy failed.
        """
        from nemo_run.core.execution import _workspace

        if self.workdir() is None:
            logger.warning("pull_results: there is no workdir, so there is nothing to copy")
            return
        self.copy_from_workspace(self.code_dir, str(_workspace.results_dir(self, dest_dir)), label=job_name)

    def _load_kube_clients(self) -> None:
        """Forget what was learned of the server; credentials are read anew by themselves."""
        self._session.dialect = None

    def _connect(self) -> KubeApi:
        """Give the door to the cluster, having asked once which API dialect it speaks."""
        from nemo_run._kube.api import connect
        from nemo_run.core.execution import _submit

        api = connect(kubeconfig=self.kubeconfig, context=self.context)
        if self.trainer_api == "auto" and self._session.dialect is None:
            self._session.dialect = _submit.dialect_of(api)
        return api

    def _dialect(self) -> Dialect:
        if self.trainer_api == "auto":
            return self._session.dialect or "2.2"
        if self.trainer_api not in ("2.1", "2.2"):
            raise ConfigError("trainer_api", self.trainer_api, "write 'auto', '2.1', or '2.2' for 2.2 and later")
        return "2.1" if self.trainer_api == "2.1" else "2.2"

    def _built(self, name: str, command: list[str]) -> _kubeflow_job.Built:
        self._warn_replaced()
        return _kubeflow_job.built(self, name, command, self._dialect())

    def _warn_replaced(self) -> None:
        warn_replaced(self.workdir(), deprecated="workdir_pvc, workdir_pvc_path")

    def _handling(self, name: str, command: list[str]) -> dict[str, Any]:
        """Give how a refusal of the manifest is to be handled; tell what there is to tell about it."""
        built = self._built(name, command)
        self._tell_once(built.notes)
        return {
            "origins": built.origins,
            "own": built.own,
            "strict": self.strict,
            "told": self._session.told,
            "secrets": self.secret_values(),
        }

    def _tell_once(self, notes: Iterable[str]) -> None:
        for note in notes:
            if note not in self._session.told:
                self._session.told.add(note)
                logger.warning("%s", note)

    def _trainjob_name(self, fallback: str) -> str:
        """Give the next TrainJob's name, the same until it is launched."""
        base = self.train_job_basename or fallback or "job"
        return dns_label(base, suffix=f"-{self._session.token}", limit=TRAINJOB_MAX)

    def _pack(self, packager: Packager, name: str) -> None:
        _files.pack_code(packager, Path(self.job_dir), name)
        self._session.packed = True

    @contextmanager
    def _data_mover(self, label: str, remote_path: str) -> Iterator[str | None]:
        """Run a copy pod for as long as the block lasts, and give its name; None without a workdir."""
        from nemo_run.core.execution import _workspace

        if self.workdir() is None:
            yield None
            return
        _workspace.remote(self, remote_path)
        pod_name = self._data_mover_pod_name(label)
        with cleaned_up_at_sigterm():
            try:
                self._start_data_mover_pod(pod_name)
                yield pod_name
            finally:
                self._delete_data_mover_pod(pod_name)

    def _data_mover_pod_name(self, job_name: str) -> str:
        return f"{self._trainjob_name(job_name)}-data-mover"

    def _start_data_mover_pod(self, pod_name: str, timeout: int | None = None) -> None:
        from nemo_run.core.execution import _workspace

        limit = timeout or self.data_mover_timeout
        self._session.movers[pod_name] = _workspace.start(self, self._connect(), pod_name, limit)

    def _delete_data_mover_pod(self, pod_name: str, timeout: int | None = None) -> None:
        mover = self._session.movers.pop(pod_name, None)
        if mover:
            mover.stack.close()

    def _rsync_to_pod(self, pod_name: str, local_path: str, remote_path: str) -> None:
        from nemo_run.core.execution import _workspace

        _workspace.send(self, self._session.movers[pod_name], Path(local_path), remote_path)

    def _rsync_from_pod(self, pod_name: str, remote_path: str, local_path: str) -> None:
        from nemo_run.core.execution import _workspace

        _workspace.fetch(self, self._session.movers[pod_name], remote_path, Path(local_path))
