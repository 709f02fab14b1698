"""
The script that launched a job, loaded again where the job runs.

A task may use what that script defines: to its serialised config this is of the
module ``__main__``, and in the job another program has that name.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

from nemo_run.exceptions import ConfigError, ExperimentError

_IMPORTED = "__mp_main__"
"""What a main script calls itself while it is imported, as in Python's own multiprocessing."""

_NAMES = ("__main__", _IMPORTED, "__external_main__")
"""What serialised configs call it; the last is NeMo-Run's."""

_MENTION = re.compile(rf'"module":\s*"(?:{"|".join(_NAMES)})"')

_loading = False


def mentions_main(config: str) -> bool:
    """Tell whether *config*, as fiddle's JSON, uses something that the launching script defines."""
    return bool(_MENTION.search(config))


def check_may_launch() -> None:
    """
    Check that this is not a job which is about to load the script that launched it.

    Raises:
        ExperimentError: it is, and would launch itself again.
    """
    if _loading:
        raise ExperimentError("a job loads the script that launched it, which must not launch it again by that")


def main_source() -> str:
    """Give the text of this process's main script; nothing where it has none, as an interactive session has not."""
    try:
        return inspect.getsource(sys.modules["__main__"])
    except (KeyError, TypeError, OSError):
        return ""


def load_main(path: Path) -> ModuleType:
    """
    Run the script at *path* as an import does, and be ``__main__`` in this process from now on.

    What stands below ``if __name__ == "__main__"`` does not run. New processes of
    :mod:`multiprocessing` load it too, so its functions can be sent to them.

    Raises:
        ConfigError: it cannot be loaded; its own error is the cause.
    """
    global _loading
    spec = importlib.util.spec_from_file_location(_IMPORTED, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = {name: sys.modules.get(name) for name in _NAMES}
    sys.modules.update(dict.fromkeys(_NAMES, module))
    _loading = True
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.update({name: old for name, old in before.items() if old})
        raise ConfigError("__main__", str(path), _HINT.format(error=repr(error))) from error
    finally:
        _loading = False
    # By its file, not its name, is how multiprocessing is to load it.
    module.__spec__ = None
    return module


_HINT = (
    "the script that launched this job defines what the task uses, and cannot be loaded where the job runs: {error};"
    ' put what belongs to launching below `if __name__ == "__main__":`, or the task into a module of its own'
)
