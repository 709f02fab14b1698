"""Containers: what a process in one sees, what it can do, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from nemo_run.exceptions import ConfigError
from nemo_run.testing._container import Command, Network, Rootfs, Runtime, User
from nemo_run.testing._images import Images
from nemo_run.testing._process import CannotStart
from nemo_run.testing._rootfs import Mount
from nemo_run.testing._sweep import sweep

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="about uids, of which only root can give several")


ROOT_USER = User()


class Bench:
    """A runtime with one network."""

    def __init__(self, home: Path, network: Network, runtime: Runtime) -> None:
        self.home = home
        self.network = network
        self.runtime = runtime

    async def run(
        self,
        *argv: str,
        mounts: tuple[Mount, ...] = (),
        image: str = "any",
        cwd: str = "/",
        read_only: bool = False,
        user: User = ROOT_USER,
        network: Network | None = None,
        **env: str,
    ) -> tuple[int, str]:
        """Run a container to its end; give its exit code and output."""
        found = self.runtime.images.find(image)
        command = Command(argv, {"PATH": found.path, **env}, cwd, user)
        rootfs = Rootfs(found, mounts, read_only)
        container = await self.runtime.start(network or self.network, "box", rootfs, command)
        output = await container.stdout.read()
        return await container.wait(), output.decode()

    async def shell(self, script: str, **options: object) -> tuple[int, str]:
        return await self.run("sh", "-c", script, **options)  # type: ignore[arg-type]


def bench(
    home: Path, test: Callable[[Bench], Awaitable[None]], isolation: str = "auto", images: dict[str, str] | None = None
) -> None:
    """Run *test* with a runtime that is cleaned up."""

    async def main() -> None:
        runtime = Runtime(home, Images(home, images or {"alpine*": "busybox"}), isolation=isolation)
        network = await runtime.open_network()
        try:
            await test(Bench(home, network, runtime))
        finally:
            await network.close()

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.fixture(params=["auto", "user"] if ROOT else ["auto"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_command_is_the_first_process_and_sees_no_other(tmp_path, isolation):
    async def test(box: Bench) -> None:
        code, output = await box.run("sh", "-c", "set -- $$ /proc/[0-9]*; echo $*; hostname; id -u")
        assert (code, output.split()) == (0, ["1", "/proc/1", "box", "0"])

    bench(tmp_path, test, isolation)


def test_the_machine_is_read_only_but_for_what_is_the_containers_own(tmp_path, isolation):
    async def test(box: Bench) -> None:
        script = """
            for directory in /usr /etc /var/lib /tmp /run /dev/shm /; do
                touch $directory/nemo-run-probe 2>/dev/null && echo "$directory writable" || echo "$directory not"
            done
        """
        _, output = await box.shell(script)
        assert output.splitlines() == [
            *("/usr not", "/etc not", "/var/lib not"),
            *("/tmp writable", "/run writable", "/dev/shm writable", "/ writable"),
        ]

    bench(tmp_path, test, isolation)
    assert not [place for place in ("/usr", "/etc", "/tmp", "/") if Path(place, "nemo-run-probe").exists()]


def test_a_read_only_root_filesystem_has_no_writable_place_but_its_volumes(tmp_path, isolation):
    data = tmp_path / "data"
    data.mkdir()

    async def test(box: Bench) -> None:
        script = "touch /tmp/a || touch /b || touch /run/c || touch /work/d && echo done"
        _, output = await box.shell(script, read_only=True, mounts=(Mount(data, "/work"),))
        assert output.splitlines()[-1] == "done"

    bench(tmp_path, test, isolation)
    assert [path.name for path in data.iterdir()] == ["d"]


def test_volumes_are_directories_of_the_machine(tmp_path, isolation):
    """Wherever they are mounted: below the machine's own directories and in each other, too."""
    for name in ("outer", "inner", "fixed"):
        (tmp_path / name).mkdir()
    (tmp_path / "fixed" / "seen").write_text("seen\n")
    mounts = (
        Mount(tmp_path / "inner", "/usr/share/nemo-run/deep/inner"),
        Mount(tmp_path / "outer", "/usr/share/nemo-run/deep"),
        Mount(tmp_path / "fixed", "/mnt/fixed", True),
    )

    async def test(box: Bench) -> None:
        script = """
            cd /usr/share/nemo-run/deep && echo o > o && echo i > inner/i && pwd
            cat /mnt/fixed/seen; touch /mnt/fixed/new 2>/dev/null || echo refused; ls -d /usr/share/doc
        """
        _, output = await box.shell(script, mounts=mounts)
        assert output.split() == ["/usr/share/nemo-run/deep", "seen", "refused", "/usr/share/doc"]

    bench(tmp_path, test, isolation)
    assert (tmp_path / "outer" / "o").read_text() == "o\n"
    assert (tmp_path / "inner" / "i").read_text() == "i\n"
    assert not (tmp_path / "fixed" / "new").exists()


def test_a_link_on_a_volume_leads_nowhere_outside_the_container(tmp_path, isolation):
    """A mount point below an absolute link is made in the container, never on the machine."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "out").symlink_to(tmp_path / "machine")
    (tmp_path / "machine").mkdir()
    mounts = (Mount(tmp_path / "volume", "/work"), Mount(tmp_path / "volume", "/work/out/point"))

    async def test(box: Bench) -> None:
        with contextlib.suppress(CannotStart):
            await box.shell("true", mounts=mounts)

    bench(tmp_path, test, isolation)
    assert list((tmp_path / "machine").iterdir()) == []


def test_a_missing_working_directory_is_made(tmp_path, isolation):
    async def test(box: Bench) -> None:
        assert await box.run("pwd", cwd="/opt/app/src") == (0, "/opt/app/src\n")

    bench(tmp_path, test, isolation)


def test_python_is_the_interpreter_that_runs_us(tmp_path, isolation):
    async def test(box: Bench) -> None:
        code = "import sys; print(sys.executable, sys.prefix, sep='\\n')"
        assert await box.run("python", "-c", code) == (0, f"{sys.executable}\n{sys.prefix}\n")

    bench(tmp_path, test, isolation)


def test_an_image_can_be_another_environment_of_this_machine(tmp_path, isolation):
    """What that has installed is what the container runs; what it lacks are the stand-ins."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "own"], check=True)
    (packages,) = (tmp_path / "own/lib").glob("python3*/site-packages")
    (packages / "ray").mkdir()
    (packages / "ray/__init__.py").write_text("")
    (tmp_path / "own/bin/ray").write_text("#!/bin/sh\necho the real one\n")
    (tmp_path / "own/bin/ray").chmod(0o755)

    async def test(box: Bench) -> None:
        script = "python -c 'import ray, sys; print(sys.prefix)'; ray start; command -v torchrun"
        _, output = await box.shell(script, image="rayproject/ray:2.60.0")
        assert output.splitlines() == [str(tmp_path / "own"), "the real one", "/run/local-kube/bin/torchrun"]
        assert (await box.shell("command -v ray"))[1] == "/run/local-kube/bin/ray\n"

    bench(tmp_path, test, isolation, {"rayproject/*": str(tmp_path / "own/bin/python")})


def test_busybox_images_have_nothing_but_busybox(tmp_path, isolation):
    async def test(box: Bench) -> None:
        script = "command -v tar; command -v python || command -v bash || echo none; ls /"
        _, output = await box.shell(script, image="alpine:3.19")
        lines = output.split()
        assert lines[:2] == ["/bin/tar", "none"]
        assert not {"home", "usr", "opt"} & set(lines)

    bench(tmp_path, test, isolation)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -9 $$; exit 5", 5), ("exec sh -c 'ulimit -c 0; exit 7'", 7)],
)
def test_exit_codes_are_the_commands_own(tmp_path, script, code):
    """The first process ignores signals without a handler, as PID 1 does everywhere."""

    async def test(box: Bench) -> None:
        assert (await box.shell(script))[0] == code

    bench(tmp_path, test)


def test_killing_ends_the_whole_tree(tmp_path, isolation):
    async def test(box: Bench) -> None:
        image = box.runtime.images.find("any")
        command = Command(("sh", "-c", "sleep 600 & sleep 600 & echo started; wait"), {"PATH": image.path})
        container = await box.runtime.start(box.network, "box", Rootfs(image), command)
        assert await container.stdout.readline() == b"started\n"
        container.kill()
        assert await container.stdout.read() == b""
        assert await container.wait() == 137

    bench(tmp_path, test, isolation)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-command", 'exec: "no-such-command": executable file not found in $PATH'),
        ("/no/such", 'exec: "/no/such": stat /no/such: no such file or directory'),
        ("/etc/passwd", 'exec: "/etc/passwd": permission denied'),
    ],
)
def test_a_command_that_is_not_there_is_told_in_the_runtimes_words(tmp_path, command, message):
    async def test(box: Bench) -> None:
        with pytest.raises(CannotStart) as refused:
            await box.run(command)
        assert str(refused.value) == message

    bench(tmp_path, test)


def test_the_environment_is_the_commands_own(tmp_path):
    """Not this process's, and bytes that are no text stay."""

    async def test(box: Bench) -> None:
        odd = " two  spaces \n'quotes\" $HOME é \udcff "
        code = "import os, sys; sys.stdout.buffer.write(os.fsencode(os.environ['ODD'])); print(sorted(os.environ))"
        image = box.runtime.images.find("any")
        command = Command(("python", "-c", code), {"PATH": image.path, "ODD": odd, "LC_ALL": "C.UTF-8"})
        container = await box.runtime.start(box.network, "box", Rootfs(image), command)
        output = await container.stdout.read()
        await container.wait()
        assert output.startswith(os.fsencode(odd))
        assert b"PYTEST" not in output

    bench(tmp_path, test)


def test_containers_of_one_network_find_each_other_and_no_one_else(tmp_path, isolation):
    serve = """
import socket
server = socket.create_server(("0.0.0.0", 29500))
print("listening", flush=True)
connection, _ = server.accept()
connection.sendall(b"hello")
"""
    ask = "import socket; print(socket.create_connection(('master.job', 29500), 5).recv(5).decode())"

    async def test(box: Bench) -> None:
        box.network.add("uid", ["master", "master.job"])
        other = await box.runtime.open_network()
        other.add("uid", ["master.job"])
        image = box.runtime.images.find("any")
        command = Command(("python", "-c", serve), {"PATH": image.path})
        server = await box.runtime.start(box.network, "master", Rootfs(image), command)
        assert await server.stdout.readline() == b"listening\n"
        code, output = await box.run("python", "-c", ask, network=other)
        assert (code, output.splitlines()[-1]) == (1, "ConnectionRefusedError: [Errno 111] Connection refused")
        assert await box.run("python", "-c", ask) == (0, "hello\n")
        assert await server.wait() == 0
        await other.close()

    bench(tmp_path, test, isolation)


def test_a_further_command_shares_the_container(tmp_path, isolation):
    async def test(box: Bench) -> None:
        image = box.runtime.images.find("any")
        command = Command(("sh", "-c", "echo here > /tmp/f; echo; sleep 600"), {"PATH": image.path, "A": "b"}, "/tmp")
        container = await box.runtime.start(box.network, "box", Rootfs(image), command)
        await container.stdout.readline()
        script = "pwd; cat f; echo $A; cat /proc/1/comm; head -c 5; echo oops >&2; exit 3"
        process = await box.runtime.exec(container, ["sh", "-c", script], stdin=True)
        assert process.stdin is not None
        process.stdin.write(b"12345")
        assert await process.stdout.read() == b"/tmp\nhere\nb\nsh\n12345"
        assert await process.stderr.read() == b"oops\n"
        assert await process.wait() == 3
        process.stdin.close()
        with pytest.raises(CannotStart, match="executable file not found"):
            await box.runtime.exec(container, ["no-such-command"])
        container.kill()
        await asyncio.gather(container.stdout.read(), container.wait())

    bench(tmp_path, test, isolation)


@needs_root
@pytest.mark.root
def test_another_user_has_its_own_rights_and_none_of_roots(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)

    async def test(box: Bench) -> None:
        user = User(1000, 1000, (1000, 2000))
        script = "id -u; id -G; touch /work/f 2>&1; grep CapEff /proc/self/status; echo err > /dev/stderr"
        _, output = await box.shell(script, user=user, mounts=(Mount(data, "/work"),))
        assert output.splitlines() == [
            *("1000", "1000 2000", "touch: cannot touch '/work/f': Permission denied"),
            *("CapEff:\t0000000000000000", "err"),
        ]
        assert await box.run("python", "-c", "import aiohttp; print(1)", user=user) == (0, "1\n")

    bench(tmp_path, test)


@needs_root
@pytest.mark.root
def test_root_in_a_container_may_chown_but_not_mount(tmp_path):
    async def test(box: Bench) -> None:
        script = (
            "touch /tmp/f && chown 1000 /tmp/f && stat -c %u /tmp/f; mount -o remount,rw /usr 2>/dev/null || echo no"
        )
        assert await box.shell(script) == (0, "1000\nno\n")

    bench(tmp_path, test)


OWNER = """
import asyncio, sys
from pathlib import Path
from nemo_run.testing._container import Command, Rootfs, Runtime
from nemo_run.testing._images import Images

async def main():
    home = Path(sys.argv[1])
    runtime = Runtime(home, Images(home, {}), isolation=sys.argv[2])
    network = await runtime.open_network()
    image = runtime.images.find("")
    command = Command(("sh", "-c", f"sleep 600.{sys.argv[3]} & echo; wait"), {"PATH": image.path})
    container = await runtime.start(network, "box", Rootfs(image), command)
    await container.stdout.readline()
    process = await runtime.exec(container, ["sleep", f"600.{sys.argv[3]}"])
    print("running", flush=True)
    await container.wait()

asyncio.run(main())
"""


def _running(marker: str) -> list[str]:
    """Give the command lines of all processes that have *marker* in them."""
    lines = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if marker in line:
                lines.append(line)
    return lines


def test_nothing_outlives_a_killed_owner(tmp_path, isolation):
    marker = f"{os.getpid()}{time.time_ns()}"
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), isolation, marker], stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "running\n"
        assert len(_running(f"600.{marker}")) >= 3
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
    deadline = time.monotonic() + 120
    while left := [line for line in _running(marker) if "600." in line]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_the_sweep_ends_what_shows_a_home_and_nothing_else(tmp_path):
    async def test(box: Bench) -> None:
        image = box.runtime.images.find("any")
        command = Command(("sleep", "600"), {"PATH": image.path})
        container = await box.runtime.start(box.network, "box", Rootfs(image), command)
        assert sweep(tmp_path / "another") == []
        assert sweep(box.home)
        await container.stdout.read()
        assert await container.wait() == 137

    bench(tmp_path, test)


def test_a_machine_without_user_namespaces_is_told_what_to_do(tmp_path):
    """A user namespace in which no further one may be made stands in for such a machine."""
    code = """
import asyncio, sys
from pathlib import Path
from nemo_run.testing._container import Runtime
from nemo_run.testing._images import Images
home = Path(sys.argv[1])
try:
    asyncio.run(Runtime(home, Images(home, {}), isolation="user").check())
except Exception as error:
    print(type(error).__name__, error)
"""
    script = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh", sys.executable, "-c", code]
    told = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert told.startswith(
        "ConfigError isolation='user': unshare: No space left on device; containers need namespaces."
    )
    assert "user.max_user_namespaces above 0" in told


@pytest.mark.parametrize("value", ["none", "ROOT"])
def test_an_unknown_isolation_is_refused(tmp_path, value):
    with pytest.raises(ConfigError, match='write "auto", "root" or "user"'):
        Runtime(tmp_path, Images(tmp_path, {}), isolation=value)


@pytest.mark.parametrize("value", ["alpine", "bin/python", "/etc/passwd"])
def test_images_are_busybox_a_directory_or_a_python(tmp_path, value):
    with pytest.raises(ConfigError, match='write "busybox", or the absolute path of a directory or of a python'):
        Images(tmp_path, {"x": value})


def test_a_program_that_is_no_python_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no python that works"):
        Images(tmp_path, {"x": "/bin/false"})
