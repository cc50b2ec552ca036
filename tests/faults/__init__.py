"""Faults injected into real processes: `scripts/faults` runs them all."""
