"""Validation and test pairs."""
