"""Text to token ids and back: vocabularies that are learned here, and SentencePiece models of imported models."""
