"""What is wrong with a corpus, and what is left once that is taken out: `mtcli data check` and `mtcli data clean`.

rules    the table of everything that is looked for
survey   one reading: which rules each pair breaks
report   check: findings with counts, examples and advice
clean    the pairs that no removing rule catches
"""
