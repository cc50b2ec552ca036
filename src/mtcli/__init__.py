"""mtcli: train the Transformer of "Attention Is All You Need", translate with it and score it."""

__version__ = "1.0.0"
