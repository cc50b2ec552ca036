"""Find problems in sentence pairs, and remove them: `mtcli data check` and `mtcli data clean`.

rules    the table of rules
survey   one pass over a corpus: the rules that each pair breaks
report   check: findings with counts, examples and advice
clean    write the pairs that break no removing rule
"""
