"""Synthetic training data: pairs made from text in one language by a model."""
