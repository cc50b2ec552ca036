"""The paper's model: attention, Transformer and loss; and hooks that record a forward pass.

May import data and what it may import.
"""
