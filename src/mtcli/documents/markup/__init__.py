"""Sentences with inline markup: their text, their tags, and where the tags go in the translation."""
