"""Names of files that need no PyTorch to be known."""

PROVENANCE = "mtcli.json"
"""The file of an exported folder that says what it is and which model it was made from."""
