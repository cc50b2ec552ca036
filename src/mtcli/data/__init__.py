"""Sentence pairs: readers, splits, quality checks, tokenizer, cache, batches, the built-in demo corpus."""
