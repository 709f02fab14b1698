"""Serialise tasks as programs written for NeMo-Run do."""

from __future__ import annotations

from typing import Any

from nemo_run.core.serialization.zlib_json import ZlibJSONSerializer


def _serialize(buildable: Any, serializer_cls: type[Any] = ZlibJSONSerializer) -> str:
    """Give *buildable* as text."""
    text: str = serializer_cls().serialize(buildable)
    return text
