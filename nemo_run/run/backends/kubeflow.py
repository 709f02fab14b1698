"""Jobs as TrainJobs on a Kubernetes cluster, through the verbs of KubeflowExecutor."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from nemo_run._kube.api import KubeApi, connect
from nemo_run._kube.demux import LogLine, RankFilter
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.config import get_nemorun_home
from nemo_run.core.execution._launched import Launched
from nemo_run.core.execution._ranklog import ALL_RANKS, RankLog
from nemo_run.core.execution.kubeflow import KubeflowExecutor, KubeflowJobState
from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer
from nemo_run.exceptions import ExperimentError, KubeError, NemoRunError
from nemo_run.run import _store
from nemo_run.run._lines import LineReader
from nemo_run.run._submission import Submission
from nemo_run.run.backends.base import AppRecord, DryRun, Watcher
from nemo_run.run.job import AppState, AppStatus, is_terminal

if TYPE_CHECKING:
    from nemo_run.core.execution.kubeflow import JobReport

logger = logging.getLogger("nemo_run")

_LOOK_EVERY = 2.0
_ALL_LINES = 10_000_000

_STATES = {
    KubeflowJobState.CREATED: AppState.SUBMITTED,
    KubeflowJobState.PENDING: AppState.PENDING,
    KubeflowJobState.RUNNING: AppState.RUNNING,
    KubeflowJobState.SUCCEEDED: AppState.SUCCEEDED,
    KubeflowJobState.FAILED: AppState.FAILED,
    KubeflowJobState.UNKNOWN: AppState.PENDING,
}

_GONE = AppStatus(AppState.CANCELLED, "deleted outside nemo_run")
_REPLACED = AppStatus(AppState.CANCELLED, "deleted outside nemo_run; another job has its name")
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

    def submit(self, submission: Submission, watcher: Watcher) -> AppRecord:
        """Copy what the job needs, create the TrainJob, and write its record at once."""
        executor = _executor(submission)
        executor._session.on_state = lambda text: watcher.state(f"copy pod: {text}")
        executor._session.on_progress = watcher.progress
        command = _prepare(submission, executor)
        executor.package(executor.packager, job_name=executor.job_name)
        name = executor._trainjob_name(executor.job_name)
        try:
            return self._launched(submission, executor, executor.start_command(command))
        except KeyboardInterrupt:
            # Nobody has a handle yet: what may have been created is not left behind.
            with suppress(NemoRunError):
                executor.cancel(name)
                self._remember_undone(f"{executor.experiment_id}___{submission.name}___{name}")
            raise

    def _launched(self, submission: Submission, executor: KubeflowExecutor, start: list[str]) -> AppRecord:
        job_name, state = executor.launch(name=executor.job_name, cmd=start)
        app_id = f"{executor.experiment_id}___{submission.name}___{job_name}"
        api = _api(executor)
        facts = {
            "namespace": executor.namespace,
            "server": api.server,
            "context": api.context,
            "submitted_at": time.time(),
        }
        status = AppStatus(_STATES.get(state, AppState.SUBMITTED))
        record = AppRecord(app_id, self.scheme, submission.name, job_name, executor.job_dir, executor, status, facts)
        _records().put(app_id, _entry(record, state.value))
        return self._identified(record)

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

    def _remember_undone(self, app_id: str) -> None:
        if _records().get(app_id) is not None:
            _records().merge(app_id, {"state": AppState.CANCELLED.name, "reason": "interrupted while it was launched"})

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
            status = _asked(record, reports or {})
        except NemoRunError as error:
            self._tell_once(record, f"its state is not known now: {error}")
            return replace(record.status, stale=True)
        self._told.pop(record.app_id, None)
        if status in (_GONE, _REPLACED):
            status = _remembered_end(record) or status
        if status != record.status:
            self._remember(record, status)
        return status

    def _tell_once(self, record: AppRecord, text: str) -> None:
        if self._told.get(record.app_id) != text:
            self._told[record.app_id] = text
            logger.warning("%s: %s", record.job_name, text)

    def _remember(self, record: AppRecord, status: AppStatus) -> None:
        _records().merge(record.app_id, {"state": status.state.name, "reason": status.msg})

    def follow(self, record: AppRecord, watcher: Watcher) -> AppStatus:
        """Write every rank's lines to the job's log file, show the first and the last rank's, until it ends."""
        executor = _known(record)
        with RankLog(Path(record.job_dir), executor.container_name) as log:
            sink = _Sink(log, watcher, record.task, executor)
            try:
                executor.follow_logs(record.job_name, write=sink.write, on_state=watcher.state)
            except KubeError as error:
                watcher.state(f"its output cannot be read any more: {error}")
            return self._ended(record, watcher)

    def _ended(self, record: AppRecord, watcher: Watcher) -> AppStatus:
        """Ask until the job has ended: for as long as it takes."""
        last = record.status
        while True:
            status = self._status(replace(record, status=last))
            if is_terminal(status.state):
                return status
            if status != last:
                watcher.state(str(status))
            last = replace(status, stale=False)
            self._clock.sleep(_LOOK_EVERY)

    def lines(self, record: AppRecord) -> Iterator[str]:
        """Give the log file of a job that was followed to its end; else what the cluster still has."""
        path = Path(record.job_dir, ALL_RANKS)
        if is_terminal(record.status.state) and path.exists():
            with LineReader(path) as reader:
                yield from reader.rest()
        else:
            for line in _known(record).fetch_logs(record.job_name, stream=False, lines=_ALL_LINES):
                yield line.rstrip("\n")

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
            logger.info("%s has ended already: %s", record.job_name, record.status)
            return
        status = _asked(record, {})
        if is_terminal(status.state):
            logger.info("%s has ended already: %s", record.job_name, status)
            self._remember(record, _remembered_end(record) or status)
            return
        _bound(record).cancel(record.job_name)
        self._remember(record, AppStatus(AppState.CANCELLED, "by nemo_run"))


class _Sink:
    """Takes the lines of all ranks: all to the file, the first and the last rank's to the watcher."""

    def __init__(self, log: RankLog, watcher: Watcher, task: str, executor: KubeflowExecutor) -> None:
        self._log = log
        self._watcher = watcher
        self._task = task
        self._filter = RankFilter(executor.nnodes(), executor.nproc_per_node())

    def write(self, line: LogLine) -> None:
        self._log.write(line)
        if self._filter.shows(line):
            self._watcher.line(f"{self._task}/{line.node_index or 0}", line.text)


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
    if not isinstance(executor, KubeflowExecutor):
        return record.app_id
    return executor.kubeconfig, executor.context, executor.namespace, executor.experiment_id


def _reports(record: AppRecord) -> Mapping[str, JobReport] | NemoRunError:
    try:
        return _bound(record).reports()
    except NemoRunError as error:
        return error


def _asked(record: AppRecord, reports: Mapping[str, JobReport] | NemoRunError) -> AppStatus:
    """
    Ask the cluster that the job was launched on about this very job.

    Raises:
        ExperimentError: it is another cluster.
    """
    if isinstance(reports, NemoRunError):
        raise reports
    report = reports.get(record.job_name)
    # A list tells no reasons, and what it lacks may have come after it.
    if report is None or report.state is KubeflowJobState.FAILED:
        report = _bound(record).report(record.job_name)
    if report is None:
        return _GONE if record.facts.get("server") else _NOWHERE
    uid = record.facts.get("uid")
    return _REPLACED if uid and report.uid != uid else _status_of(report)


def _remembered_end(record: AppRecord) -> AppStatus | None:
    """Give how the job ended by what is on disk now: another thread or process may have cancelled it."""
    entry = _records().get(record.app_id) or {}
    state = _last_state(entry)
    return AppStatus(state, entry.get("reason") or "") if is_terminal(state) else None


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
    facts = {key: entry[key] for key in ("namespace", "uid", "server", "context", "submitted_at") if key in entry}
    return AppRecord(app_id, "kubeflow", task, entry.get("job_name") or name, job_dir, executor, status, facts)


def _last_state(entry: Mapping[str, Any]) -> AppState:
    if entry.get("state") in AppState.__members__:
        return AppState[entry["state"]]
    written = {state.value: ours for state, ours in _STATES.items()}
    return written.get(str(entry.get("job_status")), AppState.UNKNOWN)


def _restored(app_id: str, entry: Mapping[str, Any], experiment_id: str, task: str) -> KubeflowExecutor | None:
    import fiddle as fdl

    try:
        executor: KubeflowExecutor = fdl.build(ZlibJSONSerializer().deserialize(entry["executor"]))
    except Exception as error:  # whatever a class of the user's raises while it is imported
        logger.warning("%s: its executor cannot be read any more: %s", app_id, error)
        return None
    job_dir = Path(entry.get("job_dir") or executor.job_dir)
    executor.assign(experiment_id, str(job_dir.parent), task, job_dir.name)
    # The context of that time: "current" may be another cluster by now.
    executor.context = executor.context or entry.get("context") or None
    name, uid = entry.get("job_name") or app_id.rpartition("___")[2], entry.get("uid") or ""
    executor._session.remember(task, Launched(executor.namespace, name, uid))
    return executor
