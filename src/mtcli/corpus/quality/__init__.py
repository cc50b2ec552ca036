"""Find problems in sentence pairs, and remove them: `mtcli data check` and `mtcli data clean`.

corpus      the pairs that are checked, with their places in the files
rules       the table of rules
languages   are the sides in their declared languages?
survey      one pass over a corpus: the rules that each pair breaks
report      check: findings with counts, examples and advice
clean       write the pairs that break no removing rule
"""
