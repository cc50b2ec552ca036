"""The cross-attention of given translations, computed with PyTorch for their word alignment."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from mtcli.corpus.batching import pad
from mtcli.model.hooks import record_attention
from mtcli.model.transformer import DecoderLayer, Transformer
from mtcli.text.special_tokens import BOS, EOS
from mtcli.translate.alignment import alignment_layer


@torch.inference_mode()
def cross_attention(
    model: Transformer, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]], *, layer: int | None = None
) -> Tensor:
    """Return the weights of one decoder layer's cross-attention, averaged over its heads.

    Args:
        model: In evaluation mode.
        src: The source ids of N pairs, without `</s>`.
        tgt: The target ids of N pairs, without `<s>` and `</s>`.
        layer: Index of the layer; None: `alignment_layer`.

    Returns:
        (N, T, S) on the CPU. Row t holds the weights with which target token t was predicted.
    """
    device = next(model.parameters()).device
    if layer is None:
        layer = alignment_layer(len(model.decoder))
    attention_of_layer = cast(DecoderLayer, model.decoder[layer]).cross_attention
    src_batch = pad(src, after=(EOS,)).to(device)
    tgt_batch = pad(tgt, before=(BOS,)).to(device)  # shifted right: position t reads token t − 1 and predicts token t
    with record_attention([attention_of_layer]) as attention:
        memory, mask = model.encode(src_batch)
        model.decode(tgt_batch, memory, mask)
    return attention[attention_of_layer].weights.mean(dim=1).cpu()
