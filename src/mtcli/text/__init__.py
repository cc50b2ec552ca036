"""Text: languages, writing systems, lines, words, protected text, and the tokenizer."""
