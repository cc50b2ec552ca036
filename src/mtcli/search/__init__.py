"""Search for translations, from source ids to target ids: greedy search, sampling and beam search.

Shapes: B sentences, W beams, N hypotheses (at most B × W, grouped by sentence), V target vocabulary, t tokens so far.
"""

from mtcli.search.beam import beam_search
from mtcli.search.constraints import Limits
from mtcli.search.expansion import Expansion
from mtcli.search.greedy import greedy_search
from mtcli.search.hypothesis import Hypothesis
from mtcli.search.sampling import Choice, most_likely, sampler

__all__ = [
    "Choice",
    "Expansion",
    "Hypothesis",
    "Limits",
    "beam_search",
    "greedy_search",
    "most_likely",
    "sampler",
]
