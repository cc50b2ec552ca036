"""What runs a model: PyTorch, CTranslate2, and the engine of a run."""
