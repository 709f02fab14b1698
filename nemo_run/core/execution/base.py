"""What every executor is, the macros it may offer, and executors kept in a file."""

from __future__ import annotations

import copy
import dataclasses
import errno
import getpass
import importlib.util
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from nemo_run.config import ConfigurableMixin, get_nemorun_home
from nemo_run.core._masking import masked
from nemo_run.core.execution.launcher import LAUNCHER_MAP, Launcher
from nemo_run.core.packaging.base import Packager
from nemo_run.exceptions import ConfigError

if TYPE_CHECKING:
    from typing_extensions import Self

_Role = TypeVar("_Role")


def current_user() -> str:
    """Give the name of who runs this; ``uid-<n>`` where the machine has no name for the uid."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):
        return f"uid-{os.getuid()}"


@dataclass(kw_only=True)
class ExecutorMacros(ConfigurableMixin):
    """Names of the variables that tell a node's place; its constants stand for them in arguments and env values."""

    HEAD_NODE_IP_VAR = "${head_node_ip_var}"
    NPROC_PER_NODE_VAR = "${nproc_per_node_var}"
    NUM_NODES_VAR = "${num_nodes_var}"
    NODE_RANK_VAR = "${node_rank_var}"
    FT_LAUNCHER_CFG_PATH_VAR = "${ft_launcher_cfg_path_var}"

    head_node_ip_var: str
    nproc_per_node_var: str
    num_nodes_var: str
    node_rank_var: str
    het_group_host_var: str
    ft_launcher_cfg_path_var: str = "FAULT_TOL_CFG_PATH"

    @staticmethod
    def group_host(index: int) -> str:
        """Give what stands for the host of the heterogeneous job's group *index*."""
        return f"$$${{het_group_host_var}}_{index}"

    def apply(self, role: _Role) -> _Role:
        """Give a copy of *role*, which has ``args`` and ``env``, with the macros replaced in both."""
        changed: Any = copy.deepcopy(role)
        changed.args = [self.substitute(arg) for arg in changed.args]
        changed.env = {name: self.substitute(value) for name, value in changed.env.items()}
        return changed  # type: ignore[no-any-return]

    def substitute(self, arg: str) -> str:
        """Give *arg* with each macro replaced by its variable's name, and nothing else touched."""
        names: dict[str, str] = asdict(self)
        macro = re.compile(r"(\$\$)?\$\{(" + "|".join(names) + r")\}")
        return macro.sub(lambda match: ("$" if match[1] else "") + names[match[2]], arg)


@runtime_checkable
class LogSupportedExecutor(Protocol):
    """An executor that can show a job's logs by itself."""

    @classmethod
    def logs(cls, app_id: str, fallback_path: str | None) -> None:
        """Show the logs of *app_id*, or what is in *fallback_path*."""


@dataclass(kw_only=True, repr=False)
class Executor(ConfigurableMixin):
    """
    Where and how a job runs: a value, inert until a job is submitted.

    Building, cloning, printing and saving one needs no network. Fields may be
    changed until then, and attributes that are no fields may be set; a clone has
    them all. Use a subclass.
    """

    packager: Packager = field(default_factory=Packager)
    """Packs the code that the job needs."""
    launcher: Launcher | str | None = None
    """What runs the command on each node: a launcher, or ``"torchrun"`` and the like."""
    env_vars: dict[str, str] = field(default_factory=dict)
    """Environment variables of the job."""
    retries: int = 0
    """How often a failed job is started again; on Kubeflow Trainer the job is only told of it."""
    experiment_id: str | None = None
    """The experiment's id; set by the experiment."""
    job_dir: str = ""
    """Where the job's files are on this machine; set by the experiment."""
    experiment_dir: str = field(init=False, default="")
    """Where the experiment's files are on this machine; set by the experiment."""
    _launcher_setup: bool = field(init=False, default=False)

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        text = ", ".join(f"{name}={value!r}" for name, value in masked(shown, secrets=self.secret_values()).items())
        return f"{type(self).__qualname__}({text})"

    def secret_values(self) -> list[str]:
        """Give values that are to be masked wherever they stand, besides those whose names say that they are secret."""
        return []

    def info(self) -> str:
        """Give the name that tables show for this executor."""
        return self.__class__.__qualname__

    def clone(self) -> Self:
        """
        Give an executor that is equal and shares no list, dict or set with this one.

        Attributes that are no fields go with it; what the experiment assigned
        beyond fields of ``__init__`` does not.
        """
        import fiddle as fdl

        from nemo_run._buildables import Config, as_config

        built: Self = fdl.build(self.to_config())
        own = {field.name for field in dataclasses.fields(self)}
        foreign = {name: value for name, value in vars(self).items() if name not in own and not name.startswith("_")}
        vars(built).update(fdl.build(Config(dict, bind_args=False, **as_config(foreign))))
        return built

    def get_launcher(self) -> Launcher:
        """
        Give the launcher; a name is replaced by the launcher that it stands for, None by one that does nothing.

        Raises:
            ConfigError: there is no launcher of that name.
        """
        if not self._launcher_setup or isinstance(self.launcher, str):
            self._setup_launcher()
            self._launcher_setup = True
        if self.launcher is None:
            self.launcher = Launcher()
        if not isinstance(self.launcher, Launcher):
            raise ConfigError("launcher", self.launcher, f"give a Launcher or one of {', '.join(sorted(LAUNCHER_MAP))}")
        return self.launcher

    def _setup_launcher(self) -> None:
        """Replace a launcher's name by the launcher."""
        if isinstance(self.launcher, str) and self.launcher:
            if self.launcher not in LAUNCHER_MAP:
                names = ", ".join(sorted(LAUNCHER_MAP))
                raise ConfigError("launcher", self.launcher, f"there is no launcher of that name; there are {names}")
            self.launcher = LAUNCHER_MAP[self.launcher]()
        self.launcher = self.launcher or None

    def assign(self, exp_id: str, exp_dir: str, task_id: str, task_dir: str) -> None:
        """Take a job of an experiment; called by the experiment on its clone."""
        raise NotImplementedError

    def nnodes(self) -> int:
        """Give the number of nodes."""
        raise NotImplementedError

    def nproc_per_node(self) -> int:
        """Give the number of processes on each node."""
        raise NotImplementedError

    def macro_values(self) -> ExecutorMacros | None:
        """Give the names of the variables that tell a node's place; None if this executor has none."""
        return None

    def get_launcher_prefix(self) -> list[str] | None:
        """Give what goes before the command, such as a profiler's arguments; None if nothing does."""
        launcher = self.get_launcher()
        if not launcher.nsys_profile:
            return None
        os.makedirs(os.path.join(self.job_dir, launcher.nsys_folder), exist_ok=True)
        return launcher.get_nsys_prefix(profile_dir=self.job_dir)

    def get_nsys_entrypoint(self) -> tuple[str, str]:
        """Give the profiler's program and what closes its command line."""
        return ("nsys", "")

    def supports_launcher_transform(self) -> bool:
        """Tell whether a launcher may replace the command by a script."""
        return False

    def package_configs(self, *cfgs: tuple[str, str]) -> list[str]:
        """Write each (name, text) below ``<job_dir>/configs``, for this user's eyes only, and give the paths."""
        return [write_private(Path(self.job_dir, "configs", name), text) for name, text in cfgs]

    def path_in_job(self, path: str) -> str | None:
        """Give where the job finds *path*, a file below ``job_dir``; None where it is sent no files."""
        return path

    def create_job_dir(self) -> None:
        """Make the job's directory on this machine."""
        os.makedirs(self.job_dir, exist_ok=True)

    def cleanup(self, handle: str) -> None:
        """Clean up after the job *handle* has ended."""


def write_private(path: Path, text: str) -> str:
    """Write *text* for this user's eyes only, since it can hold env values, and give the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        os.chmod(path, 0o600)  # an older file keeps its mode on open
        file.write(text)
    return str(path)


def import_executor(name: str, file_path: str | None = None, call: bool = True, **kwargs: Any) -> Executor:
    """
    Give the executor *name* out of a Python file, by default ``$NEMORUN_HOME/executors.py``.

    The file has it as an attribute or in a dict ``EXECUTOR_MAP``: an executor, or
    a function that makes one. Functions are called with *kwargs*, unless *call* is false.

    Raises:
        ConfigError: the file has nothing of that name.
        FileNotFoundError: there is no such file.
    """
    path = file_path or os.path.join(get_nemorun_home(), "executors.py")
    spec = importlib.util.spec_from_file_location("executors", path)
    if spec is None or spec.loader is None:
        raise ConfigError("file_path", path, "executors are kept in a Python file, NAME.py")
    if not os.path.exists(path):
        hint = "no such file; write executors into it, or give file_path="
        raise FileNotFoundError(errno.ENOENT, hint, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    known = {**getattr(module, "EXECUTOR_MAP", {}), **vars(module)}
    if name not in known:
        names = sorted(key for key in known if not key.startswith("_") and key != "EXECUTOR_MAP")
        raise ConfigError("name", name, f"{path} has no executor of that name; it has {', '.join(names)}")
    found = known[name]
    return found(**kwargs) if call and callable(found) else found  # type: ignore[no-any-return]
