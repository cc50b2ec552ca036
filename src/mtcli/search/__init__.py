"""Search for translations, from source ids to target ids: greedy search, sampling and beam search.

Shapes: B sentences, W beams, N hypotheses (at most B × W, grouped by sentence), V target vocabulary, t tokens so far.
"""
