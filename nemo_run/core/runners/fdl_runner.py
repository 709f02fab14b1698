"""
The program that runs a task in its job.

::

    python -m nemo_run.core.runners.fdl_runner [--dryrun] [-n NAME] [-p PACKAGER] TASK

TASK and PACKAGER are serialised configs, or files that hold one. Where the task
uses what the script that launched it defines, that script is ``__main__.py`` two
directories above the one that TASK lies in. All of this is as in NeMo-Run: jobs
that it sent run here, and ours run there.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nemo_run.core.runners._main_script import load_main, mentions_main
from nemo_run.exceptions import ConfigError, ExperimentError


def main(argv: Sequence[str] | None = None) -> None:
    """Run the task that the arguments name; what it raises ends the process, as does a script that would launch it."""
    import fiddle as fdl

    given = _arguments(argv)
    if given.package_cfg:
        fdl.build(_config("package_cfg", given.package_cfg)).setup()
    try:
        task = _task(given.task)
    except ConfigError as error:
        if isinstance(error.__context__, ExperimentError):
            raise SystemExit(str(error)) from None
        raise
    if given.dryrun:
        _show(task)
    function = fdl.build(task)
    if not given.dryrun:
        function()


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m nemo_run.core.runners.fdl_runner", description="Run a task in its job.", allow_abbrev=False
    )
    parser.add_argument("--dryrun", action="store_true", help="show what the task would be called with")
    parser.add_argument("-n", "--name", default="run", help="the job's name")
    parser.add_argument("-p", "--package-cfg", help="a serialised packager, or a file that holds it; set up first")
    parser.add_argument("task", help="a serialised task, or a file that holds it")
    # NeMo-Run's runner takes, and ignores, whatever else it is given.
    return parser.parse_known_args(argv)[0]


def _task(text_or_path: str) -> Any:
    """
    Give the task as a Partial, having loaded the script that it needs.

    Raises:
        ConfigError: there is no task in it, or what the task uses is not here.
    """
    import fiddle as fdl

    from nemo_run.config import Partial
    from nemo_run.core.serialization.zlib_json import unpacked

    script = Path(text_or_path).parent.parent.parent / "__main__.py"
    if os.path.isfile(text_or_path) and script.is_file() and mentions_main(unpacked(_text("task", text_or_path))):
        load_main(script)
    return fdl.cast(Partial, _config("task", text_or_path))


def _config(argument: str, text_or_path: str) -> Any:
    from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer

    try:
        return ZlibJSONSerializer().deserialize(_text(argument, text_or_path))
    except (ImportError, AttributeError) as error:
        hint = f"{str(error).splitlines()[0]}; what a task uses must be in the image, or among the files sent along"
        if "_main__'" in hint:
            hint += ', and in a script not below `if __name__ == "__main__":`'
        raise ConfigError(argument, _shown(text_or_path), hint) from error


def _text(argument: str, text_or_path: str) -> str:
    if os.path.isfile(text_or_path):
        return Path(text_or_path).read_text()
    if "/" in text_or_path:
        raise ConfigError(argument, _shown(text_or_path), "there is no such file, and it is no serialised config")
    return text_or_path


def _shown(text_or_path: str) -> str:
    return text_or_path if len(text_or_path) < 200 else f"{text_or_path[:40]}…"


def _show(task: Any) -> None:
    function = task.__fn_or_cls__
    print(f"Dry run for task {function.__module__}:{function.__qualname__}")
    for name, value in task.__arguments__.items():
        print(f"  {name} = {value!r}")


if __name__ == "__main__":
    main()
