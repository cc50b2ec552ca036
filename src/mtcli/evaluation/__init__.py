"""Scores of translations and comparisons of systems, computed by sacrebleu."""
