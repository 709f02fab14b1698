"""Jobs as TrainJobs on a Kubernetes cluster, through the verbs of KubeflowExecutor."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.demux import GAP
from nemo_run._kube.resources import TRAINJOB
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.config import get_nemorun_home
from nemo_run.core.execution._creation import REFUSED, taken_back
from nemo_run.core.execution._endings import failed_pods, pods_of
from nemo_run.core.execution._launched import Launched
from nemo_run.core.execution._ranklog import ALL_RANKS
from nemo_run.core.execution._session import deleted_here
from nemo_run.core.execution.kubeflow import KubeflowExecutor, KubeflowJobState
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import (
    ExperimentError,
    KubeError,
    NemoRunError,
    NotAuthorized,
)
from nemo_run.run import _store, _unknown_classes
from nemo_run.run._lines import LineReader
from nemo_run.run._submission import Submission
from nemo_run.run.backends._following import Following
from nemo_run.run.backends._overrides import overrides_status, told
from nemo_run.run.backends.base import AppRecord, DryRun, Watcher
from nemo_run.run.job import AppState, AppStatus, is_terminal

if TYPE_CHECKING:
    from nemo_run.core.execution.kubeflow import JobReport

logger = logging.getLogger("nemo_run")

_LOOK_EVERY = 2.0
_ON_THE_WAY = 120.0
"""Seconds after which no request to create a job is on the way any more."""
_FACTS = ("namespace", "uid", "launch_id", "server", "context", "submitted_at", "log")
_ALL_LINES = 10_000_000
_WHOLE = "whole"
"""What the record says of a log file that was written until the job had ended."""
_CUT = f"{GAP} the job was not followed to its end, and not all of its pods could be read afterwards"

_STATES = {
    KubeflowJobState.CREATED: AppState.SUBMITTED,
    KubeflowJobState.PENDING: AppState.PENDING,
    KubeflowJobState.RUNNING: AppState.RUNNING,
    KubeflowJobState.SUCCEEDED: AppState.SUCCEEDED,
    KubeflowJobState.FAILED: AppState.FAILED,
    KubeflowJobState.UNKNOWN: AppState.PENDING,
}

_CANCELLED = AppStatus(AppState.CANCELLED, "by nemo_run")
_GONE = AppStatus(AppState.CANCELLED, "deleted outside nemo_run")
_REPLACED = AppStatus(AppState.CANCELLED, "deleted outside nemo_run; another job has its name")
_NEVER = AppStatus(AppState.CANCELLED, "never created: another job has its name")
_NOWHERE = AppStatus(
    AppState.UNKNOWN, "not on this cluster; its record, by an older NeMo-Run, does not say which it is on"
)


class KubeflowBackend:
    """Launches submissions of a KubeflowExecutor."""

    scheme: ClassVar[str] = "kubeflow"
    outlives_us: ClassVar[bool] = True

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._told: dict[str, str] = {}
        self._lock = threading.Lock()
        self._followings: dict[str, Following] = {}

    def submit(self, submission: Submission, watcher: Watcher) -> AppRecord:
        """Copy what the job needs, create the TrainJob, and write its record at once."""
        executor = _executor(submission)
        executor._session.on_state = lambda text: watcher.state(f"copy pod: {text}")
        executor._session.on_progress = watcher.progress
        command = _prepare(submission, executor)
        executor.package(executor.packager, job_name=executor.job_name)
        created: list[AppRecord] = []

        def write_down(job: Launched) -> None:
            status = AppStatus(AppState.UNSUBMITTED, "being created")
            created.append(self._record(submission, executor, job, status))
            _records().put(created[-1].app_id, _entry(created[-1], KubeflowJobState.CREATED.value))

        executor._session.on_create = write_down
        try:
            return self._launched(submission, executor, executor.start_command(command))
        except BaseException as error:
            # Nobody has a handle yet: what may have been created is not left behind.
            for record in created:
                self._undo(record, error, watcher)
            raise

    def _launched(self, submission: Submission, executor: KubeflowExecutor, start: list[str]) -> AppRecord:
        job_name, state = executor.launch(name=executor.job_name, cmd=start)
        job = executor._session.known.get((executor.namespace, job_name)) or Launched(executor.namespace, job_name)
        record = self._record(submission, executor, job, AppStatus(_STATES.get(state, AppState.SUBMITTED)))
        _records().put(record.app_id, _entry(record, state.value))
        return record if job.uid else self._identified(record)

    def _record(
        self, submission: Submission, executor: KubeflowExecutor, job: Launched, status: AppStatus
    ) -> AppRecord:
        app_id = f"{executor.experiment_id}___{submission.name}___{job.name}"
        api = _api(executor)
        facts = {
            "namespace": job.namespace,
            "server": api.server,
            "context": api.context,
            "submitted_at": time.time(),
            **{key: value for key, value in (("uid", job.uid), ("launch_id", job.launch_id)) if value},
        }
        return AppRecord(app_id, self.scheme, submission.name, job.name, executor.job_dir, executor, status, facts)

    def _undo(self, record: AppRecord, error: BaseException, watcher: Watcher) -> None:
        """Leave no TrainJob behind that the launch has made or still makes; where that is unsure, say so."""
        executor = _known(record)
        namespace, name = record.facts["namespace"], record.job_name
        known = executor._session.known.get((namespace, name))
        if known is None and isinstance(error, REFUSED):
            _records().change(lambda records: {key: records[key] for key in records if key != record.app_id})
            return
        job = known or Launched(namespace, name, launch_id=record.facts["launch_id"])
        if taken_back(_api(executor), TRAINJOB, job, clock=self._clock):
            self._remember(record, AppStatus(AppState.CANCELLED, "its launch was cut off"))
            return
        look = f'run.Experiment.from_id("{executor.experiment_id}").status()'
        kubectl = f"kubectl -n {namespace} get trainjob {name}"
        watcher.state(f"may have been created: {name} in {namespace}; check with {look}, or {kubectl}")

    def _identified(self, record: AppRecord) -> AppRecord:
        """Add what tells this very job from a later one of its name."""
        try:
            report = _known(record).report(record.job_name)
        except KubeError as error:
            logger.info("%s was created; its identity could not be read back: %s", record.job_name, error)
            return record
        if report is None:
            return record
        _records().merge(record.app_id, {"uid": report.uid})
        return replace(record, facts={**record.facts, "uid": report.uid})

    def dryrun(self, submission: Submission) -> DryRun:
        """Give the manifest, and show it with the launch script; asks no cluster."""
        import yaml

        from nemo_run.core._masking import masked

        executor = _executor(submission)
        start = executor.start_command(_prepare(submission, executor))
        manifest = executor.get_job_body(executor._trainjob_name(executor.job_name), start)
        secrets = executor.secret_values()
        note = (
            " (as for Trainer 2.2 and later; a real launch asks the server)" if executor.trainer_api == "auto" else ""
        )
        shown = yaml.safe_dump(masked(manifest, secrets=secrets), sort_keys=False, allow_unicode=True)
        sections = [(f"TrainJob{note}", "yaml", shown)]
        script = Path(executor.job_dir, "launch.sh")
        if script.exists():
            sections.append(("launch.sh", "bash", masked(script.read_text(), secrets=secrets)))
        return DryRun(manifest, sections)

    def find(self, app_id: str) -> AppRecord | None:
        """Give what ``.kubeflow_jobs.json`` says of the job."""
        entry = _records().get(app_id)
        return _record(app_id, entry) if isinstance(entry, dict) else None

    def launched(self, experiment_id: str) -> dict[str, str]:
        """Give the jobs whose id begins with that of the experiment."""
        found = {}
        for app_id in _records().read():
            if app_id.startswith(start := f"{experiment_id}___"):
                found[app_id.removeprefix(start).rpartition("___")[0]] = f"{self.scheme}://nemo_run/{app_id}"
        return found

    def statuses(self, records: Sequence[AppRecord]) -> list[AppStatus]:
        """Ask about each cluster's and experiment's unfinished jobs in one request."""
        unfinished = [record for record in records if not is_terminal(record.status.state) and record.executor]
        sizes = Counter(_group(record) for record in unfinished)
        first = {_group(record): record for record in reversed(unfinished)}
        answers = {group: _reports(first[group]) for group, size in sizes.items() if size > 1}
        return [self._status(record, answers.get(_group(record), {})) for record in records]

    def _status(self, record: AppRecord, reports: Mapping[str, JobReport] | NemoRunError | None = None) -> AppStatus:
        """Ask how the job stands; *reports* are answers that are there already, or why there are none."""
        if is_terminal(record.status.state):
            return record.status
        try:
            status = self._asked(record, reports or {})
        except NemoRunError as error:
            self._tell_once(record, f"its state is not known now: {error}")
            return replace(record.status, stale=True)
        self._told.pop(record.app_id, None)
        if status in (_GONE, _REPLACED):
            status = _remembered_end(record) or _ended_by_us(record) or status
        if status != record.status:
            self._remember(record, status)
        return status

    def _asked(self, record: AppRecord, reports: Mapping[str, JobReport] | NemoRunError) -> AppStatus:
        """Ask the cluster about this very job, and keep its uid if only its launch was known so far."""
        report = _report(record, reports)
        if report is None:
            return _absent(record)
        job = _as_launched(record)
        if not job.matches(report.uid, report.launch_id):
            return _NEVER if _is_launching(record) else _REPLACED
        if job.launch_id and not job.uid:
            _records().merge(record.app_id, {"uid": report.uid})
        return _status_of(report)

    def _tell_once(self, record: AppRecord, text: str) -> None:
        if self._told.get(record.app_id) != text:
            self._told[record.app_id] = text
            logger.warning("%s: %s", record.job_name, text)

    def _remember(self, record: AppRecord, status: AppStatus) -> None:
        _records().merge(record.app_id, {"state": status.state.name, "reason": status.msg})

    def attend(self, record: AppRecord) -> None:
        """Begin to write every rank's lines to the job's log file: pods of a job that fails soon are gone soon."""
        self._following(record, launched=True)

    def follow(self, record: AppRecord, watcher: Watcher) -> AppStatus:
        """Write every rank's lines to the job's log file, show the first and the last rank's, until it ends."""
        following = self._following(record)
        self._wait_for(record, following, watcher)
        status = self._ended(record, watcher)
        if status.state == AppState.FAILED:
            _show_failure(record, following, watcher)
        return status

    def _following(self, record: AppRecord, *, launched: bool = False) -> Following:
        """Give what follows the job, begun now if nothing does."""
        with self._lock:
            found = self._followings.get(record.app_id)
            if found is None:

                def whole() -> None:
                    _records().merge(record.app_id, {"log": _WHOLE})

                found = Following(record, _known(record), launched=launched, whole=whole)
                self._followings[record.app_id] = found
                found.start()
            return found

    def _wait_for(self, record: AppRecord, following: Following, watcher: Watcher | None = None) -> None:
        if watcher:
            following.attach(watcher)
        following.wait()
        with self._lock:
            if self._followings.get(record.app_id) is following:
                del self._followings[record.app_id]

    def _ended(self, record: AppRecord, watcher: Watcher) -> AppStatus:
        """Ask until the job has ended: for as long as it takes."""
        last, told = record.status, str(record.status)
        while True:
            status = self._status(replace(record, status=last))
            if is_terminal(status.state):
                return status
            if str(status) != told:
                told = str(status)
                watcher.state(told)
            last = replace(status, stale=False)
            self._clock.sleep(_LOOK_EVERY)

    def lines(self, record: AppRecord) -> Iterator[str]:
        """
        Give the log file of a job that has ended; else what the cluster still has.

        Where nobody followed it, or not to the end, the file is written as far as the pods are there.
        """
        path = Path(record.job_dir, ALL_RANKS)
        ended = is_terminal(record.status.state)
        whole = ended and ((path.exists() and record.facts.get("log") == _WHOLE) or self._completed(record))
        if not (ended and path.exists()):
            for line in _known(record).fetch_logs(record.job_name, stream=False, lines=_ALL_LINES):
                yield line.rstrip("\n")
            return
        line = ""
        with LineReader(path) as reader:
            for line in reader.rest():
                yield line
        if not whole and not line.startswith(GAP):
            yield _CUT

    def _completed(self, record: AppRecord) -> bool:
        """Read what nobody has followed; tell whether nothing can be missing now."""
        try:
            if self._asked(record, {}) not in (_GONE, _NOWHERE, _REPLACED, _NEVER):
                self._wait_for(record, self._following(record))
        except (NemoRunError, OSError) as error:
            self._tell_once(record, f"its log file cannot be completed: {error}")
        return (_records().get(record.app_id) or {}).get("log") == _WHOLE

    def cancel(self, records: Sequence[AppRecord]) -> None:
        """Delete the TrainJobs, and remember that it was us."""
        errors = []
        for record in records:
            try:
                self._cancel(record)
            except NemoRunError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _cancel(self, record: AppRecord) -> None:
        if is_terminal(record.status.state):
            if self._runs_again(record):
                logger.warning("%s was %s, and runs again: it is ended now", record.job_name, record.status.state)
                _bound(record).cancel(record.job_name)
            else:
                logger.info("%s has ended already: %s", record.job_name, record.status)
            return
        status = self._asked(record, {})
        if is_terminal(status.state):
            logger.info("%s has ended already: %s", record.job_name, status)
            self._remember(record, _remembered_end(record) or status)
            return
        _bound(record).cancel(record.job_name)
        self._remember(record, _CANCELLED)

    def _runs_again(self, record: AppRecord) -> bool:
        """
        Tell whether a job that had failed goes on, which nobody sees who takes it for ended.

        Where the pods of a failed TrainJob are cleaned up, Trainer begins anew (up to
        2.3: kubeflow/trainer#3737).
        """
        if record.status.state != AppState.FAILED:
            return False
        try:
            return not is_terminal(self._asked(record, {}).state)
        except NemoRunError as error:
            self._tell_once(record, f"whether it runs again is not known: {error}")
            return False


def _show_failure(record: AppRecord, following: Following, watcher: Watcher) -> None:
    """Show the last lines of the pod that failed first, where they are none of those that are shown anyway."""
    server, namespace = record.facts.get("server", ""), record.facts.get("namespace", "")
    for pod in failed_pods(server, namespace, pods_of(record.job_name))[:1]:
        source, lines = following.last_lines(pod)
        if lines:
            watcher.state(f"the last lines of pod {pod}:")
        for line in lines:
            watcher.line(source, line)
    if (path := Path(record.job_dir, ALL_RANKS)).exists():
        watcher.state(f"all lines of all pods are in {path}")


def _executor(submission: Submission) -> KubeflowExecutor:
    executor = submission.executor
    if not isinstance(executor, KubeflowExecutor):
        raise TypeError(f"a KubeflowExecutor is needed, not {executor!r}")
    return executor


def _prepare(submission: Submission, executor: KubeflowExecutor) -> list[str]:
    """Write the launch script into the job's directory and give the command it runs."""
    executor._task_env, executor._task_files = dict(submission.env), dict(submission.files)
    command = executor.launcher_command(list(submission.command))
    executor.materialize_launch_script(command, max_retries=executor.retries)
    return list(command)


def _known(record: AppRecord) -> KubeflowExecutor:
    """Give the executor that launched the job, bound to the cluster it launched it on."""
    executor = record.executor
    if not isinstance(executor, KubeflowExecutor):
        raise ExperimentError(f"{record.app_id}: the executor that launched it cannot be read any more")
    return executor


def _api(executor: KubeflowExecutor) -> KubeApi:
    return connect(kubeconfig=executor.kubeconfig, context=executor.context)


def _group(record: AppRecord) -> Any:
    """Tell which jobs one request can answer for."""
    executor = record.executor
    if not isinstance(executor, KubeflowExecutor) or overrides_status(executor):
        return record.app_id
    return executor.kubeconfig, executor.context, executor.namespace, executor.experiment_id


def _reports(record: AppRecord) -> Mapping[str, JobReport] | NemoRunError:
    try:
        return _bound(record).reports()
    except NotAuthorized as error:
        if error.status != 403:
            return error
        logger.info("jobs are asked for one by one: %s", error)
        return {}
    except NemoRunError as error:
        return error


def _report(record: AppRecord, reports: Mapping[str, JobReport] | NemoRunError) -> JobReport | None:
    """
    Ask the cluster that the job was launched on about the job of that name.

    Raises:
        ExperimentError: it is another cluster.
    """
    if isinstance(reports, NemoRunError):
        raise reports
    if overrides_status(record.executor):
        return told(_bound(record), record)
    report = reports.get(record.job_name)
    # A list tells no reasons, and what it lacks may have come after it.
    if report is None or report.state is KubeflowJobState.FAILED:
        report = _bound(record).report(record.job_name)
    return report


def _absent(record: AppRecord) -> AppStatus:
    """Tell what it means that the cluster has no such job."""
    if not _is_launching(record):
        return _GONE if record.facts.get("server") else _NOWHERE
    if time.time() - record.facts.get("submitted_at", 0.0) < _ON_THE_WAY:
        return AppStatus(AppState.UNSUBMITTED, "not created yet: it is being launched, or its launch was cut off")
    return AppStatus(AppState.CANCELLED, "its launch was cut off: it was never created")


def _is_launching(record: AppRecord) -> bool:
    return record.status.state == AppState.UNSUBMITTED


def _as_launched(record: AppRecord) -> Launched:
    namespace, uid, launch_id = (record.facts.get(key) or "" for key in ("namespace", "uid", "launch_id"))
    return Launched(namespace, record.job_name, uid, launch_id)


def _remembered_end(record: AppRecord) -> AppStatus | None:
    """Give how the job ended by what is on disk now: another thread or process may have cancelled it."""
    entry = _records().get(record.app_id) or {}
    state = _last_state(entry)
    return AppStatus(state, entry.get("reason") or "") if is_terminal(state) else None


def _ended_by_us(record: AppRecord) -> AppStatus | None:
    """Tell whether it was the user's own executor that deleted the job, in this process."""
    facts = record.facts
    return _CANCELLED if deleted_here(facts.get("server", ""), facts.get("namespace", ""), record.job_name) else None


def _bound(record: AppRecord) -> KubeflowExecutor:
    """
    Give the job's executor, after making sure that it leads to the cluster that the job was launched on.

    Raises:
        ExperimentError: it leads to another: that one cannot know the job.
    """
    executor, server = _known(record), record.facts.get("server")
    here = _api(executor).server
    if server and here != server:
        context = record.facts.get("context")
        raise ExperimentError(f"it was launched on {server} (context {context}); the kubeconfig leads to {here} now")
    return executor


def _status_of(report: JobReport) -> AppStatus:
    notes = [note for note in (report.reason, report.message) if note]
    return AppStatus(_STATES.get(report.state, AppState.PENDING), ": ".join(notes))


def _records() -> _store.Records:
    return _store.Records(Path(get_nemorun_home(), ".kubeflow_jobs.json"))


def _entry(record: AppRecord, job_status: str) -> dict[str, Any]:
    """Give the record as it is written: what NeMo-Run wrote, and what it takes to find the very same job."""
    executor = _known(record)
    return {
        "job_status": job_status,
        "job_name": record.job_name,
        "executor": ZlibJSONSerializer().serialize(executor.to_config()),
        "task": record.task,
        "job_dir": record.job_dir,
        "state": record.status.state.name,
        "reason": record.status.msg,
        **record.facts,
    }


def _record(app_id: str, entry: Mapping[str, Any]) -> AppRecord:
    head, _, name = app_id.rpartition("___")
    experiment_id, _, task = head.partition("___")
    if written := entry.get("task"):
        # Titles may hold what parts an id.
        experiment_id, task = head.removesuffix(f"___{written}"), written
    executor = _restored(app_id, entry, experiment_id, task)
    status = AppStatus(_last_state(entry), entry.get("reason") or "")
    job_dir = entry.get("job_dir") or (executor.job_dir if executor else "")
    facts = {key: entry[key] for key in _FACTS if key in entry}
    return AppRecord(app_id, "kubeflow", task, entry.get("job_name") or name, job_dir, executor, status, facts)


def _last_state(entry: Mapping[str, Any]) -> AppState:
    if entry.get("state") in AppState.__members__:
        return AppState[entry["state"]]
    written = {state.value: ours for state, ours in _STATES.items()}
    return written.get(str(entry.get("job_status")), AppState.UNKNOWN)


def _restored(app_id: str, entry: Mapping[str, Any], experiment_id: str, task: str) -> KubeflowExecutor | None:
    job_dir, context, name, uid, launch_id = (
        entry.get(key) or "" for key in ("job_dir", "context", "job_name", "uid", "launch_id")
    )
    name = name or app_id.rpartition("___")[2]
    try:
        return _built(entry["executor"], experiment_id, task, job_dir, context, name, uid, launch_id)
    except Exception as error:  # whatever a class of the user's raises while it is imported
        logger.warning("%s: its executor cannot be read any more: %s", app_id, error)
        return None


@lru_cache(maxsize=1024)
def _built(
    text: str, experiment_id: str, task: str, job_dir: str, context: str, name: str, uid: str, launch_id: str
) -> KubeflowExecutor:
    """Build the executor of a record once: each round of a status asks for those of all jobs."""
    import fiddle as fdl

    executor: KubeflowExecutor = fdl.build(_unknown_classes.restored(text))
    directory = Path(job_dir or executor.job_dir)
    executor.assign(experiment_id, str(directory.parent), task, directory.name)
    # The context of that time: "current" may be another cluster by now.
    executor.context = executor.context or context or None
    executor._session.remember(task, Launched(executor.namespace, name, uid, launch_id))
    return executor
