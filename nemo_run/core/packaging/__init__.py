"""Packagers: how the code that a job needs becomes one archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_run._lazy import lazy_attributes

if TYPE_CHECKING:
    from nemo_run.core.packaging.base import Packager as Packager
    from nemo_run.core.packaging.git import GitArchivePackager as GitArchivePackager
    from nemo_run.core.packaging.hybrid import HybridPackager as HybridPackager
    from nemo_run.core.packaging.pattern import PatternPackager as PatternPackager
else:
    __getattr__, __dir__ = lazy_attributes(
        __name__,
        {
            "GitArchivePackager": "nemo_run.core.packaging.git",
            "HybridPackager": "nemo_run.core.packaging.hybrid",
            "Packager": "nemo_run.core.packaging.base",
            "PatternPackager": "nemo_run.core.packaging.pattern",
        },
    )

__all__ = ["GitArchivePackager", "HybridPackager", "Packager", "PatternPackager"]
