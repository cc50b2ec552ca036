"""What a run folder holds: checkpoints, model files, states, metrics.

May import nn, data and what these may import.
"""
