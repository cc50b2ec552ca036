"""The process and its machine: files, outputs, memory, devices, ranks, signals, terminal and progress.

May import errors and limits.
"""
