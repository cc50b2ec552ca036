"""What exists only for speed. Each part equals a plain function of the model, and a test compares the two."""
