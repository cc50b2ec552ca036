"""The smallest and the largest value of every number that a user or a file can give.

The fields of `config.py`, the options of the command line and the metadata of model folders take their bounds from
here. The upper bounds lie far beyond any real use. They keep a slip of the keyboard, or a hostile file, from taking
all memory, overflowing a float or never ending.
"""

from typing import NamedTuple


class Range(NamedTuple):
    """A smallest and a largest value, both allowed."""

    min: float
    max: float


STEPS = Range(1, 1_000_000_000)
"""Steps of training, of a warm-up, or between two validations."""

SEED = Range(0, 2**63 - 1)
VOCABULARY = Range(1, 1_000_000)
"""The largest in use have a quarter of that."""

# The shape of a model.
WIDTH = Range(2, 65_536)
FEED_FORWARD = Range(1, 1_048_576)
HEADS = Range(1, 1024)
HEAD_SIZE = Range(1, 65_536)
LAYERS = Range(1, 1000)
"""DeepNet (Wang et al. 2022), the deepest that is published, has 500."""
POSITIONS = Range(1, 1_000_000)
EXPORTED_POSITIONS = Range(3, 1_000_000)
"""A token, `<s>` and `</s>` at least."""
DROPOUT = Range(0, 0.999)
"""Label smoothing too."""

# Training.
PAIR_LENGTH = Range(1, 1_000_000)
WEIGHT = Range(1e-9, 10_000)
"""Of a training corpus."""
BATCH_TOKENS = Range(1, 1_000_000_000)
ACCUMULATE = Range(1, 100_000)
SECONDS = Range(1e-6, 10 * 365 * 24 * 3600)
LEARNING_RATE = Range(1e-30, 1e30)
BETA = Range(0, 0.9999999)
EPSILON = Range(1e-30, 1)
WEIGHT_DECAY = Range(0, 1000)
CLIP_NORM = Range(0, 1e30)
CHECKPOINTS = Range(1, 10_000)
"""That are kept, or averaged."""
SHARE = Range(0, 1)
PATIENCE = Range(0, 1_000_000_000)

# Decoding.
BEAM_SIZE = Range(1, 1000)
LENGTH_PENALTY = Range(0, 10)
"""2000 to the power of 10 is within float32."""
LENGTH = Range(1, 10_000)
"""Tokens of a translation."""
TEMPERATURE = Range(0.01, 100)
TOP_K = Range(0, VOCABULARY.max)

# Checks of sentence pairs.
CHARACTERS = Range(1, 1_000_000_000)
RATIO = Range(1, 1_000_000)

# The server.
PORT = Range(0, 65_535)
BODY = Range(1, 2**30)
LINES = Range(1, 1_000_000)
TIMEOUT = Range(0.1, 24 * 3600)

# Metadata of models and runs.
COUNT = Range(0, 10**15)
"""Steps taken, tokens seen, bytes written."""
AMOUNT = Range(-1e18, 1e18)
"""Sums, seconds and scores."""

# Files.
METADATA = 64 * 2**20
"""Bytes of a file of metadata in JSON."""
METRICS = 2**30
"""Bytes of `metrics.jsonl`, which grows with the run."""
CONFIGURATION = 2**20
"""Bytes of a TOML file, a hundred times any configuration."""
