"""
Lets LocalKube's operator speak with a head's dashboard, which only the pods of that cluster can reach.

Runs in the head's container beside Ray, real or not: writes the jobs to its output, one line of JSON at each
change, and carries out the requests that come as lines of JSON on its input. It ends with its input.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from typing import Any

Json = dict[str, Any]

INTERVAL = 0.2
"""Seconds between looks."""


class Dashboard:
    """A connection that is opened again when it is lost."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Json | None = None) -> Any:
        """Send a request; give the answer, None if there is none."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            headers = {"Content-Type": "application/json"}
            self._connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = self._connection.getresponse()
            data = response.read()
            return json.loads(data) if response.status == 200 else None
        except (OSError, ValueError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            return None


def obey(port: int, over: threading.Event) -> None:
    """Carry out what comes on the input."""
    dashboard = Dashboard(port)
    for line in sys.stdin:
        request = json.loads(line)
        dashboard.ask("POST", request["path"], request["body"])
    over.set()


def main(port: int) -> None:
    """Tell of the jobs until the input ends."""
    over = threading.Event()
    threading.Thread(target=obey, args=(port, over), daemon=True).start()
    dashboard, told = Dashboard(port), ""
    while True:
        jobs = dashboard.ask("GET", "/api/jobs/")
        text = "" if jobs is None else json.dumps(jobs)
        if text != told:
            sys.stdout.write((text or "null") + "\n")
            sys.stdout.flush()
            told = text
        if over.wait(INTERVAL):
            return


if __name__ == "__main__":
    main(int(sys.argv[1]))
