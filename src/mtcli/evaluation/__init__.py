"""Scores of translations, comparisons of systems, and the work of `mtcli eval`."""
