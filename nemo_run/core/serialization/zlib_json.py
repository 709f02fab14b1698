"""Configs as one line of text: fiddle's JSON, compressed, in URL-safe base64."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

from fiddle._src.experimental import serialization

from nemo_run.exceptions import ConfigError


class ZlibJSONSerializer:
    """Turns configs into one line of text and back; it and NeMo-Run's read each other's."""

    def serialize(self, cfg: Any, pyref_policy: serialization.PyrefPolicy | None = None) -> str:
        """Give *cfg* as one line of ASCII."""
        text = serialization.dump_json(cfg, pyref_policy)
        return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode("ascii")

    def deserialize(self, serialized: str, pyref_policy: serialization.PyrefPolicy | None = None) -> Any:
        """
        Give the config that *serialized* holds.

        Raises:
            ConfigError: the text is cut, or something else altogether.
        """
        try:
            text = zlib.decompress(base64.urlsafe_b64decode(serialized)).decode()
        except (binascii.Error, zlib.error, ValueError) as error:
            shown = serialized if len(serialized) <= 40 else f"{serialized[:40]}…"
            raise ConfigError("serialized", shown, f"is no serialised config: {error}") from error
        return serialization.load_json(text, pyref_policy=pyref_policy)
