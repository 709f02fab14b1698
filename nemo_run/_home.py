"""Where nemo_run keeps its state unless told otherwise: the only reader of ``NEMORUN_HOME``."""

from __future__ import annotations

import os

VARIABLE = "NEMORUN_HOME"
DEFAULT = "~/.nemo_run"


def default_home() -> str:
    """
    Give the directory that the environment names now, else ``~/.nemo_run``.

    Read on each call: a script may set the variable after ``import nemo_run``.
    """
    return os.path.expanduser(os.environ.get(VARIABLE) or DEFAULT)
