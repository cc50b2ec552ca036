"""`mtcli distill`: train a small, fast student on the translations of one or several teachers.

Sequence-level knowledge distillation (Kim & Rush 2016, §3.2): the teachers translate the sources of the training pairs
by beam search, and the student learns these translations. They are more regular than those of people, so that a small
model can learn them, and greedy search finds them nearly as well as beam search.
"""
