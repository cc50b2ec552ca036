"""The paper's model: attention, Transformer and loss; and hooks that record a forward pass."""
