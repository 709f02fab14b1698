"""What a job is made of: executors, packagers, serialisers, runners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemo_run._lazy import lazy_attributes

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_attributes(
        __name__, {}, ("execution", "packaging", "runners", "serialization", "tunnel")
    )
