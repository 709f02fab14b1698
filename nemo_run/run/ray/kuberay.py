"""Ray clusters and jobs through KubeRay: `KubeRayCluster` and `KubeRayJob`."""

from __future__ import annotations

import getpass
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from nemo_run._kube.names import RAYCLUSTER_MAX, stable_label
from nemo_run._kube.resources import RAYCLUSTER, RAYJOB
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.core._masking import masked
from nemo_run.core.execution import _rayjob, _raystate, _raysync
from nemo_run.core.execution._ownership import own_labels
from nemo_run.core.execution._secrets import secret_values
from nemo_run.core.execution.base import current_user
from nemo_run.core.execution.kuberay import KubeRayExecutor
from nemo_run.exceptions import ConfigError, KubeError, NotFound, WaitTimeout
from nemo_run.run._console import Console
from nemo_run.run._interrupt import Interrupted, sigterm_interrupts
from nemo_run.run.ray import _clusters, _jobs, _logs, _objects, _texts
from nemo_run.run.ray._port_forward import PortForward

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run._kube.layout import WorkdirLayout

logger = logging.getLogger(__name__)

Json = dict[str, Any]

STOP_TIMEOUT = 300
"""Seconds that a RayJob and its pods have to go."""


def get_user() -> str:
    """Give this user's name as part of a Kubernetes name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = current_user()
    return re.sub(r"[^a-z0-9-]", "-", user.lower())


@dataclass(kw_only=True)
class KubeRayCluster:
    """A RayCluster: ``<user>-<name>-raycluster``, shortened if KubeRay would refuse that."""

    EXECUTOR_CLS: ClassVar[type[KubeRayExecutor]] = KubeRayExecutor

    name: str
    executor: KubeRayExecutor

    def __post_init__(self) -> None:
        self.user = get_user()
        self.cluster_name = stable_label(f"{self.user}-{self.name}-raycluster", limit=RAYCLUSTER_MAX)
        self._clock: Clock = SYSTEM_CLOCK
        self._told: set[str] = set()
        self._is_new = False

    def create(self, pre_ray_start_commands: list[str] | None = None, dryrun: bool = False) -> Json:
        """
        Create the RayCluster and give it as stored; one of ours that is there already is used if it is alike.

        Args:
            pre_ray_start_commands: shell commands that run before Ray in every Ray container.
            dryrun: send nothing; print the manifest, with secrets masked, and give it.

        Raises:
            ConfigError: the executor's fields contradict each other.
            Conflict: the name is taken, or ours is there and differs.
            KubeError: the server refused.
        """
        body = self._body(pre_ray_start_commands or ())
        if dryrun:
            _print(body, _secrets(self.executor))
            return body
        with sigterm_interrupts():
            stored, self._is_new = _clusters.created(
                self._connect(), body, _rayjob.origins(self.executor), **self._handling()
            )
        if self._is_new:
            logger.info("created RayCluster %s in namespace %s", self.cluster_name, self._namespace)
        return stored

    def status(self, timeout: int = 60, delay_between_attempts: int = 5, display: bool = False) -> Json | None:
        """
        Give the RayCluster's status, once KubeRay has written one; None only if it is not there.

        Args:
            timeout: seconds to wait for that.
            display: also log it in words.

        Raises:
            Rejected: KubeRay refuses the cluster; says why.
            WaitTimeout: there is none in time.
        """
        found = _clusters.status(
            self._connect(),
            self._namespace,
            self.cluster_name,
            timeout=timeout,
            interval=delay_between_attempts,
            clock=self._clock,
        )
        if found is not None and display:
            logger.info(_texts.cluster_text(self._namespace, self.cluster_name, found, _mounts(self.executor)))
        return found

    def wait_until_running(self, timeout: int = 600, delay_between_attempts: int = 5) -> bool:
        """
        Wait until the head can be used; true.

        Raises:
            Rejected: KubeRay refuses the cluster; says why.
            JobFailed: it was deleted meanwhile.
            WaitTimeout: not in time; says what it last waited for.
        """
        _clusters.wait_until_ready(
            self._connect(),
            self._namespace,
            self.cluster_name,
            timeout=timeout,
            interval=delay_between_attempts,
            clock=self._clock,
        )
        return True

    def delete(self, wait: bool = False, timeout: int = 300, poll_interval: int = 5) -> bool | None:
        """
        Delete the RayCluster.

        Returns:
            None if there was none; with *wait*, whether it and its pods were gone in time; else true.
        """
        api = self._connect()
        name = self.cluster_name
        if not _objects.delete(api, RAYCLUSTER, self._namespace, name):
            logger.info("RayCluster %s is gone already", name)
            return None
        logger.info("deleted RayCluster %s in namespace %s", name, self._namespace)
        if not wait:
            return True
        return _objects.gone(
            api,
            RAYCLUSTER,
            self._namespace,
            name,
            pods=[f"{_rayjob.CLUSTER_LABEL}={name}"],
            timeout=timeout,
            interval=poll_interval,
            clock=self._clock,
        )

    def patch(self, ray_patch: Any) -> bool:
        """
        Merge *ray_patch* into the RayCluster; true. Lists are replaced whole, so give all worker groups or none.

        Raises:
            KubeError: the server refused.
        """
        api = self._connect()
        given = (ray_patch.get("spec") or {}).get("workerGroupSpecs") if isinstance(ray_patch, Mapping) else None
        if given is not None:
            there = api.get(RAYCLUSTER, self._namespace, self.cluster_name)["spec"].get("workerGroupSpecs") or ()
            lost = sorted({group["groupName"] for group in there} - {group.get("groupName") for group in given})
            if lost:
                logger.warning("the patch removes the worker groups %s: it lists all there are to be", ", ".join(lost))
        api.patch(RAYCLUSTER, self._namespace, self.cluster_name, ray_patch)
        logger.info("patched RayCluster %s", self.cluster_name)
        return True

    def port_forward(self, port: int, target_port: int, wait: bool = False) -> PortForward:
        """
        Let *port* on this machine lead to *target_port* of the head, and give what ends it.

        Args:
            wait: return only after Ctrl-C or SIGTERM, with forwarding ended.

        Raises:
            ConfigError: the local port cannot be used.
            NotFound: there is no such cluster, or no head.
            KubeError: the server does not allow it, or nothing listens there.
        """
        from nemo_run._kube import portforward

        api = self._connect()

        def head() -> str:
            return _clusters.head_of(api, self._namespace, self.cluster_name)

        api.get(RAYCLUSTER, self._namespace, self.cluster_name)
        portforward.check(portforward.door(api, self._namespace, head(), target_port), clock=self._clock)
        forward = PortForward(api, self._namespace, head, port=port, target_port=target_port)
        forward.start()
        logger.info("localhost:%d leads to port %d of RayCluster %s", forward.port, target_port, self.cluster_name)
        if wait:
            _wait_for_interrupt(forward)
        return forward

    @property
    def is_new(self) -> bool:
        """Whether the last `create` made it, and did not find it."""
        return self._is_new

    @property
    def _namespace(self) -> str:
        return self.executor.namespace or "default"

    def _connect(self) -> KubeApi:
        return _connected(self.executor)

    def _body(self, commands: Sequence[str]) -> Json:
        body = self.executor.get_cluster_body(self.cluster_name, pre_ray_start_commands=commands, job_name=self.name)
        labels = own_labels(self.executor.experiment_id, self.name)
        metadata = {**body["metadata"], "namespace": self._namespace}
        return {**body, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}}

    def _handling(self) -> dict[str, Any]:
        return {
            "strict": self.executor.strict,
            "told": self._told,
            "secrets": _secrets(self.executor),
            "clock": self._clock,
        }


@dataclass(kw_only=True)
class KubeRayJob:
    """A RayJob: ``<user>-<name>-rayjob``, shortened if KubeRay would refuse that."""

    EXECUTOR_CLS: ClassVar[type[KubeRayExecutor]] = KubeRayExecutor

    name: str
    executor: KubeRayExecutor
    cluster_name: str | None = None
    """An existing RayCluster to run on, by the name that Kubernetes has for it."""

    def __post_init__(self) -> None:
        self.user = get_user()
        self.job_name = _rayjob.job_label(f"{self.user}-{self.name}-rayjob")
        self._clock: Clock = SYSTEM_CLOCK
        self._told: set[str] = set()
        self._last: _raystate.JobPhase | None = None
        self._stopped = False
        self._code_dir = ""

    def start(
        self,
        command: str | Sequence[str],
        workdir: str | None = None,
        runtime_env_yaml: str | Mapping[str, Any] | None = None,
        pre_ray_start_commands: list[str] | None = None,
        dryrun: bool = False,
    ) -> Json | None:
        """
        Copy the code and submit the job; with *dryrun* send nothing, and give the manifest.

        Args:
            command: shell text, or an argv list; it runs as one unit on the head.
            workdir: the local directory whose content the job starts in, as git sees it.
            runtime_env_yaml: Ray's runtime environment: a file, YAML, or a dict.
            pre_ray_start_commands: shell commands that run before Ray in every Ray container.

        Raises:
            ConfigError: the fields contradict each other, or there is no volume for *workdir*.
            Conflict: there is a RayJob of this name.
            KubeError, TransferError, WaitTimeout: the server refused, or the copy failed; nothing is left behind.
        """
        directory = _raysync.local_directory(workdir) if workdir else None
        layout = self._layout(directory)
        text = _rayjob.shell_text(command)
        synced = layout is not None and (directory is not None or not _rayjob.fits(text))
        spec = self._spec(text, layout, runtime_env_yaml, pre_ray_start_commands or (), synced=synced)
        body = _rayjob.rayjob(self.executor, spec)
        self.executor.tell_what_is_passed(layout)
        if dryrun:
            _print(body, spec.secrets)
            return body
        with sigterm_interrupts():
            self._submit(body, spec, directory)
        logger.info("created RayJob %s in namespace %s", self.job_name, self._namespace)
        self._stopped = False
        self._code_dir = str(layout.code_dir) if layout else ""
        self._last = _raystate.job_phase(body)
        return None

    def status(self, display: bool = True) -> dict[str, Any]:
        """
        Give ``jobStatus``, ``jobDeploymentStatus``, ``reason``, ``message`` and ``rayClusterName``.

        A job that was there and is gone has the last status it was seen with if it
        had ended, else STOPPED and Failed.

        Args:
            display: also log it in words.

        Raises:
            NotFound: there is no such RayJob, and this object has never seen one.
            KubeError: the server does not answer, or does not let us ask.
        """
        phase = self._look()
        if display:
            waits = "" if phase.ended else _jobs.waits_for(self._connect(), self._namespace, self.job_name, phase)
            logger.info(
                _texts.job_text(self._namespace, self.job_name, phase, code_dir=self._code_dir, waits_for=waits)
            )
        return phase.as_status()

    def logs(self, follow: bool = False, lines: int = 100, timeout: int | None = None) -> None:
        """
        Print the job's output: its last *lines*, or with *follow* all of it until the job has ended.

        Args:
            timeout: seconds to follow; the job goes on after that.

        Raises:
            NotFound: there is no such RayJob.
            KubeError: the server does not let us read logs.
            KeyboardInterrupt: Ctrl-C or SIGTERM came; the job goes on. Uncaught, it ends the process with 130 or 143.
        """
        if not follow:
            self._log().last(lines)
            return
        try:
            phase = self._followed(self._log(), timeout=timeout)
        except WaitTimeout as error:
            logger.warning("not following any more: %s", error)
            return
        self._tell_end(phase)

    def follow_logs_until_completion(self, poll_interval: int = 10, delete_on_finish: bool = True) -> dict[str, Any]:
        """
        Print the job's output until it has ended; give its last status, which tells success from failure.

        Args:
            poll_interval: seconds between two looks at the job.
            delete_on_finish: delete the RayJob then.
        """
        phase = self._followed(self._log(interval=min(poll_interval, _logs.INTERVAL) or _logs.INTERVAL))
        self._tell_end(phase)
        if delete_on_finish:
            try:
                self.stop()
            except KubeError as error:
                logger.warning("RayJob %s ended, but could not be deleted: %s", self.job_name, error)
        return phase.as_status()

    def stop(self, wait: bool = False, timeout: int = STOP_TIMEOUT) -> None:
        """
        Delete the RayJob, which ends it and its cluster; one that is gone already is no error.

        Args:
            wait: return only when it and its pods are gone, or after *timeout* seconds, with a warning.
        """
        api = self._connect()
        cluster = self._last.cluster if self._last else ""
        if wait and not cluster:
            try:
                cluster = self._look().cluster
            except NotFound:
                logger.debug("RayJob %s is not there", self.job_name)
        self._stopped = True
        if not _objects.delete(api, RAYJOB, self._namespace, self.job_name):
            logger.info("RayJob %s is gone already", self.job_name)
            return
        logger.info("deleted RayJob %s in namespace %s", self.job_name, self._namespace)
        if wait:
            own = [f"{_rayjob.CLUSTER_LABEL}={cluster}"] if cluster and not self.cluster_name else []
            _objects.gone(
                api,
                RAYJOB,
                self._namespace,
                self.job_name,
                pods=[f"job-name={self.job_name}", *own],
                timeout=timeout,
                interval=1.0,
                clock=self._clock,
            )

    @property
    def _namespace(self) -> str:
        return self.executor.namespace or "default"

    @property
    def _labels(self) -> dict[str, str]:
        return own_labels(self.executor.experiment_id, self.name)

    def _connect(self) -> KubeApi:
        return _connected(self.executor)

    def _layout(self, directory: Path | None) -> WorkdirLayout | None:
        """Say where the code goes; without a directory, only what ``workdir_volume_mount`` names."""
        layout = self.executor.workdir(None if directory is None else str(directory), job_name=self.name)
        if layout is None and directory is not None:
            raise ConfigError(
                "workdir",
                str(directory),
                "there is no volume to copy it to: set workdir_volume_mount, and volumes with the one that it names",
            )
        return layout

    def _spec(
        self,
        command: str,
        layout: WorkdirLayout | None,
        runtime_env: str | Mapping[str, Any] | None,
        commands: Sequence[str],
        *,
        synced: bool,
    ) -> _rayjob.RayJobSpec:
        text = _jobs.runtime_env_text(
            runtime_env, is_file=os.path.isfile, read=lambda path: Path(path).read_text("utf-8")
        )
        return _rayjob.RayJobSpec(
            name=self.job_name,
            command=command,
            layout=layout,
            synced=synced,
            labels=self._labels,
            runtime_env=text,
            pre_ray_start_commands=commands,
            cluster_name=self.cluster_name,
            secrets=[*_secrets(self.executor), *_rayjob.runtime_env_secrets(text)],
        )

    def _submit(self, body: Json, spec: _rayjob.RayJobSpec, directory: Path | None) -> None:
        api = self._connect()
        if self.cluster_name:
            _jobs.check_cluster(api, self._namespace, self.cluster_name, spec.layout if spec.synced else None)
        _jobs.submit(
            api,
            body,
            _rayjob.origins(self.executor, prefix="spec.rayClusterSpec"),
            before=lambda: self._sync(api, spec, directory),
            strict=self.executor.strict,
            told=self._told,
            secrets=spec.secrets,
            clock=self._clock,
        )

    def _sync(self, api: KubeApi, spec: _rayjob.RayJobSpec, directory: Path | None) -> None:
        if spec.layout is None or not spec.synced:
            return
        _raysync.warn_of_others(api, self._namespace, spec.layout, self._labels, self.job_name)
        texts: dict[PurePosixPath, str] = {_rayjob.runner_path(spec): _rayjob.runner_text(spec)}
        _raysync.sync(
            self.executor,
            api,
            spec.layout,
            directory,
            name=self.job_name,
            labels=self._labels,
            texts=texts,
            clock=self._clock,
        )

    def _look(self) -> _raystate.JobPhase:
        """Give how the job stands; what is gone after it was seen is no error."""
        try:
            self._last = _jobs.look(self._connect(), self._namespace, self.job_name)
        except NotFound:
            if self._last is None:
                raise
            self._last = _raystate.vanished(self._last, by_us=self._stopped)
        return self._last

    def _log(self, interval: float = _logs.INTERVAL) -> _logs.JobLog:
        api = self._connect()
        return _logs.JobLog(
            api,
            self._namespace,
            self.job_name,
            write=lambda text: Console().output("", text),
            look=self._look,
            waits_for=lambda phase: _jobs.waits_for(api, self._namespace, self.job_name, phase),
            clock=self._clock,
            interval=interval,
        )

    def _followed(self, log: _logs.JobLog, *, timeout: float | None = None) -> _raystate.JobPhase:
        """Follow to the end; interrupted, the job goes on."""
        with (
            self.kept_when_interrupted(),
            _jobs.witness(self._connect(), self._namespace, lambda: self._last),
        ):
            return log.follow(timeout=timeout)

    @contextmanager
    def kept_when_interrupted(self) -> Iterator[None]:
        """Have Ctrl-C and SIGTERM leave the job running, and say how to come back to it."""
        try:
            with sigterm_interrupts():
                yield
        except KeyboardInterrupt as error:
            again = f"RayJob(name={self.name!r}, executor=…)"
            ways = f"  {again}.logs(follow=True)\n  {again}.stop()"
            logger.warning(
                "RayJob %s keeps running. To see it, or to end it, from any process:\n%s", self.job_name, ways
            )
            raise Interrupted(error) from None

    def _tell_end(self, phase: _raystate.JobPhase) -> None:
        level = logging.INFO if phase.state == "SUCCEEDED" else logging.ERROR
        logger.log(level, "RayJob %s: %s, %s", self.job_name, phase.state, phase)


def _connected(executor: KubeRayExecutor) -> KubeApi:
    from nemo_run._kube.api import connect

    return connect(kubeconfig=executor.kubeconfig, context=executor.context)


def _secrets(executor: KubeRayExecutor) -> list[str]:
    passed = executor.container_kwargs.get("env") or ()
    return secret_values(
        [("env_vars", executor.env_vars), ("env_list", executor.env_list), ("container_kwargs", passed)]
    )


def _mounts(executor: KubeRayExecutor) -> list[str]:
    mounts = [*executor.volume_mounts, *filter(None, [executor.workdir_volume_mount])]
    return list(dict.fromkeys(str(mount.get("mountPath")) for mount in mounts))


def _print(body: Json, secrets: Sequence[str]) -> None:
    shown = masked(body, secrets=secrets)
    if text := body["spec"].get("runtimeEnvYAML"):
        # By its keys: in a text, only what stands on one line with its name is known to be secret.
        document = masked(yaml.safe_load(text), secrets=secrets)
        shown["spec"]["runtimeEnvYAML"] = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    Console().code(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), "yaml")


def _wait_for_interrupt(forward: threading.Thread) -> None:
    """Wait until Ctrl-C or SIGTERM, and end *forward*."""
    logger.info("Ctrl-C ends it")
    try:
        with sigterm_interrupts():
            while forward.is_alive():
                forward.join(0.5)
    except KeyboardInterrupt:
        logger.info("forwarding ended")
    finally:
        if isinstance(forward, PortForward):
            forward.stop_forwarding()
