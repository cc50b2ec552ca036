"""The first weights of a child: those of its parent, with embeddings for another vocabulary.

A token that both vocabularies have keeps the parent's embedding, bit for bit. Another one gets the mean of the
embeddings of its parts, or that of all tokens if it has none.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from mtcli.corpus.cache.parent import Parent, origins
from mtcli.model.transformer import Transformer
from mtcli.storage.model_file import parameters
from mtcli.text.tokenizer.matching import Origin, match
from mtcli.text.tokenizer.tokenizer import Tokenizer


def transplanted(model: Transformer, parent: Parent, tokenizer: Tokenizer, src: str, tgt: str) -> Transformer:
    """Return a child before its training.

    Args:
        model: The parent.
        parent: Its languages and its tokenizer.
        tokenizer: The child's tokenizer.
        src: Language code of the child's source.
        tgt: Language code of the child's target.
    """
    child = Transformer(model.config, tokenizer.src_size, tokenizer.tgt_size, joint=tokenizer.joint)
    own = parameters(child)
    for name, tensor in parameters(model).items():
        if name in own and own[name].shape == tensor.shape:
            own[name].copy_(tensor)
    embeddings = [model.src_embedding.tokens.weight.data, model.tgt_embedding.tokens.weight.data]
    src_origins, tgt_origins = origins(parent, tokenizer, src, tgt)
    child.src_embedding.tokens.weight.data.copy_(_rows(embeddings, src_origins))
    child.tgt_embedding.tokens.weight.data.copy_(_rows(embeddings, tgt_origins))  # last: it may be shared
    in_target = match(tokenizer.sides[1], [parent.tokenizer.sides[1]])
    if not model.config.tie_embeddings:
        child.output.weight.data.copy_(_rows([model.output.weight.data], in_target))
    if child.output.bias is not None:
        child.output.bias.data.copy_(_rows([model.output.bias.data], in_target))
    return child.eval()


def _rows(matrices: Sequence[Tensor], token_origins: Sequence[Origin]) -> Tensor:
    """Return a row for each token: that of its origin, the mean of several, or that of the whole matrix."""
    mean = matrices[token_origins[0].side].mean(dim=0)
    rows = []
    for origin in token_origins:
        matrix = matrices[origin.side]
        if origin.same:
            rows.append(matrix[origin.ids[0]])
        elif origin.ids:
            rows.append(matrix[list(origin.ids)].mean(dim=0))
        else:
            rows.append(mean)
    return torch.stack(rows)
