"""The model card of an imported model: Markdown with the head that the Hugging Face Hub reads."""

import json

from mtcli.config.schema import Config
from mtcli.exchange.import_source import Source
from mtcli.text.tokenizer.tokenizer import Tokenizer

CARD = """\
---
language:
- {src_quoted}
- {tgt_quoted}
library_name: mtcli
pipeline_tag: translation
{license}
---

# {name}: {src} → {tgt}

A Transformer that translates sentences from {src} to {tgt}, imported from `{source}`.

## Use

```sh
mtcli translate --model . {tag}"A sentence."
```

Translating needs only `model.safetensors` and `tokenizer.json`.

## Origin

- source: `{source}`
- revision: {revision}
- licence: {licence}
- `origin.json` has the SHA-256 of the weights that were imported

Who trained the model, on which data and with which scores is in the model card of the origin.

## Model

- {encoder} encoder and {decoder} decoder layers, d_model {d_model}, d_ff {d_ff}, {heads} heads, {activation}
- {tokens:,} tokens, from two SentencePiece models; {unknown}
- search: beam size {beam_size}, length penalty n^{length_penalty:g}
{languages}
## Limits

- It translates one sentence at a time and ignores the context.
- Some translations are fluent but wrong: have a person check what matters.
"""


def to_card(source: Source, config: Config, tokenizer: Tokenizer) -> str:
    """Return the model card."""
    data = config.data
    model = config.model
    decode = config.decode
    licence = source.licence
    revision = "none, a local folder" if source.revision is None else f"`{source.revision}`"
    target = next(iter(tokenizer.tags), None)
    return CARD.format(
        src=data.src,
        tgt=data.tgt,
        src_quoted=json.dumps(data.src, ensure_ascii=False),  # YAML reads an unquoted `no` as false
        tgt_quoted=json.dumps(data.tgt, ensure_ascii=False),
        license=f"license: {licence}" if licence else "# license: to be filled in; the origin's card names none",
        licence=licence or "the origin's model card names none; see there",
        name=source.folder.resolve().name if source.revision is None else source.name,
        source=source.name,
        revision=revision,
        tag=f"--to {target} " if target else "",
        encoder=model.num_encoder_layers,
        decoder=model.num_decoder_layers,
        d_model=model.d_model,
        d_ff=model.d_ff,
        heads=model.num_heads,
        activation=model.activation,
        tokens=tokenizer.tgt_size,
        unknown=_unknown(tokenizer),
        beam_size=decode.beam_size,
        length_penalty=decode.length_penalty,
        languages=f"- target languages (`--to`): {', '.join(tokenizer.tags)}\n" if tokenizer.tags else "",
    )


def _unknown(tokenizer: Tokenizer) -> str:
    if tokenizer.src_byte_of:
        return "a character outside of them is encoded as bytes"
    return "a character outside of them becomes `<unk>`, and its text is lost"
