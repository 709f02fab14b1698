"""A container's log as LocalKube keeps it."""

from __future__ import annotations

import asyncio

from nemo_run.testing._logfile import LogFile, LogQuery


def test_who_follows_gets_every_line_however_much_comes_at_once(tmp_path):
    """More than is read from the file at a time, so that a piece ends within a line."""
    late = [b"%d %s\n" % (number, b"x" * 90) for number in range(30_000)]

    async def followed() -> bytes:
        log = LogFile(tmp_path / "0.log")
        log.feed(b"early\n")
        reader = log.read(LogQuery(follow=True))
        found = [await reader.__anext__()]
        log.feed(b"".join(late))
        log.finish()
        return b"".join(found + [piece async for piece in reader])

    assert asyncio.run(followed()) == b"early\n" + b"".join(late)
