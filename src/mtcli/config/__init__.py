"""Typed settings: schema, presets, TOML and `--set`, language codes.

May import errors, limits and runtime.
"""
