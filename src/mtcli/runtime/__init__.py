"""What the process runs on: files, folders and outputs, memory, devices and ranks, signals, terminal and progress.

May import errors and limits.
"""
