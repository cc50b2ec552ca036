"""Typed settings: schema, presets, TOML and `--set`, language codes."""
