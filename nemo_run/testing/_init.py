"""
What a container's process is before it is the container's command.

Run as a script by a bare interpreter, this makes namespaces, builds the root
filesystem and then becomes the command. It is started for every container and
every exec, so it imports nothing that is not compiled into the interpreter or
next to it.

Status goes to the descriptor given first: ``pid N``, and on failure ``error
TEXT``; the end of the stream without one means that the command runs.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import sys

TYPE_CHECKING = False  # importing `typing` or `signal` takes as long as all the rest
if TYPE_CHECKING:
    import signal as _signal
    from typing import Any
else:
    import _signal

libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
SYS_MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE = 442, -100, 0x8000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

OLD = "/.old"
"""Where the machine's own root is while the container's is being built."""
KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
"""What container runtimes leave to root: chown, dac_override … but not sys_admin."""
CANNOT_START = 128
"""The exit code of a container whose command could not be started (containerd's StartError)."""


def call(what: str, *arguments: Any) -> None:
    """Call libc's function *what*; raise OSError if it says -1."""
    if getattr(libc, what)(*arguments) == -1:
        number = ctypes.get_errno()
        shown = [what, *(argument.decode() for argument in arguments if argument and isinstance(argument, bytes))]
        raise OSError(number, f"{' '.join(shown)}: {os.strerror(number)}")


def told(error: OSError) -> bytes:
    """Give the status line of an error."""
    text = f"{error.filename}: {error.strerror}" if error.filename else str(error.args[-1])
    return f"error {text}".encode("utf-8", "replace")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount *source* on *target*."""
    call("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def make_read_only(path: str, *, below: bool) -> None:
    """Make the mount at *path* read-only, and with *below* all mounts under it."""
    attributes = (ctypes.c_uint64 * 4)(MS_RDONLY, 0, 0, 0)
    flags = AT_RECURSIVE if below else 0
    done = libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, path.encode(), flags, ctypes.byref(attributes), 32)
    if done == 0:
        return
    if ctypes.get_errno() != errno.ENOSYS:
        raise OSError(ctypes.get_errno(), f"cannot make {path} read-only")
    now = os.statvfs(path).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)  # Linux < 5.12: one mount at a time
    mount("", path, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | now)


def die_with_parent(alive: int) -> None:
    """
    Have the kernel kill this process when the thread that started it ends.

    *alive* is a pipe whose other end only the parent holds: it tells if that has ended already.
    """
    call("prctl", PR_SET_PDEATHSIG, int(_signal.SIGKILL), 0, 0, 0)
    os.set_blocking(alive, False)
    try:
        os.read(alive, 1)
    except BlockingIOError:
        return
    os._exit(137)


def enter(pid: int, *kinds: tuple[str, int]) -> None:
    """Join namespaces of process *pid*."""
    files = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), flag) for name, flag in kinds]
    for file, flag in files:
        call("setns", file, flag)
        os.close(file)


def new_user_namespace() -> None:
    """Become root of a new user namespace in which there is no other user."""
    uid, gid = os.getuid(), os.getgid()
    call("unshare", CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def raise_loopback() -> None:
    """Bring up ``lo`` in this network namespace."""
    import _socket
    import fcntl
    import struct

    endpoint = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM, 0)
    fcntl.ioctl(endpoint.fileno(), SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
    endpoint.close()


def mount_point(path: str, *, directory: bool) -> None:
    """Make sure that there is something at *path* to mount on."""
    if os.path.lexists(path):
        return
    if directory:
        os.makedirs(path)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def bind(source: str, path: str, read_only: bool) -> None:
    """Show the machine's *source* at *path*."""
    mount_point(path, directory=os.path.isdir(OLD + source))
    mount(OLD + source, path, flags=MS_BIND | MS_REC)
    if read_only:
        make_read_only(path, below=True)


def tmpfs(path: str, options: str) -> None:
    """Put an empty file system in memory at *path*."""
    mount_point(path, directory=True)
    mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options)


def proc(path: str) -> None:
    """Show this PID namespace's processes at *path*."""
    mount_point(path, directory=True)
    mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def devpts(path: str) -> None:
    """Give the container terminals of its own."""
    mount_point(path, directory=True)
    mount("devpts", path, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")


def directory(path: str, mode: int) -> None:
    """Make a directory, unless there is one."""
    if not os.path.isdir(path):
        os.makedirs(path)
        os.chmod(path, mode)


def link(path: str, target: str) -> None:
    """Make a symbolic link."""
    os.symlink(target, path)


def read_only(path: str) -> None:
    """Make the mount at *path* read-only, but none below it."""
    make_read_only(path, below=False)


STEPS = {step.__name__: step for step in (bind, tmpfs, proc, devpts, directory, link, read_only)}


def build_root(stage: str, steps: list[tuple[Any, ...]]) -> None:
    """Make a new root file system on the empty directory *stage* and move into it."""
    mount("", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", stage, "tmpfs", data="mode=755")
    os.mkdir(stage + OLD)
    call("pivot_root", stage.encode(), (stage + OLD).encode())
    os.chdir("/")
    last = [step for step in steps if step[0] == "read_only"]
    for name, *arguments in (step for step in steps if step[0] != "read_only"):
        STEPS[name](*arguments)
    call("umount2", OLD.encode(), MNT_DETACH)
    os.rmdir(OLD)
    for name, *arguments in last:
        STEPS[name](*arguments)


def limit_rights(spec: dict[str, Any]) -> None:
    """Take the container's uid, groups and what root is left with."""
    for capability in range(64):
        if capability not in KEPT_CAPABILITIES or spec["drop_all"]:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if not spec["user_namespace"]:
        os.setgroups(spec["groups"])
        os.setgid(spec["gid"])
        os.setuid(spec["uid"])
    if spec["no_new_privileges"]:
        call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def find(command: str, path: str) -> str:
    """Find *command* as a container runtime does, with its words if it is not there."""
    if "/" in command:
        if not os.path.exists(command):
            raise FileNotFoundError(f'exec: "{command}": stat {command}: no such file or directory')
        candidates = [command]
    else:
        candidates = [os.path.join(part, command) for part in path.split(":") if part]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    reason = "permission denied" if "/" in command else "executable file not found in $PATH"
    raise FileNotFoundError(f'exec: "{command}": {reason}')


def become(spec: dict[str, Any]) -> None:
    """Turn into the command."""
    for number in (_signal.SIGPIPE, _signal.SIGINT, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)  # the interpreter ignores these, and exec would pass that on
    os.setsid()
    if not spec["user_namespace"]:
        for stream in (0, 1, 2):
            os.fchown(stream, spec["uid"], spec["gid"])  # so that the command may open /dev/stdout
    limit_rights(spec)
    call("prctl", PR_SET_PDEATHSIG, int(_signal.SIGKILL), 0, 0, 0)  # again: a change of uid clears it
    os.chdir(spec["cwd"])
    environment = spec["env"]
    program = find(spec["argv"][0], environment.get("PATH", ""))
    os.execve(program, spec["argv"], environment)  # noqa: S606 - what a container does


def run_child(spec: dict[str, Any], status: int, alive: int, build: bool) -> None:
    """Be the process that becomes the command; never return."""
    try:
        die_with_parent(alive)
        if build:
            libc.sethostname(spec["hostname"].encode(), len(spec["hostname"].encode()))
            build_root(spec["stage"], spec["steps"])
        become(spec)
    except OSError as error:
        os.write(status, told(error))
    os._exit(CANNOT_START)


def wait_for(pid: int) -> int:
    """Wait for the child and give its end as an exit code."""
    _, status = os.waitpid(pid, 0)
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def fork_and_wait(spec: dict[str, Any], status: int, *, build: bool) -> int:
    """Start the child that becomes the command, name it, and wait for it."""
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        run_child(spec, status, alive, build)
    for stream in (0, 1, 2, alive):
        os.close(stream)
    os.write(status, f"pid {child}\n".encode())
    os.close(status)
    return wait_for(child)


def hold_network(spec: dict[str, Any], status: int) -> int:
    """Make a network namespace (and a user namespace, if asked) and keep them until stdin ends."""
    if spec["user_namespace"]:
        new_user_namespace()
    call("unshare", CLONE_NEWNET)
    raise_loopback()
    os.write(status, f"pid {os.getpid()}\n".encode())
    os.close(status)
    os.read(0, 1)
    return 0


def run(spec: dict[str, Any], status: int) -> int:
    """Start a container beside the process that holds its network."""
    user = [("user", CLONE_NEWUSER)] if spec["user_namespace"] else []
    enter(spec["network"], *user, ("net", CLONE_NEWNET))
    call("unshare", CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC)
    return fork_and_wait(spec, status, build=True)


def execute(spec: dict[str, Any], status: int) -> int:
    """Run one more command in a container."""
    user = [("user", CLONE_NEWUSER)] if spec["user_namespace"] else []
    kinds = [("net", CLONE_NEWNET), ("uts", CLONE_NEWUTS), ("ipc", CLONE_NEWIPC), ("pid", CLONE_NEWPID)]
    enter(spec["container"], *user, *kinds, ("mnt", CLONE_NEWNS))
    return fork_and_wait(spec, status, build=False)


def main(status: int, given: int, alive: int) -> int:
    """Do what the description on descriptor *given* says."""
    die_with_parent(alive)
    os.close(alive)
    os.umask(0o022)
    os.set_inheritable(status, False)
    with os.fdopen(given, "rb") as file:
        spec = marshal.loads(file.read())  # noqa: S302 - our own parent wrote it
    try:
        return {"network": hold_network, "run": run, "exec": execute}[spec["do"]](spec, status)
    except OSError as error:
        os.write(status, told(error))
        return CANNOT_START


if __name__ == "__main__":
    os._exit(main(*(int(argument) for argument in sys.argv[1:])))
