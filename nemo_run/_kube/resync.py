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
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from nemo_run._kube import synced
from nemo_run._kube.exec import PodRef
from nemo_run._kube.mover import check_writable, run_where_writable
from nemo_run._kube.transfer import Around, escaped, send_tree
from nemo_run._kube.tree import SourceFile
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run.exceptions import TransferError

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

logger = logging.getLogger(__name__)

OURS = PurePosixPath(".nemo_run")
"""Where below the destination our own files lie; a local directory of that name is not sent."""

_TICK_NS = 2_000_000_000
_CHUNK = 1 << 20
_FRAME = 64 * 1024

# It names those of the paths that it is given which are not there, or were written after the last copy, and then what
# that copy wrote down. `test -nt` follows links, so what is a link here is only looked for.
_LOOK = r"""
names=$(head -c "$3"; echo .)
cd "$1" 2>/dev/null || exit 0
[ -L .nemo_run ] && exit 0
if [ ! -f .nemo_run/manifest.json ]; then
  if [ -f .nemo_run/manifest.part ]; then echo part; echo; cat .nemo_run/manifest.part; fi
  exit 0
fi
echo whole
set -f
IFS='
'
for n in ${names%.}; do
  f=$n
  case $f in *\\*) f=$(printf '%b.' "$f"); f=${f%.};; esac
  case $f in
    l:*) [ -L "${f#l:}" ] || [ -e "${f#l:}" ];;
    d:*) [ -d "${f#d:}" ] && [ ! -L "${f#d:}" ];;
    *) [ -f "$f" ] && [ ! -L "$f" ] && ! [ "$f" -nt .nemo_run/manifest.json ];;
  esac || printf '%s\n' "$n"
done
echo
cat .nemo_run/manifest.json
"""

# From here on what lies there does not count as whole. A directory on the way that is a link by now leads elsewhere:
# what lies there is not ours.
_REMOVE = r"""
if [ ! -L .nemo_run ] && [ -f .nemo_run/manifest.json ]; then mv -f .nemo_run/manifest.json .nemo_run/manifest.part; fi
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

# Written anew, so that it is younger than the files by the clock that they are judged by the next time.
_KEEP = """
cat .nemo_run/manifest.new > .nemo_run/manifest.now
mv -f .nemo_run/manifest.now .nemo_run/manifest.json
rm -f .nemo_run/manifest.new .nemo_run/manifest.part
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

    It takes two commands there: one to look, one to send. What has gone or was changed there since the
    last copy is sent again.

    Args:
        extra: texts to write besides, by path below *dest*; they are sent each time and never removed.
        removing: remove what an earlier copy sent and is no longer among *files*.
        only_extra: write *extra* and leave everything else as it is.

    Raises:
        TransferError: *dest* cannot be written, or the copy failed.
    """
    if only_extra:
        check_writable(api, pod, dest, clock=clock)
        sent = _send(api, pod, [], dest, extra or {}, None, spool_dir=spool_dir, progress=None, clock=clock)
        return Resent(0, sent, 0, 0)
    mine = _looked_at(source for source in files if source.path_in_archive.parts[0] != OURS.name)
    there = _looked_up(api, pod, dest, mine, clock)
    now = local_entries(mine, there.entries)
    todo = synced.changes(there.entries, now, stale=there.stale, trusted=there.trusted)
    if not removing:
        todo = synced.Changes(todo.send, ())
    chosen = _with_targets([local.source for local in mine], set(todo.send))
    noting = bool(todo) or not there.trusted
    texts = {**(extra or {}), **({OURS / "manifest.new": synced.text(now)} if noting else {})}
    around = Around(_REMOVE, _rows([(path, there.entries[path]) for path in todo.remove]), _KEEP) if noting else None
    sent = _send(api, pod, chosen, dest, texts, around, spool_dir=spool_dir, progress=progress, clock=clock)
    return Resent(len(chosen), sent, len(todo.remove), len(now) - len(todo.send))


@dataclass(frozen=True)
class Local:
    """A file, directory or link to send, by its path below the destination."""

    path: str
    source: SourceFile
    facts: os.stat_result


def _looked_at(files: Iterable[SourceFile]) -> list[Local]:
    try:
        return [Local(str(source.path_in_archive), source, os.lstat(source.local)) for source in files]
    except OSError as error:
        raise TransferError(f"cannot read {error.filename}: {error}") from error


def local_entries(files: Iterable[Local], before: synced.Entries | None = None) -> dict[str, synced.Entry]:
    """
    Give size, mode and sha256 of each of *files*, as a volume will have them.

    Those that have not been changed since *before* are not read again.

    Raises:
        TransferError: a file cannot be read.
    """
    found = {}
    for file in files:
        try:
            entry = _entry(file, (before or {}).get(file.path))
        except OSError as error:
            raise TransferError(f"cannot read {file.source.local}: {error}") from error
        if entry is not None:
            found[file.path] = entry
    return found


def _entry(file: Local, before: synced.Entry | None) -> synced.Entry | None:
    local, facts = file.source.local, file.facts
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
    mode, stamp = _mode(facts), f"{facts.st_mtime_ns:x} {facts.st_ctime_ns:x} {facts.st_ino:x}"
    if before and (before.stamp, before.size) == (stamp, facts.st_size):
        return before if before.mode == mode else replace(before, mode=mode)
    content = hashlib.sha256()
    size = _read(local, content)
    # What was changed just now may be changed again within the same tick of the file system's clock.
    settled = time.time_ns() - max(facts.st_mtime_ns, facts.st_ctime_ns) > _TICK_NS
    return synced.Entry(size, mode, content.hexdigest(), stamp if settled else "")


def _read(local: Path, into: hashlib._Hash) -> int:
    size = 0
    with local.open("rb") as content:
        while data := content.read(_CHUNK):
            into.update(data)
            size += len(data)
    return size


def _mode(facts: os.stat_result) -> int:
    return 0o755 if facts.st_mode & 0o111 else 0o644


def _with_targets(files: Sequence[SourceFile], wanted: set[str]) -> list[SourceFile]:
    """Give the *wanted* ones and, beside a link, what it leads to: the archive has to know its place."""
    chosen = {source.path_in_archive: source for source in files if str(source.path_in_archive) in wanted}
    links = [source.local for source in chosen.values() if source.local.is_symlink()]
    if links:
        by_place = {os.path.realpath(source.local): source for source in files if not source.local.is_symlink()}
        targets = filter(None, (by_place.get(os.path.realpath(link)) for link in links))
        chosen |= {target.path_in_archive: target for target in targets}
    return list(chosen.values())


@dataclass(frozen=True)
class _There:
    """What earlier copies left, and what of it is not as they left it; trusted if the last one came to its end."""

    entries: synced.Entries
    stale: frozenset[str]
    trusted: bool


def _looked_up(api: KubeApi, pod: PodRef, dest: PurePosixPath, files: Sequence[Local], clock: Clock) -> _There:
    names = {f"{_kind(file.facts)}./{escaped(file.path)}": file.path for file in files}
    asked = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
    output = run_where_writable(api, pod, dest, _LOOK, str(len(asked)), stdin=[*_pieces(asked)], clock=clock)
    told, _, content = output.partition(b"\n\n")
    kind, *stale = told.decode("utf-8", "surrogateescape").split("\n")
    found = synced.entries(content) if kind in ("whole", "part") else {}
    if found is None:
        logger.warning("the list of what was copied to %s cannot be read; everything is sent anew", dest)
        return _There({}, frozenset(), False)
    changed = frozenset(names[name] for name in stale if name in names) & found.keys()
    if changed:
        logger.info("%d entries in %s have gone or were changed there: sent again", len(changed), dest)
    return _There(found, changed, kind == "whole")


def _kind(facts: os.stat_result) -> str:
    return "l:" if stat.S_ISLNK(facts.st_mode) else "d:" if stat.S_ISDIR(facts.st_mode) else ""


def _rows(which: Sequence[tuple[str, synced.Entry]]) -> bytes:
    rows = [f"{'d' if entry.is_directory else 'f'}:{escaped(path)}" for path, entry in which]
    return "\n".join([*rows, "", ""]).encode("utf-8", "surrogateescape")


def _send(
    api: KubeApi,
    pod: PodRef,
    chosen: Sequence[SourceFile],
    dest: PurePosixPath,
    texts: Mapping[PurePosixPath, str],
    around: Around | None,
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
        return send_tree(
            api, pod, everything, dest, spool_dir=spool_dir, around=around, progress=progress, clock=clock
        ).bytes


def _pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _FRAME):
        yield data[start : start + _FRAME]
