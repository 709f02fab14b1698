"""Configs as text: fiddle's JSON, packed, and YAML."""
