"""The files of a run folder: checkpoints, models, state and metrics."""

PROVENANCE = "mtcli.json"
"""The file of an exported model that names the model it was made from. It is here to be known without PyTorch."""

ENGINE = "engine"
"""The folder in a run with its model for CTranslate2, which `translate` and `serve` use.

See `translate.backends.run_engine`.
"""

ROBUSTNESS = "robustness.json"
"""The file of a run with its scores on text as people type it. `mtcli eval --robust` writes it."""

CONFIDENCE = "confidence.json"
"""The file of a run or an imported model with the numbers of its confidence, see `translate.confidence`."""

ORIGIN = "origin.json"
"""The file of an imported model that records where it comes from."""
