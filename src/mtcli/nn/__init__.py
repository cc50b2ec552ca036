"""The paper: attention, Transformer, loss; and hooks that record what a pass computes.

May import data and what it may import.
"""
