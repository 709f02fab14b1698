"""The operator's line to the dashboards of Ray heads, which listen in networks of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from nemo_run.testing._errors import ApiError
from nemo_run.testing._process import Process
from nemo_run.testing._rootfs import TOOLS

Json = dict[str, Any]
Key = tuple[str, str]

RETRY = 0.5
"""Seconds until a head that could not be entered is tried again."""


class Node(Protocol):
    """What of a kubelet is used here."""

    async def exec(
        self, namespace: str, pod: str, container: str | None, command: Sequence[str], *, stdin: bool = False
    ) -> Process:
        """Run a command in a running container."""


class Dashboard:
    """The jobs of one head, as it told of them last."""

    def __init__(self, node: Node, place: tuple[str, str, str], port: int, changed: Callable[[], None]) -> None:
        self.jobs: dict[str, Json] | None = None
        """By submission id; None while the head does not answer."""
        self.users: set[Key] = set()
        self._node = node
        self._place = place
        self._port = port
        self._changed = changed
        self._process: Process | None = None
        self._waiting: list[bytes] = []
        self._closing = False
        self.task = asyncio.create_task(self._run())

    def stop(self, job: str) -> None:
        """Ask the head to stop a job."""
        self._ask(f"/api/jobs/{job}/stop", {})

    def submit(self, request: Json) -> None:
        """Ask the head to run a job, as HTTPMode does."""
        self._ask("/api/jobs/", request)

    def close(self) -> None:
        """Let the line go after what has been asked."""
        self._closing = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        elif not self._waiting:
            self.task.cancel()

    def _ask(self, path: str, body: Json) -> None:
        line = json.dumps({"path": path, "body": body}).encode() + b"\n"
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line)
        else:
            self._waiting.append(line)

    async def _run(self) -> None:
        namespace, pod, container = self._place
        command = ["python", "-I", f"{TOOLS}/ray_bridge.py", str(self._port)]
        try:
            self._process = process = await self._node.exec(namespace, pod, container, command, stdin=True)
            if process.stdin is not None:
                process.stdin.writelines(self._waiting)
                if self._closing:
                    process.stdin.close()
            self._waiting.clear()
            await asyncio.gather(self._read(process), process.stderr.read())
        except (ApiError, OSError):
            pass
        finally:
            self.jobs = None
            if self._process is not None:
                self._process.kill()
        if not self._closing:
            await asyncio.sleep(RETRY)

    async def _read(self, process: Process) -> None:
        while line := await process.stdout.readline():
            jobs = json.loads(line)
            self.jobs = None if jobs is None else {str(job["submission_id"]): job for job in jobs}
            self._changed()


class Dashboards:
    """The lines that are open, one for each head that a RayJob runs on."""

    def __init__(self, node: Node, changed: Callable[[set[Key]], None]) -> None:
        self._node = node
        self._changed = changed
        self._open: dict[str, Dashboard] = {}

    def find(self, head: Json, port: int, user: Key) -> Dashboard:
        """Give the line to a head's pod, opened if there is none; *user* hears of changes until :meth:`leave`."""
        meta = head["metadata"]
        uid = str(meta["uid"])
        if uid not in self._open or self._open[uid].task.done():
            users = self._open[uid].users if uid in self._open else set()
            place = (meta["namespace"], meta["name"], head["spec"]["containers"][0]["name"])
            opened = Dashboard(self._node, place, port, lambda: self._changed(set(opened.users)))
            opened.users |= users
            opened.task.add_done_callback(lambda task: self._ended(uid, opened))
            self._open[uid] = opened
        self._open[uid].users.add(user)
        return self._open[uid]

    def leave(self, user: Key) -> None:
        """Close the lines that nobody but *user* uses."""
        for uid, dashboard in list(self._open.items()):
            if user in dashboard.users:
                dashboard.users.discard(user)
                if not dashboard.users:
                    del self._open[uid]
                    dashboard.close()

    async def close(self) -> None:
        """Close all lines."""
        tasks = [dashboard.task for dashboard in self._open.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._open.clear()

    def _ended(self, uid: str, dashboard: Dashboard) -> None:
        if self._open.get(uid) is dashboard:
            self._changed(set(dashboard.users))
        with contextlib.suppress(asyncio.CancelledError):
            dashboard.task.exception()
