"""
The copy pod's life: there before the first byte, gone before the workload is created.

"Gone" matters: a ReadWriteOnce claim that the copy pod still holds keeps the
workload from starting on another node.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from nemo_run._kube import owners, rights
from nemo_run._kube.exec import ExecResult, PodRef, run_exec
from nemo_run._kube.names import dns_label
from nemo_run._kube.resources import EVENT, POD
from nemo_run._kube.startup import startup, trouble, with_trouble
from nemo_run._kube.transfer import retried
from nemo_run._kube.waiting import ON_ITS_WAY, SYSTEM_CLOCK, Clock, poll_until
from nemo_run.exceptions import (
    Conflict,
    KubeError,
    NotFound,
    Rejected,
    TransferError,
    Unreachable,
    WaitTimeout,
)

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

Json = dict[str, Any]

GONE_TIMEOUT = 180.0
"""Seconds for a deleted copy pod to vanish: it ends itself in two, but its node may be slow to unmount."""
FAILING_TIMEOUT = 60.0
"""Seconds of a failing image pull, or of a container that cannot be made, after which the pod counts as lost."""
EVENTS_EVERY = 5.0
"""Seconds between two looks at the events of a pod that is not ready."""
COPY_ID = "nemo-run/copy-id"
"""The annotation that tells our own pod from another of its name, after a create whose answer got lost."""
OWNER = "nemo-run/owner"
"""The annotation that names the process for which the pod is there."""

_NEEDED = (
    *(rights.Right(verb, "pods") for verb in ("create", "get", "delete")),
    *(rights.Right(verb, "pods/exec") for verb in ("get", "create")),
)
"""Exec by websocket is a GET; newer servers check it as ``create`` too."""

# It goes up to the first thing that exists, as mkdir -p will; a link in the last place gives way to a directory.
_PROBE = """
d=$1
if [ -L "$d" ]; then d=${d%/*}; fi
while [ -n "$d" ] && [ ! -e "$d" ]; do d=${d%/*}; done
d=${d:-/}
t=$d/.nemo-run-probe-$2
if ! { (: > "$t") && rm -f "$t"; }; then
  printf '%s\\n' "$d" "$(id -u)" "$(id -G)" "$(ls -ldn "$d")"
  exit 73
fi
"""
_UNWRITABLE = 73
_PROBE_TIMEOUT = 120.0


@contextmanager
def data_mover(
    api: KubeApi,
    pod: Json,
    *,
    restricted: Json | None,
    timeout: float = 600,
    probe: PurePosixPath | None = None,
    on_state: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[PodRef]:
    """
    Run the copy pod for as long as the block lasts; after it, however it ended, the pod is gone.

    Its name gets a random suffix, so that no leftover is in the way. *restricted* is what to create
    where PodSecurity refuses *pod*. *on_state* is told each new reason why the pod is not ready yet.

    Raises:
        Rejected, NotAuthorized: the pod, or commands in it, are not allowed; Kubernetes' text is unchanged.
        TransferError: the pod ended, its image cannot be pulled, or *probe* cannot be written to.
        WaitTimeout: not ready within *timeout* seconds, or not gone after the block.
    """
    token = secrets.token_hex(8)
    name = dns_label(pod["metadata"]["name"], suffix=f"-{token[:6]}")
    ref = PodRef(pod["metadata"]["namespace"], name, pod["spec"]["containers"][0]["name"])
    with _removed(api, ref, clock):
        _create(api, _named(pod, name, token), restricted and _named(restricted, name, token), clock)
        start = _Start(api, ref, on_state, clock)
        poll_until(start.look, "ready".__eq__, what=f"the start of copy pod {ref}", timeout=timeout, clock=clock)
        if probe is not None:
            check_writable(api, ref, probe, clock=clock)
        yield ref


def check_writable(api: KubeApi, pod: PodRef, path: PurePosixPath, *, clock: Clock = SYSTEM_CLOCK) -> None:
    """
    Write a file where *path* is or will be, and remove it.

    Raises:
        TransferError: it cannot be written; says who may write there, who we are, and what to do.
    """
    run_where_writable(api, pod, path, clock=clock)


def run_where_writable(
    api: KubeApi,
    pod: PodRef,
    path: PurePosixPath,
    script: str = "",
    *arguments: str,
    stdin: Sequence[bytes] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> bytes:
    """
    Run the shell text *script* after a look at whether *path* can be written, and give its output.

    Its ``$1`` is *path*; *arguments* are ``$3`` and so on.

    Raises:
        TransferError: as for `check_writable`; or the script failed.
    """
    # Process ids are the same in every pod, and several may probe one directory.
    command = ["sh", "-c", _PROBE + script, "sh", str(path), secrets.token_hex(6), *arguments]
    what = f"writing to {path} from copy pod {pod}"
    result = retried(lambda: run_exec(api, pod, command, stdin=stdin, timeout=_PROBE_TIMEOUT), what, clock)
    if result.exit_code:
        text = f"{what} failed with exit code {result.exit_code}: {result.said}"
        raise TransferError(
            _unwritable(path, result) if result.exit_code == _UNWRITABLE else text,
            exit_code=result.exit_code,
            stderr=result.said,
        )
    return result.stdout


def sweep(api: KubeApi, namespace: str, labels: str | Mapping[str, str]) -> list[str]:
    """
    Remove the pods that have all of *labels* and have ended, or whose process has, and name them.

    Any other that runs may be at work for someone.
    Does what the rights allow: a leftover is untidy, and no reason to stop.
    """
    selector = labels if isinstance(labels, str) else ",".join(f"{key}={value}" for key, value in labels.items())
    removed = []
    try:
        for pod in api.list(POD, namespace, labels=selector):
            metadata = pod["metadata"]
            if metadata.get("deletionTimestamp"):  # its own process is removing it
                continue
            ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if ended or owners.is_over((metadata.get("annotations") or {}).get(OWNER, "")):
                with suppress(NotFound, Conflict):
                    api.delete(POD, namespace, metadata["name"], uid=metadata.get("uid"))
                    removed.append(metadata["name"])
    except KubeError as error:
        logger.info("could not look for leftover copy pods: %s", error)
    return removed


def check_rights(api: KubeApi, namespace: str) -> None:
    """
    Ask the server whether we may run the copy pod and commands in it, before anything is created.

    Raises:
        NotAuthorized: names every verb that is missing.
    """
    rights.require(api, namespace, "copying files to the volume", _NEEDED)


def _named(pod: Json, name: str, token: str) -> Json:
    metadata = pod["metadata"]
    annotations = {**(metadata.get("annotations") or {}), COPY_ID: token}
    if owner := owners.this_process():
        annotations[OWNER] = owner
    return {**pod, "metadata": {**metadata, "name": name, "annotations": annotations}}


def _create(api: KubeApi, pod: Json, restricted: Json | None, clock: Clock) -> None:
    try:
        _create_once(api, pod)
    except Rejected as error:
        if restricted is None or "violates PodSecurity" not in error.message:
            raise
        logger.info("PodSecurity refused the copy pod as it is; trying as an ordinary user: %s", error.message)
        _create_once(api, restricted)
    except (KeyboardInterrupt, Unreachable):
        _await_arrival(api, pod, clock)  # the request may be under way: the delete that follows must come after it
        raise


def _await_arrival(api: KubeApi, pod: Json, clock: Clock) -> None:
    """Wait until a pod is there whose creation was cut off, or cannot be on its way any more."""
    api, metadata = api.patient(0), pod["metadata"]
    deadline = clock.now() + ON_ITS_WAY
    while clock.now() < deadline:
        try:
            api.get(POD, metadata["namespace"], metadata["name"])
            return
        except KubeError as error:
            logger.debug("cannot take %s back yet: %s", metadata["name"], error)
        clock.sleep(0.5)


class _Taken(Conflict):
    """Somebody else's pod has the name."""


def _create_once(api: KubeApi, pod: Json) -> None:
    metadata = pod["metadata"]
    try:
        api.create(POD, metadata["namespace"], pod)
    except Conflict as error:
        try:
            there = api.get(POD, metadata["namespace"], metadata["name"])
        except NotFound:
            api.create(POD, metadata["namespace"], pod)  # it was on its way out
            return
        if (there["metadata"].get("annotations") or {}).get(COPY_ID) != metadata["annotations"][COPY_ID]:
            raise _Taken(**vars(error)) from error


class _Start:
    """Looks at a pod that starts, and tells each new reason why it is not ready."""

    def __init__(self, api: KubeApi, ref: PodRef, on_state: Callable[[str], None] | None, clock: Clock) -> None:
        self._api = api
        self._ref = ref
        self._tell = on_state or (lambda text: logger.info("copy pod %s: %s", ref, text))
        self._clock = clock
        self._told = ""
        self._failing_since: float | None = None
        self._events_at = clock.now() + EVENTS_EVERY
        self._trouble = ""

    def look(self) -> str:
        """
        Give "ready", or why it is not.

        Raises:
            TransferError: the pod is lost.
        """
        try:
            seen = startup(self._api.get(POD, self._ref.namespace, self._ref.name))
        except NotFound as error:
            raise TransferError(f"copy pod {self._ref} was deleted from outside before it was ready") from error
        text = seen.text if seen.ready else self._with_events(seen.text)
        if text != self._told:
            self._told = text
            self._tell(text)
        if seen.ended:
            raise TransferError(f"copy pod {self._ref} ended before it was ready: {text}")
        self._give_up(seen.failing, text)
        return text

    def _give_up(self, failing: bool, text: str) -> None:
        now = self._clock.now()
        if not failing:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = now
        elif now - self._failing_since >= FAILING_TIMEOUT:
            raise TransferError(f"copy pod {self._ref} has not started for {FAILING_TIMEOUT:g} s: {text}")

    def _with_events(self, text: str) -> str:
        """Add the newest warning; without the right to read events, there is none."""
        if self._clock.now() >= self._events_at:
            self._events_at = self._clock.now() + EVENTS_EVERY
            try:
                fields = f"involvedObject.kind=Pod,involvedObject.name={self._ref.name}"
                self._trouble = trouble(self._api.list(EVENT, self._ref.namespace, fields=fields))
            except KubeError as error:
                logger.info("cannot read the events of copy pod %s: %s", self._ref, error)
                self._events_at = float("inf")
        return with_trouble(text, self._trouble)


@contextmanager
def _removed(api: KubeApi, ref: PodRef, clock: Clock) -> Iterator[None]:
    """
    Remove the pod after the block; an error of the block is what the caller sees, whatever the removal says.

    Another's pod of that name is left alone.
    """
    try:
        yield
    except _Taken:
        raise
    except BaseException:
        try:
            _remove(api, ref, clock)
        except (KubeError, WaitTimeout) as error:
            logger.warning("copy pod %s may be left over: %s", ref, error)
        raise
    try:
        _remove(api, ref, clock)
    except KeyboardInterrupt:  # the first: only a second one ends the removal too
        _remove(api, ref, clock)
        raise


def _remove(api: KubeApi, ref: PodRef, clock: Clock) -> None:
    """Delete the pod and wait until it is gone."""
    with suppress(NotFound):
        api.delete(POD, ref.namespace, ref.name)
    what = f"the end of copy pod {ref}"
    poll_until(lambda: _seen(api, ref), "gone".__eq__, what=what, timeout=GONE_TIMEOUT, interval=0.5, clock=clock)


def _seen(api: KubeApi, ref: PodRef) -> str:
    try:
        pod = api.get(POD, ref.namespace, ref.name)
    except NotFound:
        return "gone"
    phase = (pod.get("status") or {}).get("phase")
    node = (pod.get("spec") or {}).get("nodeName") or "no node"
    return f"{phase} on {node}, deleted at {pod['metadata'].get('deletionTimestamp')}"


def _unwritable(path: PurePosixPath, result: ExecResult) -> str:
    """Say who may write there, who the copy pod is, and what helps."""
    facts = result.stdout.decode("utf-8", "replace").splitlines()
    directory, uid, groups, listing = (*facts, "", "", "", "")[:4]
    mode, _, owner, group = (*listing.split(), "?", "?", "?", "?")[:4]
    return (
        f"the copy pod cannot write to {path}: {result.said}."
        f" {directory or path} has mode {mode}, owner {owner}, group {group};"
        f" the pod runs as uid {uid or '?'}, groups {groups or '?'}."
        " What helps: fsGroup in the pod's securityContext (where the volume's CSI driver applies it); an"
        f" administrator who runs chown or chmod on {directory or path}; or another user for the copy pod:"
        f' data_mover={{"securityContext": {{"runAsUser": {owner}, "runAsGroup": {group}}}}}'
    )
