"""Training: start of a run, loop, optimizer step, time budget, evaluation, saving and resuming, and the dry run."""
