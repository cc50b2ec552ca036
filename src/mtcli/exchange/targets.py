"""The libraries that a model can be exported to, and the models that they support."""

from mtcli.config.schema import Config
from mtcli.exchange import ctranslate2_model, huggingface, sentencepiece_model

TARGETS = ("ctranslate2", "huggingface", "argos")
"""The libraries to export to."""

MAX_POSITIONS = {
    "ctranslate2": ctranslate2_model.MAX_POSITIONS,
    "huggingface": huggingface.MAX_POSITIONS,
    "argos": ctranslate2_model.MAX_POSITIONS,
}
"""Number of positions of the exported model."""


def obstacles(config: Config, target: str) -> list[str]:
    """Return the settings that prevent exporting a model of this configuration, each with the reason.

    Args:
        config: The configuration of a run, trained or not.
        target: One of `TARGETS`.
    """
    model = config.model
    found = []
    d_head = model.d_model // model.num_heads
    for name in ("d_k", "d_v"):
        size = getattr(model, name)
        if size not in (None, d_head):
            found.append(f"model.{name} = {size}: {target} knows only heads of d_model / num_heads = {d_head}")
    if target == "argos" and config.tokenizer.type == "word":
        found.append(sentencepiece_model.NO_WORDS)
    if target == "huggingface":
        if model.norm == "pre":
            found.append("model.norm = pre: the Marian architecture is post-norm")
        if model.positions == "learned":
            found.append("model.positions = learned: the Marian architecture has sinusoids")
        if not model.tie_embeddings:
            found.append("model.tie_embeddings = false: Marian's output is its embedding")
        if not config.tokenizer.joint:
            found.append("tokenizer.joint = false: one tokenizer.json holds one vocabulary")
    return found
