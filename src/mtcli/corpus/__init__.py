"""Sentence pairs: readers, splits, quality checks, the data of a run, batches, the built-in demo corpus."""
