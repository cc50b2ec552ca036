"""Readers of sentence pairs in any form."""
