"""The logs of a TrainJob's nodes: followed until the job ends, or read as far as they go."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nemo_run._kube.demux import Lines, LogLine, RankFilter
from nemo_run._kube.logs import LogFollower
from nemo_run._kube.resources import POD, TRAINJOB
from nemo_run._kube.tail import has_started, node_index
from nemo_run.core.execution import _progress
from nemo_run.core.execution._endings import Endings, endings, pods_of
from nemo_run.core.execution._looks import Looks
from nemo_run.core.execution._ranklog import RankLog
from nemo_run.core.execution._trainjob import TARGET_JOB, Phase, phase, untouched
from nemo_run.exceptions import KubeError, NotFound, Rejected

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi
    from nemo_run.core.execution._launched import Launched
    from nemo_run.core.execution.kubeflow import KubeflowExecutor

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
_WAITING_MAX = 1000
"""Lines that may wait for a slow reader; then following waits too."""


def follow(
    executor: KubeflowExecutor,
    api: KubeApi,
    name: str,
    *,
    write: Callable[[LogLine], None],
    on_state: Callable[[str], None],
) -> None:
    """Give *write* each line of each node of the TrainJob *name* until it has ended."""
    with (
        Endings(api, executor.namespace, lambda: pods_of(name), endings),
        Looks(api, executor.namespace, name, executor.experiment_id) as looks,
    ):
        _follower(executor, api, name, write=write, on_state=on_state, look=looks.job, persist=True).run()


def _follower(
    executor: KubeflowExecutor,
    api: KubeApi,
    name: str,
    *,
    write: Callable[[LogLine], None],
    on_state: Callable[[str], None],
    look: Callable[[], Json],
    persist: bool = False,
) -> LogFollower:
    """
    Give what follows all nodes of the TrainJob *name* until it has ended.

    *look* gives the TrainJob; *persist* outlasts all refusals.
    """
    now, idle = Phase(""), ""
    launched = executor._session.known.get((executor.namespace, name))
    # Reasons are asked for once only: meanwhile nobody reads.
    quick = api.patient(0)

    def finished() -> bool:
        nonlocal now, idle
        try:
            job = look()
        except NotFound:
            return True
        now, idle = phase(job), untouched(job, time.time())
        return now.ended or not (launched is None or launched.is_it(job))

    def why() -> str:
        return now.message or _progress.why_no_pod(quick, executor.namespace, name) or idle

    def trouble(pod: str) -> str:
        return _progress.pod_trouble(quick, executor.namespace, pod)

    return LogFollower(
        api,
        executor.namespace,
        selector=_selector(name),
        container=executor.container_name,
        write=write,
        on_state=on_state,
        finished=finished,
        ours=_OwnPods(api, launched) if launched else bool,
        persist=persist,
        why=why,
        trouble=trouble,
    )


class _OwnPods:
    """
    Tells the pods of a TrainJob that we launched from those of a later one of its name.

    A pod that was seen before its TrainJob was asked for is that one's: names are
    not used twice at a time. What was found holds for all pods of a JobSet.
    """

    def __init__(self, api: KubeApi, launched: Launched) -> None:
        self._api = api.patient(0)
        self._launched = launched
        self._known: dict[str, bool] = {}

    def __call__(self, pod: Json) -> bool:
        metadata = pod["metadata"]
        jobset = (metadata.get("labels") or {}).get(_JOBSET_UID) or metadata["uid"]
        if jobset not in self._known:
            try:
                self._known[jobset] = self._launched.is_it(
                    self._api.get(TRAINJOB, self._launched.namespace, self._launched.name)
                )
            except NotFound:
                # Deleted meanwhile, and its pods are about to follow.
                self._known[jobset] = True
            except KubeError:
                return not self._known
        return self._known[jobset]


def streamed(executor: KubeflowExecutor, api: KubeApi, name: str) -> Iterator[str]:
    """Yield what the caller wants to see until the job has ended; write all nodes' lines to the job's directory."""
    if _progress.report(api, executor.namespace, name) is None:
        _tell_silence(api, executor.namespace, name)
        return
    inbox: queue.Queue[LogLine | Exception | None] = queue.Queue(_WAITING_MAX)
    over = threading.Event()
    ranks = RankFilter(executor.nnodes(), executor.nproc_per_node())

    def hand_over(item: LogLine | Exception | None) -> None:
        while not over.is_set():
            with suppress(queue.Full):
                inbox.put(item, timeout=0.2)
                break

    def tell(text: str) -> None:
        logger.info("TrainJob %s: %s", name, text)

    def look() -> Json:
        return api.get(TRAINJOB, executor.namespace, name)

    following = _follower(executor, api, name, write=hand_over, on_state=tell, look=look)

    def run() -> None:
        try:
            with Endings(api, executor.namespace, lambda: pods_of(name), endings):
                following.run()
        except Exception as error:
            hand_over(error)
        else:
            hand_over(None)

    with ExitStack() as stack:
        stack.callback(over.set)
        stack.callback(following.close)
        log = (
            stack.enter_context(RankLog(Path(executor.job_dir), executor.container_name)) if executor.job_dir else None
        )
        threading.Thread(target=run, name=f"logs of {name}", daemon=True).start()
        silent = True
        while (item := inbox.get()) is not None:
            if isinstance(item, Exception):
                raise item
            silent = False
            if log:
                log.write(item)
            if ranks.shows(item):
                yield item.text
        if silent:
            _tell_silence(api, executor.namespace, name)


def read(executor: KubeflowExecutor, api: KubeApi, name: str, *, lines: int) -> Iterator[str]:
    """Yield the last *lines* of what the caller wants to see, as far as the nodes have come."""
    ranks = RankFilter(executor.nnodes(), executor.nproc_per_node())
    pods = api.list(POD, executor.namespace, labels=_selector(name))
    shown: deque[str] = deque(maxlen=lines)
    if launched := executor._session.known.get((executor.namespace, name)):
        pods = list(filter(_OwnPods(api, launched), pods))
    for pod in sorted(pods, key=lambda pod: (node_index(pod) or 0, pod["metadata"]["name"])):
        if has_started(pod, executor.container_name):
            texts = _texts(api, executor.namespace, pod["metadata"]["name"], executor.container_name)
            found = (LogLine(pod["metadata"]["name"], node_index(pod), text) for text in texts)
            shown.extend(line.text for line in found if ranks.shows(line))
    if not shown:
        _tell_silence(api, executor.namespace, name)
    yield from shown


def _tell_silence(api: KubeApi, namespace: str, name: str) -> None:
    """Say why there is no line: a job that is not there, one that waits, and one with nothing to say differ."""
    report = _progress.report(api, namespace, name)
    if report is None:
        logger.warning("there are no logs: namespace %s has no TrainJob %s", namespace, name)
        return
    report = _progress.explained(api, report)
    why = ": ".join(part for part in (report.reason, report.message) if part)
    said = f"{report.state.value.lower()} ({why})" if why else report.state.value.lower()
    logger.warning("TrainJob %s has written nothing so far; it is %s", name, said)


def _texts(api: KubeApi, namespace: str, pod: str, container: str) -> Iterator[str]:
    """Give what there is of a container: of its start before the present one too, if it was restarted."""
    for previous in (True, False):
        lines = Lines()
        try:
            stream = api.open_log(namespace, pod, container=container, previous=previous)
        except Rejected:
            if not previous:
                raise
            continue
        with closing(stream):
            for chunk in stream:
                yield from lines.feed(chunk)
        yield from lines.finish()


def _selector(name: str) -> str:
    return f"{pods_of(name)},jobset.sigs.k8s.io/replicatedjob-name={TARGET_JOB}"
