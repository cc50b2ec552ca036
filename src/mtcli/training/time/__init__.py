"""The time of a training: its budget, what is due, and how long the rest takes."""
