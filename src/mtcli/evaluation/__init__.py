"""Scores of translations and comparisons of systems, computed by sacrebleu.

May import config and what it may import.
"""
