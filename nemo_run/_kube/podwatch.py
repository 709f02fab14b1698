"""The pods that a selector matches, told of in a thread as they change."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nemo_run._kube.resources import POD
from nemo_run.exceptions import KubeError, NotAuthorized, ServerError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

Json = dict[str, Any]

_STEP = 0.02
_LONGEST_PAUSE = 30.0


class PodWatch(threading.Thread):
    """
    Tells *changed* of each pod, of each change of one, and of its end (with what was last seen of it).

    A container that crashes at once is there for moments only, so pods are
    watched. Without the right to do so they are listed every *interval* seconds.
    """

    def __init__(
        self,
        api: KubeApi,
        namespace: str,
        selector: str,
        *,
        changed: Callable[[Json, bool], None],
        failed: Callable[[KubeError], None],
        interval: float,
    ) -> None:
        super().__init__(name=f"pods of {selector}", daemon=True)
        # Each round is a new try anyway.
        self._api = api.patient(0)
        self._namespace = namespace
        self._selector = selector
        self._changed = changed
        self._failed = failed
        self._interval = self._pause = interval
        self._known: dict[str, Json] = {}
        self._listed = False
        self._over = threading.Event()
        self._watch = self._api.watch(POD, namespace, labels=selector, timeout=math.inf)
        self.trouble = ""
        """Why it is not known how the pods are now."""

    @property
    def looked(self) -> bool:
        """Tell whether the pods have been seen at all."""
        return self._watch.listed or self._listed

    def run(self) -> None:
        """Tell of changes until it is closed."""
        look = self._watched
        while not self._over.is_set():
            try:
                look()
            except (ServerError, Unreachable) as error:
                self.trouble = f"cannot look at the pods: {error.message}; trying again"
                self._over.wait(max(self._interval, error.retry_after or 0.0))
            except NotAuthorized as error:
                if look == self._watched:
                    look = self._listed_again
                else:
                    look = self._watched
                    self._refused(error)
            except KubeError as error:
                self._refused(error)

    def _refused(self, error: KubeError) -> None:
        """Tell of it, and wait before the next try; whoever is told may close this instead."""
        self.trouble = f"cannot look at the pods: {error.message}; trying again"
        self._failed(error)
        self._over.wait(max(self._pause, error.retry_after or 0.0))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def close(self) -> None:
        """End the thread; any thread may call it."""
        self._over.set()
        self._watch.close()

    def catch_up(self, seconds: float, *, interval: float) -> None:
        """
        Return when all has been told that had happened before this call.

        The last words on a pod that is gone are in the watch alone, so the thread
        gets *seconds* to tell them. From now on, pods that are listed are listed
        every *interval* seconds.
        """
        self._interval = min(self._interval, interval)
        before = dict(self._known)
        now = self._list()
        behind = {uid for uid in before.keys() | now.keys() if _version(before, uid) != _version(now, uid)}
        deadline = time.monotonic() + seconds
        while behind and time.monotonic() < deadline and not self._over.wait(_STEP):
            behind = {uid for uid in behind if self._known.get(uid) is before.get(uid)}
        for uid in behind:
            self._tell(now.get(uid) or before[uid], gone=uid not in now)

    def _list(self) -> dict[str, Json]:
        pods = self._api.list(POD, self._namespace, labels=self._selector)
        return {pod["metadata"]["uid"]: pod for pod in pods}

    def _tell(self, pod: Json, *, gone: bool) -> None:
        self._changed(pod, gone)
        # Known is what was told: catch_up looks here.
        if gone:
            self._known.pop(pod["metadata"]["uid"], None)
        else:
            self._known[pod["metadata"]["uid"]] = pod

    def _watched(self) -> None:
        for event in self._watch:
            if self._over.is_set():
                return
            self.trouble, self._pause = "", self._interval
            self._tell(event.object, gone=event.type == "DELETED")

    def _listed_again(self) -> None:
        pods = self._list()
        self._listed, self.trouble, self._pause = True, "", self._interval
        for uid in self._known.keys() - pods.keys():
            self._tell(self._known[uid], gone=True)
        for pod in pods.values():
            self._tell(pod, gone=False)
        self._over.wait(self._interval)


def _version(pods: dict[str, Json], uid: str) -> str | None:
    """Give which version of a pod is there: the same one reads otherwise in a list, which tells each kind only once."""
    return pods[uid]["metadata"].get("resourceVersion", "") if uid in pods else None
