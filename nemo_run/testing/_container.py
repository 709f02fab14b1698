"""
Runs containers: process trees with a root filesystem, processes and a network of their own.

A container is this machine as one workload may see it (see ``_rootfs``), started by ``_init``.
Everything lives in namespaces and dies with this process, so that nothing can be left behind.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nemo_run.exceptions import ConfigError
from nemo_run.testing._images import Images
from nemo_run.testing._process import CannotStart, Process, start
from nemo_run.testing._rootfs import Image, Mount, Step, plan

_ADVICE = (
    "containers need namespaces. Run as root (in a container: a privileged one), or let everyone make user namespaces:"
    " with sysctl set user.max_user_namespaces above 0 and, where the machine has them,"
    " kernel.unprivileged_userns_clone to 1 and kernel.apparmor_restrict_unprivileged_userns to 0"
)


@dataclass(frozen=True)
class User:
    """Whom a container's processes belong to, and what is taken from them."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    drop_all: bool = False
    no_new_privileges: bool = False


@dataclass(frozen=True)
class Command:
    """What to run in a container."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str = "/"
    user: User = User()


@dataclass(frozen=True)
class Rootfs:
    """What a container sees of the machine."""

    image: Image
    mounts: Sequence[Mount] = ()
    read_only: bool = False


@dataclass
class Container(Process):
    """A running container: its command is PID 1, and with it everything in it ends."""

    command: Command


@dataclass
class Network:
    """A network of its own, with nothing but ``lo``, shared by the containers of one workload."""

    _holder: Process
    hosts: Path
    _members: set[str] = field(default_factory=set)
    _names: dict[str, None] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Give the process whose namespaces containers join."""
        return self._holder.pid

    def add(self, pod: str, names: Sequence[str]) -> None:
        """Take a pod in, by its uid, and let *names* resolve from now on."""
        self._members.add(pod)
        self._names |= dict.fromkeys(names)
        self.write_hosts()

    def remove(self, pod: str) -> bool:
        """Take a pod out; tell if it was the last. Its names stay, since others may be about to look for it."""
        self._members.discard(pod)
        return not self._members

    async def close(self) -> None:
        """Let the network go once no container is in it any more."""
        if self._holder.stdin is not None:
            self._holder.stdin.close()
        self._holder.kill()
        await self._holder.wait()
        self.hosts.unlink(missing_ok=True)

    def write_hosts(self) -> None:
        """Write ``/etc/hosts`` in place: containers have this very file bound."""
        lines = ["127.0.0.1\tlocalhost", "::1\tlocalhost", *(f"127.0.0.1\t{name}" for name in self._names)]
        with self.hosts.open("r+" if self.hosts.exists() else "w") as file:
            file.write("\n".join(lines) + "\n")
            file.truncate()


class Runtime:
    """
    Starts networks, containers and further commands in them.

    As root containers have the uids of their pods. As anyone else (or with isolation
    ``"user"``) each network has a user namespace in which there is one uid, shown as root's.
    """

    def __init__(self, home: Path, images: Images, *, isolation: str = "auto") -> None:
        if isolation not in ("auto", "root", "user"):
            raise ConfigError("isolation", isolation, 'write "auto", "root" or "user"')
        if isolation == "root" and os.geteuid() != 0:
            raise ConfigError("isolation", isolation, "only root can do that; leave it at 'auto'")
        self.images = images
        self.user_namespace = isolation == "user" or os.geteuid() != 0
        self._fixed = isolation != "auto"
        self._stage = home / "root"
        self._networks = home / "networks"
        self._count = 0
        for directory in (self._stage, self._networks):
            directory.mkdir(parents=True, exist_ok=True)

    async def check(self) -> None:
        """
        Start and end a container that does nothing.

        Root that may not make namespaces as root (in a container, say) goes on as anyone else does.

        Raises:
            ConfigError: this machine does not let us; it says what to do.
        """
        while True:
            try:
                await self._try()
                return
            except CannotStart as error:
                if self.user_namespace or self._fixed:
                    raise ConfigError("isolation", self._shown, f"{error}; {_ADVICE}") from error
                self.user_namespace = True

    async def _try(self) -> None:
        network = await self.open_network()
        try:
            image = self.images.find("")
            container = await self.start(network, "check", Rootfs(image), Command(("true",), {"PATH": image.path}))
            await asyncio.gather(container.stdout.read(), container.wait())
        finally:
            await network.close()

    async def open_network(self) -> Network:
        """Make an empty network."""
        spec = {"do": "network", "user_namespace": self.user_namespace}
        holder = await start(spec, stdin=True, stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL)
        self._count += 1
        network = Network(holder, self._networks / f"hosts-{self._count}")
        network.write_hosts()
        return network

    async def start(self, network: Network, hostname: str, rootfs: Rootfs, command: Command) -> Container:
        """
        Start a container.

        Raises:
            CannotStart: its command is not in the image, or its root filesystem cannot be made.
        """
        spec = {
            **self._command(command),
            "do": "run",
            "network": network.pid,
            "stage": str(self._stage),
            "steps": self._steps(network, rootfs, command),
            "hostname": hostname,
        }
        process = await start(spec, stdin=False, stderr=asyncio.subprocess.STDOUT)
        return Container(process.pid, process._started, command)

    async def exec(self, container: Container, argv: Sequence[str], *, stdin: bool = False) -> Process:
        """
        Run one more command in a container, with its environment, working directory and user.

        Raises:
            CannotStart: the command is not there.
        """
        own = container.command
        command = Command(tuple(argv), own.env, own.cwd, own.user)
        spec = {**self._command(command), "do": "exec", "container": container.pid}
        return await start(spec, stdin=stdin, stderr=asyncio.subprocess.PIPE)

    def _command(self, command: Command) -> dict[str, Any]:
        user = command.user
        return {
            "user_namespace": self.user_namespace,
            "argv": list(command.argv),
            "env": dict(command.env),
            "cwd": command.cwd,
            "uid": user.uid,
            "gid": user.gid,
            "groups": list(user.groups),
            "drop_all": user.drop_all,
            "no_new_privileges": user.no_new_privileges,
        }

    def _steps(self, network: Network, rootfs: Rootfs, command: Command) -> list[Step]:
        return plan(
            rootfs.image,
            mounts=[Mount(network.hosts, "/etc/hosts", True), *rootfs.mounts],
            cwd=command.cwd,
            read_only=rootfs.read_only,
            only_root=self.user_namespace or command.user.uid == 0,
        )

    @property
    def _shown(self) -> str:
        return "user" if self.user_namespace else "root"
