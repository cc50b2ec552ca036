"""Files with structure: documents, markup, placeholders and terms around the translator of sentences."""
