"""The process and its machine: files, outputs, memory, devices, ranks, signals, terminal, progress, and page style."""
