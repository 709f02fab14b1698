"""
A directory copied to a volume again and again: only what changed is sent, only what we sent is removed.

``.nemo_run/manifest.json`` below the destination says what lies there. It is
set aside while a copy is under way, so that one that broke off is not trusted;
what it names may be removed all the same.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nemo_run._kube import synced
from nemo_run._kube.exec import ExecResult, PodRef, run_exec
from nemo_run._kube.transfer import retried, send_tree
from nemo_run._kube.tree import SourceFile
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.exceptions import TransferError

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

OURS = PurePosixPath(".nemo_run")
"""Where below the destination our own files lie; a local directory of that name is not sent."""

_STEP = 120.0
_TICK = 2_000_000_000
_CHUNK = 1 << 20
_FRAME = 64 * 1024

_LOOK = """
cd "$1" 2>/dev/null || exit 0
[ -L .nemo_run ] && exit 0
if [ -f .nemo_run/manifest.json ]; then echo whole; cat .nemo_run/manifest.json
elif [ -f .nemo_run/manifest.part ]; then echo part; cat .nemo_run/manifest.part; fi
"""

# A directory on the way that is a link by now leads elsewhere: what lies there is not ours.
_REMOVE = r"""
set -eu
cd "$1"
if [ -f .nemo_run/manifest.json ]; then mv -f .nemo_run/manifest.json .nemo_run/manifest.part; fi
while IFS= read -r f && [ -n "$f" ]; do
  kind=${f%%:*}; f=${f#*:}
  case $f in *\\*) f=$(printf '%b.' "$f"); f=${f%.};; esac
  p=$f; linked=
  while case $p in */*) true;; *) false;; esac; do
    p=${p%/*}
    if [ -L "./$p" ]; then linked=1; fi
  done
  if [ -n "$linked" ]; then continue; fi
  if [ "$kind" = d ]; then rmdir "./$f" 2>/dev/null || true
  elif [ -L "./$f" ] || [ ! -d "./$f" ]; then rm -f "./$f"; fi
done
"""

_KEEP = """
set -eu
cd "$1/.nemo_run"
mv -f manifest.new manifest.json
rm -f manifest.part
"""


@dataclass(frozen=True)
class Resent:
    """What a copy did: files and links sent, their bytes, and what was removed or left as it was."""

    sent: int
    bytes: int
    removed: int
    unchanged: int


def resync(
    api: KubeApi,
    pod: PodRef,
    files: Sequence[SourceFile],
    dest: PurePosixPath,
    *,
    extra: Mapping[PurePosixPath, str] | None = None,
    removing: bool = True,
    only_extra: bool = False,
    spool_dir: Path,
    progress: Callable[[int, int], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Resent:
    """
    Make *dest* in *pod* hold *files*, beside what jobs have written there.

    Args:
        extra: texts to write besides, by path below *dest*; they are sent each time and never removed.
        removing: remove what an earlier copy sent and is no longer among *files*.
        only_extra: write *extra* and leave everything else as it is.

    Raises:
        TransferError: the copy failed.
    """
    if only_extra:
        return Resent(0, _send(api, pod, [], dest, extra or {}, spool_dir=spool_dir, progress=None, clock=clock), 0, 0)
    mine = [source for source in files if source.path_in_archive.parts[0] != OURS.name]
    before, trusted = _looked_up(api, pod, dest, clock)
    now = local_entries(mine, before)
    todo = synced.changes(before, now, trusted=trusted)
    if not removing:
        todo = synced.Changes(todo.send, ())
    if todo and before:
        _remove(api, pod, dest, [(path, before[path]) for path in todo.remove], clock)
    chosen = _with_targets(mine, set(todo.send))
    texts = {**(extra or {}), **({OURS / "manifest.new": synced.text(now)} if todo or not trusted else {})}
    sent = _send(api, pod, chosen, dest, texts, spool_dir=spool_dir, progress=progress, clock=clock)
    if OURS / "manifest.new" in texts:
        _run(api, pod, [*_shell(_KEEP), str(dest)], f"noting what was copied to {dest}", clock)
    return Resent(len(chosen), sent, len(todo.remove), len(now) - len(todo.send))


def local_entries(
    files: Iterable[SourceFile], before: synced.Entries | None = None
) -> dict[PurePosixPath, synced.Entry]:
    """
    Give size, mode and sha256 of each of *files*, as a volume will have them.

    Those that have not been changed since *before* are not read again.

    Raises:
        TransferError: a file cannot be read.
    """
    found = {}
    for source in files:
        try:
            entry = _entry(source.local, (before or {}).get(source.path_in_archive))
        except OSError as error:
            raise TransferError(f"cannot read {source.local}: {error}") from error
        if entry is not None:
            found[source.path_in_archive] = entry
    return found


def _entry(local: Path, before: synced.Entry | None) -> synced.Entry | None:
    facts = local.lstat()
    if stat.S_ISDIR(facts.st_mode):
        return synced.Entry(0, 0o755, "")
    if stat.S_ISREG(facts.st_mode):
        return _file(local, facts, before)
    if not stat.S_ISLNK(facts.st_mode):
        return None
    text = hashlib.sha256(os.fsencode(os.readlink(local)) + b"\0")
    if not local.is_file():
        return synced.Entry(0, 0o755, text.hexdigest())
    size = _read(local, text)
    return synced.Entry(size, _mode(local.stat()), text.hexdigest())


def _file(local: Path, facts: os.stat_result, before: synced.Entry | None) -> synced.Entry:
    mode = _mode(facts)
    if before and before.mtime_ns and (before.size, before.mtime_ns) == (facts.st_size, facts.st_mtime_ns):
        return synced.Entry(before.size, mode, before.sha256, before.mtime_ns)
    content = hashlib.sha256()
    size = _read(local, content)
    # What was changed just now may be changed again within the same tick of the file system's clock.
    settled = time.time_ns() - facts.st_mtime_ns > _TICK
    return synced.Entry(size, mode, content.hexdigest(), facts.st_mtime_ns if settled else 0)


def _read(local: Path, into: hashlib._Hash) -> int:
    size = 0
    with local.open("rb") as content:
        while data := content.read(_CHUNK):
            into.update(data)
            size += len(data)
    return size


def _mode(facts: os.stat_result) -> int:
    return 0o755 if facts.st_mode & 0o111 else 0o644


def _with_targets(files: Sequence[SourceFile], wanted: set[PurePosixPath]) -> list[SourceFile]:
    """Give the *wanted* ones and, beside a link, what it leads to: the archive has to know its place."""
    by_place = {os.path.realpath(source.local): source for source in files if not source.local.is_symlink()}
    chosen = {source.path_in_archive: source for source in files if source.path_in_archive in wanted}
    for source in list(chosen.values()):
        if source.local.is_symlink() and (target := by_place.get(os.path.realpath(source.local))):
            chosen[target.path_in_archive] = target
    return list(chosen.values())


def _looked_up(
    api: KubeApi, pod: PodRef, dest: PurePosixPath, clock: Clock
) -> tuple[dict[PurePosixPath, synced.Entry], bool]:
    """Give what lies there of earlier copies, and whether that is sure."""
    result = _run(api, pod, [*_shell(_LOOK), str(dest)], f"reading what lies in {dest}", clock)
    kind, _, content = result.stdout.partition(b"\n")
    found = synced.entries(content) if kind in (b"whole", b"part") else {}
    if found is None:
        logger.warning("the list of what was copied to %s cannot be read; everything is sent anew", dest)
        return {}, False
    return found, kind == b"whole"


def _remove(
    api: KubeApi, pod: PodRef, dest: PurePosixPath, which: Sequence[tuple[PurePosixPath, synced.Entry]], clock: Clock
) -> None:
    """Remove what an earlier copy sent; from here on what it left does not count as whole."""
    rows = [f"{'d' if entry.is_directory else 'f'}:{_escaped(path)}" for path, entry in which]
    body = "\n".join([*rows, "", ""]).encode("utf-8", "surrogateescape")
    _run(api, pod, [*_shell(_REMOVE), str(dest)], f"removing {len(rows)} old files from {dest}", clock, stdin=body)


def _escaped(path: PurePosixPath) -> str:
    return str(path).replace("\\", r"\\").replace("\n", r"\n")


def _send(
    api: KubeApi,
    pod: PodRef,
    chosen: Sequence[SourceFile],
    dest: PurePosixPath,
    texts: Mapping[PurePosixPath, str],
    *,
    spool_dir: Path,
    progress: Callable[[int, int], None] | None,
    clock: Clock,
) -> int:
    with tempfile.TemporaryDirectory(prefix="texts-", dir=spool_dir) as name:
        written = []
        for number, (path, content) in enumerate(texts.items()):
            local = Path(name) / str(number)
            local.write_text(content, "utf-8", "surrogateescape", newline="")
            written.append(SourceFile(path, local))
        if not chosen and not written:
            return 0
        everything = [*chosen, *written]
        return send_tree(api, pod, everything, dest, spool_dir=spool_dir, progress=progress, clock=clock).bytes


def _run(
    api: KubeApi, pod: PodRef, command: Sequence[str], what: str, clock: Clock, *, stdin: bytes | None = None
) -> ExecResult:
    def attempt() -> ExecResult:
        return run_exec(api, pod, command, stdin=None if stdin is None else _pieces(stdin), timeout=_STEP)

    result = retried(attempt, f"{what} in pod {pod}", clock)
    if result.exit_code:
        raise TransferError(
            f"{what} in pod {pod} failed with exit code {result.exit_code}: {result.said}",
            exit_code=result.exit_code,
            stderr=result.said,
        )
    return result


def _pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _FRAME):
        yield data[start : start + _FRAME]


def _shell(script: str) -> list[str]:
    """Give the argv that runs *script* with the arguments that follow."""
    return ["sh", "-c", script, "sh"]
