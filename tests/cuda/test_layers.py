"""Encoder and decoder on the simulated device: attention kernels, masks and casts of a training step."""

from functools import cache

import torch
from simulated_cuda import Counts, counting, needs_simulated_cuda, run

from mtcli.config.schema import ModelConfig, TrainConfig
from mtcli.model.transformer import Transformer
from mtcli.runtime.device import pick_device
from mtcli.training.compiled import CompiledBody, compile_objective
from mtcli.training.gradients import Objective

pytestmark = needs_simulated_cuda

LAYERS = 2
"""Encoder layers, and decoder layers."""

SHAPE = {"d_model": 32, "d_ff": 64, "num_heads": 4, "num_encoder_layers": LAYERS, "num_decoder_layers": LAYERS}


@cache
def counted_step() -> Counts:
    return run(training_step)


def training_step() -> Counts:
    """Count the forward and backward pass of encoder and decoder, in bf16."""
    device = pick_device("cuda")
    model = Transformer(ModelConfig(**SHAPE), 20, 20, joint=True).to(device).train()
    src = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12, 2], [5, 6, 7, 2, 0, 0, 0, 0, 0]]).to(device)
    tgt = torch.tensor([[1, 6, 7, 8], [1, 6, 0, 0]]).to(device)
    with counting() as counts:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            hidden = model.decode(tgt, *model.encode(src))
        hidden.float().sum().backward()
    return counts


def test_attention_kernels_of_a_training_step() -> None:
    """Flash attention where there is no mask; never cuDNN's kernel, which builds a graph for each shape."""
    counts = counted_step()
    assert counts.attention == {"flash bfloat16 causal": LAYERS, "efficient bfloat16 masked": 2 * LAYERS}
    assert counts.num_syncs == 0


def test_queries_keys_and_values_are_one_product() -> None:
    """Products with a bias: 4 in an encoder layer (QKV, O, W_1, W_2) and 7 in a decoder layer (Q, KV and O more)."""
    counts = counted_step()
    assert counts.launches_of()["addmm"] == (4 + 7) * LAYERS


def test_masks_are_converted_once_for_all_layers() -> None:
    """Once for the encoder and once for the decoder. PyTorch would convert a boolean mask in each layer."""
    found = counted_step().launches_of()
    assert found["masked_fill"] == 2
    assert found["constant_pad_nd"] == 2
    assert found["bitwise_not"] == 2


def compiled_step() -> int:
    """Prepare a compiled model, without the compiler, and return the waits of the host."""
    model = Transformer(ModelConfig(**SHAPE), 20, 20, joint=True).to("cuda")
    objective = Objective(model, smoothing=0.1, bf16=True)
    with counting() as counts:
        compile_objective(objective, TrainConfig(compile="on", batch_tokens=64), torch.device("cuda"))
        objective.hidden_states(*(torch.ones(2, 3, dtype=torch.long, device="cuda") for _ in range(2)))
    assert isinstance(objective.hidden_states, CompiledBody)
    return counts.num_syncs


def test_compiling_does_not_wait_for_the_device() -> None:
    assert run(compiled_step) == 0
