"""The ids of the special tokens, which are the same in every vocabulary."""

PAD = 0
"""`<pad>` fills the rows of a batch up to its widest one."""
BOS = 1
"""`<s>` is the input of the decoder in its first step."""
EOS = 2
"""`</s>` ends every source and every target."""
