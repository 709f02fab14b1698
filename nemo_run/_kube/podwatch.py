"""The pods that a selector matches, told of in a thread as they change."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nemo_run._kube.resources import POD
from nemo_run.exceptions import KubeError, NotAuthorized, ServerError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

Json = dict[str, Any]


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
        self._interval = interval
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
                if look == self._listed_again:
                    self._failed(error)
                    return
                look = self._listed_again
            except KubeError as error:
                self._failed(error)
                return

    def close(self) -> None:
        """End the thread; any thread may call it."""
        self._over.set()
        self._watch.close()

    def look(self) -> None:
        """Tell of each pod that is there now, and of those that are not there any more."""
        pods = self._api.list(POD, self._namespace, labels=self._selector)
        self._listed, self.trouble = True, ""
        before, self._known = self._known, {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, pod in before.items():
            if uid not in self._known:
                self._changed(pod, True)
        for pod in pods:
            self._changed(pod, False)

    def _watched(self) -> None:
        for event in self._watch:
            if self._over.is_set():
                return
            self.trouble = ""
            uid, gone = event.object["metadata"]["uid"], event.type == "DELETED"
            if gone:
                self._known.pop(uid, None)
            else:
                self._known[uid] = event.object
            self._changed(event.object, gone)

    def _listed_again(self) -> None:
        self.look()
        self._over.wait(self._interval)
