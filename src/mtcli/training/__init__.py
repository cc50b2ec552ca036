"""The training loop and what it decides: objective, optimizer, budget, validation, averaging, dry run.

May import report and what it may import.
"""
