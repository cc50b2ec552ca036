"""Search for translations, from source ids to target ids: greedy search, sampling and beam search.

Shapes: B sentences, W beams, N hypotheses (at most B × W, grouped by sentence), V target vocabulary, t tokens so far.
"""

from mtcli.inference.search.beam import beam_search
from mtcli.inference.search.constraints import Limits
from mtcli.inference.search.expansion import Expansion
from mtcli.inference.search.greedy import greedy_search
from mtcli.inference.search.hypothesis import Hypothesis
from mtcli.inference.search.sampling import Choice, most_likely, sampler

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
