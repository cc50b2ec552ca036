"""Scores of translations and comparisons of systems, all of them sacrebleu's.

May import config and what it may import.
"""
