"""The model of the paper: attention, Transformer and loss."""
