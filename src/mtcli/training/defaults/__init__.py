"""Defaults for unset settings, derived from the size of the corpus, the device and the budget.

They are chosen once, when a run begins, as a function of the `Workload` and of the settings that are given.
`config.toml` keeps the values and lists which of them were chosen. A resumed run keeps them, even with a larger budget.

workload      what the defaults depend on, and the table of preset, dropout, epochs and batch size by number of pairs
speed         estimates of the training speed, before it is measured
choose        a value for every unset setting, and what a resumed run keeps
from_scratch  the values for a new model
fine_tuning   the values for a run that starts from another model
intervals     steps between checkpoints and between validations, for both
describe      the lines of the log that name the chosen and the given values

Figures marked "guess" are not backed by a measurement yet.
"""
