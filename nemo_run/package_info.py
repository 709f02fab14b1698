"""What this distribution is called, and its version."""

from __future__ import annotations

MAJOR = 0
MINOR = 13
PATCH = 0
PRE_RELEASE = ""

VERSION = (MAJOR, MINOR, PATCH, PRE_RELEASE)

__shortversion__ = f"{MAJOR}.{MINOR}.{PATCH}"
__version__ = f"{__shortversion__}{PRE_RELEASE}"
__package_name__ = "nemo_run"
__description__ = "Configure, launch and follow training and Ray jobs on Kubernetes from Python"
__license__ = "Apache-2.0"
