"""The output of RayJobs: the submitter's, wherever it runs; or the dashboard's, where there is no submitter."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from nemo_run._kube.demux import Lines
from nemo_run._kube.logs import LogFollower
from nemo_run._kube.resources import POD, RAYJOB
from nemo_run._kube.startup import startup
from nemo_run._kube.tail import has_started
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.core.execution._rayjob import CLUSTER_LABEL, NODE_LABEL, SUBMITTER_CONTAINER
from nemo_run.core.execution._raystate import JobPhase
from nemo_run.exceptions import KubeError, ServerError, Unreachable, WaitTimeout
from nemo_run.run.ray import _clusters
from nemo_run.run.ray._port_forward import PortForward

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

DASHBOARD = 8265
INTERVAL = 2.0
REASONS_EVERY = 10.0
"""Seconds between two looks at why a job does not run yet."""


class JobLog:
    """The output of one RayJob; *write* gets each line, in the thread that follows."""

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        name: str,
        *,
        write: Callable[[str], None],
        look: Callable[[], JobPhase],
        waits_for: Callable[[JobPhase], str] = lambda phase: "",
        clock: Clock = SYSTEM_CLOCK,
        interval: float = INTERVAL,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._write = write
        self._look = look
        self._waits_for = waits_for
        self._reason = ""
        self._state = ""
        self._ask_again = 0.0
        self._clock = clock
        self._interval = interval
        self._deadline: float | None = None
        self._timeout = 0.0
        self._shown = 0

    def follow(self, *, timeout: float | None = None) -> JobPhase:
        """
        Follow until the job has ended and all is read; give how it ended.

        Raises:
            WaitTimeout: it has not ended within *timeout* seconds; the job goes on.
        """
        if timeout is not None:
            self._timeout, self._deadline = timeout, self._clock.now() + timeout
        while not (phase := self._patiently()).ended:
            mode = phase.mode
            if mode == "HTTPMode":
                self._poll_dashboard(phase)
            elif mode == "SidecarMode" and not phase.cluster:
                self._clock.sleep(self._interval)
            else:
                self._follow_pods(mode, phase.cluster)
        ran = phase.deployment != "ValidationFailed" and (phase.mode != "SidecarMode" or phase.cluster)
        if not self._shown and phase.mode == "HTTPMode":
            self._poll_dashboard(phase)
        elif not self._shown and ran:
            self._follow_pods(phase.mode, phase.cluster)
        return phase

    def last(self, lines: int) -> None:
        """Write the last *lines* of what there is, and say why there is nothing."""
        phase = self._seen()
        mode = phase.mode
        if mode == "HTTPMode":
            for text in self._dashboard_text(phase).splitlines()[-lines:]:
                self._write(text)
            return
        pods = self._api.list(POD, self._namespace, labels=self._selector(mode, phase.cluster))
        pods.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
        started = [pod for pod in pods if has_started(pod, SUBMITTER_CONTAINER)]
        if not started:
            reasons = "; ".join(f"pod {pod['metadata']['name']}: {startup(pod).text}" for pod in pods)
            logger.info("RayJob %s has no output yet: %s", self._name, reasons or f"no submitter pod, {phase}")
            return
        self._read(started[-1]["metadata"]["name"], lines)

    def _read(self, pod: str, count: int) -> None:
        pieces = Lines()
        stream = self._api.open_log(self._namespace, pod, container=SUBMITTER_CONTAINER, tail_lines=count)
        with closing(stream):
            for chunk in stream:
                for text in pieces.feed(chunk):
                    self._write(text)
        for text in pieces.finish():
            self._write(text)

    def _follow_pods(self, mode: str, cluster: str) -> None:
        def finished() -> bool:
            phase = self._seen()
            return phase.ended or (mode == "SidecarMode" and phase.cluster != cluster)

        def write(text: str) -> None:
            self._shown += 1
            self._write(text)

        LogFollower(
            self._api,
            self._namespace,
            selector=self._selector(mode, cluster),
            container=SUBMITTER_CONTAINER,
            write=lambda line: write(line.text),
            on_state=lambda text: logger.info("RayJob %s: %s", self._name, text),
            finished=finished,
            clock=self._clock,
            interval=self._interval,
        ).run()

    def _selector(self, mode: str, cluster: str) -> str:
        if mode == "SidecarMode":
            return f"{CLUSTER_LABEL}={cluster},{NODE_LABEL}=head"
        return f"job-name={self._name}"

    def _seen(self) -> JobPhase:
        phase = self._look()
        if phase.ended:
            return phase
        if phase.state == "RUNNING" != self._state:
            logger.info("RayJob %s: %s", self._name, phase)
        self._state = phase.state
        late = self._deadline is not None and self._clock.now() >= self._deadline
        if phase.state == "PENDING" and (late or self._clock.now() >= self._ask_again):
            self._tell_reason(self._waits_for(phase))
        if late:
            last = "; ".join(filter(None, (str(phase), self._reason if phase.state == "PENDING" else "")))
            raise WaitTimeout(f"the end of RayJob {self._name}", self._timeout, last)
        return phase

    def _patiently(self) -> JobPhase:
        """Ask until there is an answer: a server that is away for a while says nothing about the job."""
        told = False
        while True:
            try:
                return self._seen()
            except (ServerError, Unreachable) as error:
                if self._deadline is not None and self._clock.now() >= self._deadline:
                    raise WaitTimeout(f"the end of RayJob {self._name}", self._timeout, error.message) from error
                if not told:
                    logger.warning("cannot tell how RayJob %s stands, asking again: %s", self._name, error)
                    told = True
                self._clock.sleep(max(self._interval, error.retry_after or 0.0))

    def _tell_reason(self, reason: str) -> None:
        self._ask_again = self._clock.now() + REASONS_EVERY
        if reason and reason != self._reason:
            logger.info("RayJob %s: %s", self._name, reason)
        self._reason = reason

    def _poll_dashboard(self, phase: JobPhase) -> None:
        """Write what the dashboard has more than at the last look, until the job has ended."""
        told = ""
        while True:
            try:
                text = self._dashboard_text(phase)
            except (OSError, HTTPException, ValueError, KubeError) as error:
                if str(error) != told:
                    told = str(error)
                    logger.info("RayJob %s: the dashboard does not give its log yet: %s", self._name, told)
            else:
                end = text.rfind("\n") + 1
                for line in text[self._shown : end].splitlines():
                    self._write(line)
                self._shown = max(self._shown, end)
            if phase.ended:
                return
            self._clock.sleep(self._interval)
            phase = self._patiently()

    def _dashboard_text(self, phase: JobPhase) -> str:
        """Give the job's whole log as Ray's dashboard has it."""
        job = self._api.get(RAYJOB, self._namespace, self._name)
        job_id = (job.get("status") or {}).get("jobId") or ""
        if not job_id or not phase.cluster:
            return ""

        def head() -> str:
            return _clusters.head_of(self._api, self._namespace, phase.cluster)

        forward = PortForward(self._api, self._namespace, head, port=0, target_port=DASHBOARD)
        forward.start()
        try:
            with closing(HTTPConnection("127.0.0.1", forward.port, timeout=30)) as connection:
                connection.request("GET", f"/api/jobs/{job_id}/logs")
                answer = connection.getresponse()
                body = answer.read()
        finally:
            forward.stop_forwarding()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        return str(json.loads(body).get("logs") or "")
