"""Configs as one line of text: fiddle's JSON, compressed, in URL-safe base64."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any

from fiddle._src import daglish
from fiddle._src.experimental import serialization

from nemo_run.core.serialization._refusal import refusal
from nemo_run.core.serialization._values import restored, stand_in
from nemo_run.exceptions import ConfigError

_REFUSALS = (serialization.UnserializableValueError, serialization.PyrefPolicyError, ImportError, AttributeError)


class ZlibJSONSerializer:
    """Turns configs into one line of text and back; it and NeMo-Run's read each other's."""

    def serialize(self, cfg: Any, pyref_policy: serialization.PyrefPolicy | None = None) -> str:
        """
        Give *cfg* as one line of ASCII.

        Raises:
            ConfigError: a value in it cannot be written; the error's argument says where it stands.
        """
        plain = daglish.MemoizedTraversal.run(_replace, cfg)
        try:
            text = serialization.dump_json(plain, pyref_policy)
        except _REFUSALS as error:
            raise refusal(plain, refused=lambda value: _is_refused(value, pyref_policy), error=error) from None
        return base64.urlsafe_b64encode(zlib.compress(_portable(text).encode())).decode("ascii")

    def deserialize(self, serialized: str, pyref_policy: serialization.PyrefPolicy | None = None) -> Any:
        """
        Give the config that *serialized* holds.

        Raises:
            ConfigError: the text is cut, or something else altogether.
        """
        text = unpacked(serialized)
        return daglish.MemoizedTraversal.run(_restore, serialization.load_json(text, pyref_policy=pyref_policy))


def unpacked(serialized: str) -> str:
    """
    Give the JSON that *serialized* holds.

    Raises:
        ConfigError: the text is cut, or something else altogether.
    """
    try:
        return _portable(zlib.decompress(base64.urlsafe_b64decode(serialized)).decode())
    except (binascii.Error, zlib.error, ValueError) as error:
        shown = serialized if len(serialized) <= 40 else f"{serialized[:40]}…"
        raise ConfigError("serialized", shown, f"is no serialised config: {error}") from error


def _portable(text: str) -> str:
    """Name paths as every Python does: 3.13 alone has their classes in a module of its own."""
    return text.replace('"module": "pathlib._local"', '"module": "pathlib"')


def _replace(value: Any, state: Any) -> Any:
    if state.is_traversable(value):
        return state.map_children(value)
    if isinstance(value, Mapping) and not hasattr(type(value), "__missing__"):
        # An OrderedDict, or what a library reads from YAML; a Counter is more than the dict that it holds.
        return state.call(dict(value))
    return value if (other := stand_in(value)) is None else other


def _restore(value: Any, state: Any) -> Any:
    if not state.is_traversable(value):
        return value
    whole = restored(value)
    return state.map_children(value) if whole is None else whole


def _is_refused(value: Any, policy: serialization.PyrefPolicy | None) -> bool:
    try:
        serialization.dump_json(value, policy)
    except _REFUSALS:
        return True
    return False
