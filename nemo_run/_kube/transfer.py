"""
Trees of files to and from a pod: tar over exec, both ways.

The archive is spooled to a file without a name first, so that its length is
known, memory stays constant and another try can begin at once. "Done" is the
far side's exit code, and nothing else: on the way there its last act is to
remove the archive's last member, on the way back to write a token.

The far side needs a POSIX sh, tar, and what comes with head (mkdir, rm).
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from nemo_run._kube.exec import Broken, ExecResult, PodRef, run_exec
from nemo_run._kube.pack import Packed, pack
from nemo_run._kube.tree import SourceFile, directory_files, workdir_files
from nemo_run._kube.unpack import Fetched, Skip, unpack
from nemo_run._kube.waiting import SYSTEM_CLOCK, Clock
from nemo_run._kube.wire import FIRST_PAUSE, LONGEST_PAUSE, PATIENCE
from nemo_run.exceptions import ServerError, TransferError, Unreachable

if TYPE_CHECKING:
    from nemo_run._kube.api import KubeApi

__all__ = [
    "Around",
    "Fetched",
    "Sent",
    "SourceFile",
    "directory_files",
    "escaped",
    "fetch_tree",
    "send_tree",
    "workdir_files",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")
Progress = Callable[[int, int], None]

ATTEMPTS = 3
"""How often a copy is tried in all when its stream is cut or falls silent; one that cannot be opened does not count."""
STILL = 900.0
"""Seconds in which no byte moves after which a copy counts as stuck: slow network volumes do pause for minutes."""
MANY_FILES = 20_000
MANY_BYTES = 1024**3
"""From here on the user is told: most often a data set or a virtual environment is in the way."""

_FRAME = 64 * 1024
_READ = 1024 * 1024

_ENTER = """
set -eu
umask 022
if [ -L "$1" ]; then rm -f "$1"; fi
mkdir -p "$1"
cd "$1"
"""

# A directory of ours that is a link over there (left by someone, to somewhere) gives way to a directory: busybox
# tar would write through it. `read` takes one byte at a time, so that what follows is left to `head`.
_RECEIVE = r"""
while IFS= read -r d && [ -n "$d" ]; do
  case $d in *\\*) d=$(printf '%b.' "$d"); d=${d%.};; esac
  if [ -L "./$d" ]; then rm -f "./$d"; fi
done
head -c "$2" | tar "$3" -
rm "./$4"
"""

# GNU tar ends with 1 where a file changed while it was read, with 2 on errors; busybox with 1 on errors.
_SEND = """
cd "$1" || exit 66
tar "$2" - . || { s=$?; if [ $s -eq 1 ]; then printf %s "$3"; fi; exit $s; }
printf %s "$3"
"""

_CHANGED = ("file changed as we read it", "File removed before we read it", "file is unchanged; not dumped")


@dataclass(frozen=True)
class Around:
    """Shell text that runs in the destination as part of a copy; another try runs all of it again."""

    before: str = ""
    lines: bytes = b""
    """The input of *before*, which has to know where it ends."""
    after: str = ""
    """Runs once all has arrived."""


@dataclass(frozen=True)
class Sent:
    """What was sent: files and links, and the bytes in them."""

    files: int
    bytes: int


def send_tree(
    api: KubeApi,
    pod: PodRef,
    files: Sequence[SourceFile] | Path,
    dest: PurePosixPath,
    *,
    spool_dir: Path,
    compress: bool | None = None,
    around: Around | None = None,
    progress: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Sent:
    """
    Copy *files* (or all of a directory) to below *dest* in *pod*, over what is there.

    Executable bits, links inside the tree and empty directories are kept; owners are not. *dest*
    and the directories sent become real directories there, also where links were. *progress* is
    told the bytes of the archive that are on their way, and all of them.

    Args:
        compress: gzip on the way; by default always, except to a server on this machine.
        around: what else to do there, for the price of one command.

    Raises:
        TransferError: a file cannot be sent; the far side failed (with its exit code and stderr); the
            stream was cut three times.
        NotAuthorized, NotFound, Rejected: the server does not let us run commands in the pod.
    """
    chosen = directory_files(files) if isinstance(files, Path) else files
    packing = _far(api) if compress is None else compress
    more = around or Around()
    script = "\n".join((_ENTER, more.before, _RECEIVE, more.after))
    last = f".nemo-run-{secrets.token_hex(8)}"
    with _spool(spool_dir) as spool:
        packed = pack(chosen, spool, last=last, compress=packing)
        size = spool.tell()
        _warn_if_big(packed)
        command = _shell(script, str(dest), str(size), "xzof" if packing else "xof", last)
        preface = more.lines + _preface(packed.directories)

        def attempt() -> ExecResult:
            return run_exec(api, pod, command, stdin=_stdin(spool, size, preface, progress), timeout=STILL)

        what = f"copying {packed.files} files to {dest} in pod {pod}"
        _check(retried(attempt, what, clock), what)
    return Sent(packed.files, packed.bytes)


def fetch_tree(
    api: KubeApi,
    pod: PodRef,
    source: PurePosixPath,
    dest: Path,
    *,
    spool_dir: Path,
    skip: Skip | None = None,
    compress: bool | None = None,
    progress: Progress | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Fetched:
    """
    Copy all that lies below *source* in *pod* to below *dest*, over what is there.

    Files appear whole or not at all; pipes, devices and links that lead out stay there, with a warning. *skip* is
    asked with the path and the tar member of each. *progress* is told the bytes that came; nobody knows their
    number before, so the second number is 0.

    Raises:
        TransferError: *source* is not there or cannot be read; the archive is broken or has a member
            that would leave *dest* (then nothing is written); the stream was cut three times.
        NotAuthorized, NotFound, Rejected: the server does not let us run commands in the pod.
    """
    packing = _far(api) if compress is None else compress
    token = secrets.token_hex(16)
    command = _shell(_SEND, str(source), "czf" if packing else "cf", token)
    what = f"copying {source} from pod {pod}"
    with _spool(spool_dir) as spool:

        def attempt() -> ExecResult:
            spool.seek(0)
            spool.truncate()
            taker = _Taker(spool, token.encode(), packing, progress)
            result = run_exec(api, pod, command, stdout=taker, timeout=STILL)
            if _is_complete(result) and not taker.is_whole():
                raise Broken(what, "the end of the stream got lost", server=api.server, namespace=pod.namespace)
            return result

        result = retried(attempt, what, clock)
        if not _is_complete(result):
            _check(result, what)
        elif result.exit_code:
            logger.warning("%s: files changed meanwhile: %s", what, result.said)
        return unpack(spool, dest, source=source, skip=skip)


class _Taker:
    """Takes the far side's output: the archive goes to a file, unzipped; the token behind it shows that all came."""

    def __init__(self, out: IO[bytes], token: bytes, unzip: bool, progress: Progress | None) -> None:
        self._out = out
        self._token = token
        self._unzip = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16) if unzip else None
        self._tail = b""
        self._came = 0
        self._progress = progress

    def __call__(self, data: bytes) -> None:
        self._came += len(data)
        try:
            self._take(data if self._unzip is None else self._unzipped(self._unzip, data))
        except zlib.error as error:
            raise TransferError(f"what came is no gzip stream: {error}") from error
        except OSError as error:
            raise TransferError(f"cannot spool what comes: {error}") from error
        if self._progress:
            self._progress(self._came, 0)

    def is_whole(self) -> bool:
        """Tell whether the token came, behind all else."""
        return self._tail == self._token

    def _take(self, data: bytes) -> None:
        """Write all but the last bytes, which may be the token."""
        held = self._tail + data
        cut = max(len(held) - len(self._token), 0)
        self._out.write(held[:cut])
        self._tail = held[cut:]

    def _unzipped(self, unzip: zlib._Decompress, data: bytes) -> bytes:
        """Write what *data* hold, in pieces: a few bytes can hold gigabytes of zeros; give what stands behind."""
        while data and not unzip.eof:
            self._out.write(unzip.decompress(data, _READ))
            data = unzip.unconsumed_tail or unzip.unused_data
        return data


def retried(attempt: Callable[[], T], what: str, clock: Clock) -> T:
    """
    Call *attempt*, again after a stream that was cut or fell silent, and for a while if none can be opened.

    Raises:
        TransferError: three streams broke; or none could be opened within ``PATIENCE`` seconds.
    """
    broken, refused = 0, None
    while True:
        try:
            return attempt()
        except Broken as error:
            broken, refused = broken + 1, None
            if broken == ATTEMPTS:
                raise TransferError(f"{what} failed {ATTEMPTS} times; the last time: {error}") from error
            wait = 2.0 ** (broken - 1)
            logger.warning("%s: %s; trying again (%d of %d)", what, error, broken + 1, ATTEMPTS)
        except (Unreachable, ServerError) as error:
            refused = refused or _Refused(clock.now())
            wait = refused.next_pause(error.retry_after or 0.0)
            if clock.now() + wait > refused.since + PATIENCE:
                raise TransferError(f"{what} failed: {error}") from error
            logger.warning("%s: %s; trying again in %.1f s", what, error, wait)
        clock.sleep(wait)


@dataclass
class _Refused:
    """Since when no stream could be opened, in a row, and how long to wait until the next try."""

    since: float
    pause: float = FIRST_PAUSE

    def next_pause(self, asked: float) -> float:
        """Give the next pause, not shorter than what the server asks for; they grow."""
        pause, self.pause = self.pause, min(self.pause * 2, LONGEST_PAUSE)
        return max(pause, asked)


def _check(result: ExecResult, what: str) -> None:
    if result.exit_code:
        hint = " (killed: out of memory, or the pod was deleted)" if result.exit_code == 137 else ""
        raise TransferError(
            f"{what} failed with exit code {result.exit_code}{hint}: {result.said or 'nothing was said on stderr'}",
            exit_code=result.exit_code,
            stderr=result.said,
        )


def _is_complete(result: ExecResult) -> bool:
    """Tell whether an archive is whole: so it is if GNU tar only complains of files that changed meanwhile."""
    if result.exit_code != 1:
        return result.exit_code == 0
    lines = result.said.splitlines()
    return bool(lines) and all(line.endswith(_CHANGED) for line in lines)


def _shell(script: str, *arguments: str) -> list[str]:
    """Give the argv that runs *script*: what varies are its arguments, so nothing needs quotes."""
    return ["sh", "-c", script, "sh", *arguments]


def _preface(directories: Sequence[PurePosixPath]) -> bytes:
    """List the directories for the far side's loop, one a line, and an empty line."""
    return "\n".join([*map(escaped, directories), "", ""]).encode("utf-8", "surrogateescape")


def escaped(path: PurePosixPath | str) -> str:
    """Give *path* as one line, which ``printf %b`` makes the path again."""
    return str(path).replace("\\", r"\\").replace("\n", r"\n")


def _stdin(spool: IO[bytes], size: int, preface: bytes, progress: Progress | None) -> Iterator[bytes]:
    for start in range(0, len(preface), _FRAME):
        yield preface[start : start + _FRAME]
    spool.seek(0)
    sent = 0
    while sent < size:
        data = spool.read(_FRAME)
        sent += len(data)
        yield data
        if progress:
            progress(sent, size)


@contextmanager
def _spool(directory: Path) -> Iterator[IO[bytes]]:
    """Open a file without a name in *directory*: nothing is left of it, whatever ends us."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - opening alone may fail here
    except OSError as error:
        raise TransferError(f"cannot spool the archive in {directory}: {error}") from error
    with file:
        yield file


def _warn_if_big(packed: Packed) -> None:
    if packed.files >= MANY_FILES or packed.bytes >= MANY_BYTES:
        logger.warning("sending %d files, %.1f GiB: is all of it needed?", packed.files, packed.bytes / 1024**3)


def _far(api: KubeApi) -> bool:
    """Tell whether the server is on another machine, so that bytes are dearer than gzip's time."""
    host = urlsplit(api.server).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"
