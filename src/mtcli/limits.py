"""The smallest and the largest value of every number that a user or a file can give.

The settings in `config/schema.py`, the options of the command line and the metadata of model folders take their bounds
from here. The upper bounds are far above any real use. They keep a typing error or a hostile file from using all
memory, overflowing a float or running forever.
"""

from typing import NamedTuple


class Range(NamedTuple):
    """The smallest and the largest allowed value."""

    min: float
    max: float


STEPS = Range(1, 1_000_000_000)
"""Steps of training, of a warm-up, or between two validations or checkpoints."""

SEED = Range(0, 2**63 - 1)
VOCABULARY = Range(1, 1_000_000)
"""The largest vocabularies in use have a quarter of this."""

# The shape of a model.
WIDTH = Range(2, 65_536)
FEED_FORWARD = Range(1, 1_048_576)
HEADS = Range(1, 1024)
HEAD_SIZE = Range(1, 65_536)
LAYERS = Range(1, 1000)
"""DeepNet (Wang et al. 2022), one of the deepest Transformers, has 500 in each stack."""
POSITIONS = Range(1, 1_000_000)
EXPORTED_POSITIONS = Range(3, 1_000_000)
"""Positions of an exported model: at least one token, `<s>` and `</s>`."""
DROPOUT = Range(0, 0.999)
"""Dropout rates, and label smoothing."""

# Training.
PAIR_LENGTH = Range(1, 1_000_000)
WEIGHT = Range(1e-9, 10_000)
"""Sampling weight of a training corpus."""
SAMPLING_TEMPERATURE = Range(1, 1_000_000)
"""Of several directions: from their own shares to equal ones."""
BATCH_TOKENS = Range(1, 1_000_000_000)
ACCUMULATE = Range(1, 100_000)
MICRO_BATCHES = Range(1, 1000)
SECONDS = Range(1e-6, 10 * 365 * 24 * 3600)
LEARNING_RATE = Range(1e-30, 1e30)
BETA = Range(0, 0.9999999)
EPSILON = Range(1e-30, 1)
WEIGHT_DECAY = Range(0, 1000)
CLIP_NORM = Range(0, 1e30)
CHECKPOINTS = Range(1, 10_000)
"""Checkpoints that are kept or averaged."""
SHARE = Range(0, 1)
SCORE = Range(0, 100)
"""BLEU and chrF."""
PATIENCE = Range(0, 1_000_000_000)

# Decoding.
BEAM_SIZE = Range(1, 1000)
RERANK_WEIGHT = Range(0, 1000)
"""Weight of the reverse model's log-probability in reranking."""
LENGTH_PENALTY = Range(0, 10)
"""With an exponent of 10, the penalty of 2,000 tokens is still within the range of float32."""
LENGTH = Range(1, 10_000)
"""Tokens of a translation, or of a line that the server accepts."""
TEMPERATURE = Range(0.01, 100)
TOP_K = Range(0, VOCABULARY.max)
PERCENT = Range(1, 100)

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
"""Counts: steps taken, tokens seen, bytes written."""
AMOUNT = Range(-1e18, 1e18)
"""Sums, seconds and scores."""

# Files.
METADATA = 64 * 2**20
"""Bytes of a JSON file of metadata."""
METRICS = 2**30
"""Bytes of `metrics.jsonl`, which grows with the run."""
CONFIGURATION = 2**20
"""Bytes of a TOML file; a hundred times the size of any real configuration."""
