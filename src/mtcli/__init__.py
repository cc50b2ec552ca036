"""mtcli: train the Transformer of "Attention Is All You Need", translate with it and score it."""

__version__ = "0.2.0"
