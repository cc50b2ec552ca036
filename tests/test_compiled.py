"""`train.compile`: one graph for all shapes, the numbers of the model itself, and what happens if the compiler fails.

The compiler of these tests runs the traced graph as it is: that needs no C++ compiler, and tracing is what decides how
many graphs there are.
"""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from mtcli.config.schema import ModelConfig, TrainConfig
from mtcli.corpus.batching import Batch
from mtcli.errors import UsageError
from mtcli.model.attention import additive_mask
from mtcli.model.transformer import Transformer
from mtcli.training import compiled
from mtcli.training.compiled import compile_objective, should_compile
from mtcli.training.gradients import Objective

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
V = 30
SHAPES = (
    (24, 20, 20),
    (3, 5, 7),
    (30, 11, 12),
    (8, 8, 8),
    (40, 13, 40),
    (2, 2, 2),
    (2, 16, 9),
    (16, 3, 2),
    (5, 64, 63),
)
"""(B, S, T) of nine batches: equal sizes, the smallest, and multiples of eight, at which kernels change."""


Graphs = list[torch.fx.GraphModule]


@contextmanager
def traced() -> Iterator[Graphs]:
    """Yield the list of the graphs that are compiled."""
    found: Graphs = []

    def keep(graph: torch.fx.GraphModule, example: list[Tensor]) -> Callable[..., Any]:
        found.append(graph)
        return graph.forward

    torch.compiler.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "BACKEND", keep)
        yield found
    torch.compiler.reset()


def objective_of(**changes: Any) -> Objective:
    torch.manual_seed(1)
    shape = {"d_model": 16, "d_ff": 24, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0}
    model = Transformer(ModelConfig(**{**shape, **changes}), V, V, joint=True)
    return Objective(model.double(), smoothing=0.1, bf16=False)


def draw(B: int, S: int, T: int) -> tuple[Tensor, Tensor]:
    src = torch.randint(4, V, (B, S))
    if S > 2:
        src[0, S // 2 :] = 0
    return src, torch.randint(4, V, (B, T))


def compile_one(objective: Objective) -> None:
    compile_objective(objective, TrainConfig(compile="on", batch_tokens=1100), CPU)


@pytest.fixture(scope="module")
def compiled_once() -> Iterator[tuple[Objective, Graphs]]:
    """A compiled objective and its graphs, of which there must stay one."""
    with traced() as graphs:
        objective = objective_of()
        compile_one(objective)
        yield objective, graphs


def test_one_graph_serves_all_shapes_with_the_results_of_the_model(compiled_once: tuple[Objective, Graphs]) -> None:
    objective, graphs = compiled_once
    model = objective.model
    assert all(p.grad is None for p in model.parameters())
    for shape in SHAPES:
        src, tgt = draw(*shape)
        expected = model.hidden_states(src, tgt)
        found = objective.hidden_states(src, tgt)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
        direction = torch.randn_like(expected)
        wanted = torch.autograd.grad(expected, list(model.parameters()), direction)
        gradients = torch.autograd.grad(found, list(model.parameters()), direction)
        torch.testing.assert_close(gradients, wanted, rtol=1e-9, atol=1e-11)
    assert len(graphs) == 1


def test_rare_shapes_and_evaluation_use_the_model_itself(compiled_once: tuple[Objective, Graphs]) -> None:
    objective, graphs = compiled_once
    model = objective.model

    def check(src: Tensor, tgt: Tensor) -> None:
        assert torch.equal(objective.hidden_states(src, tgt), model.hidden_states(src, tgt))

    for shape in ((1, 5, 6), (2, 1, 4), (2, 4, 1), (2, 600, 3), (2, 3, 513)):
        check(*draw(*shape))
    model.eval()
    check(*draw(2, 3, 4))
    model.train()
    assert len(graphs) == 1


def test_ddp_wraps_the_compiled_function(compiled_once: tuple[Objective, Graphs], tmp_path: Path) -> None:
    """DDP exchanges the gradients of the one graph, here with itself."""
    objective, graphs = compiled_once
    src, tgt = draw(3, 5, 7)
    batch = Batch(src, tgt, tgt.flatten(), torch.arange(tgt.numel()))
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(objective, gradient_as_bucket_view=True)
        for _ in range(2):  # DDP rebuilds its buckets after the first pass
            parallel.zero_grad()
            parallel(batch)[0].backward()
    finally:
        dist.destroy_process_group()
    alone = objective_of()
    alone(batch)[0].backward()
    found = [p.grad for p in objective.parameters()]
    torch.testing.assert_close(found, [p.grad for p in alone.parameters()], rtol=1e-9, atol=1e-11)
    assert len(graphs) == 1


def test_one_graph_with_the_mask_of_a_gpu_and_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transformer, "layer_mask", lambda self, mask, x: additive_mask(mask, x.dtype))
    objective = objective_of(dropout=0.1, norm="pre", positions="learned")
    with traced() as graphs:
        compile_one(objective)
        for shape in SHAPES:
            objective.hidden_states(*draw(*shape)).sum().backward()
    (graph,) = graphs
    assert sum(node.target is F.dropout for node in graph.graph.nodes) == 2 + 2 + 3


def test_the_mask_of_a_gpu_is_one_graph_for_all_widths() -> None:
    """With AOTAutograd, which traces into the operations: padding by nothing would be a graph of its own."""
    from torch._dynamo.testing import CompileCounterWithBackend  # takes more than a second

    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    function = torch.compile(additive_mask, dynamic=True, fullgraph=True, backend=counter)
    for S in (5, 8, 15, 16, 64):
        mask = torch.rand(3, 1, 1, S) < 0.5
        assert torch.equal(function(mask, torch.float32), additive_mask(mask, torch.float32))
    assert counter.frame_count == 1
    torch.compiler.reset()


def test_a_compiled_run_resumes_with_the_same_bits(train_toy: Callable[..., Path], tmp_path: Path) -> None:
    def train(run: Path) -> Path:
        with traced() as graphs:
            train_toy(run, "train.compile=on", "train.max_steps=10")
        assert len(graphs) == 1
        return run / "checkpoints" / "step-00000010"

    whole = train(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "resumed")
    shutil.rmtree(tmp_path / "resumed" / "checkpoints" / "step-00000010")
    resumed = train(tmp_path / "resumed")
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()


def fail(*_: object) -> None:
    raise RuntimeError("no C compiler\nand a long explanation")


def test_with_auto_a_failing_compiler_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled, "BACKEND", fail)
    monkeypatch.setattr(compiled, "should_compile", lambda *_: True)
    # Less to trace than the model.
    monkeypatch.setattr(Transformer, "hidden_states", lambda model, src, tgt: model.output.weight[src])
    objective = objective_of()
    with caplog.at_level(logging.WARNING, logger="mtcli"):
        compile_objective(objective, TrainConfig(compile="auto"), CPU)
    (warning,) = caplog.messages
    assert "training is slower (no C compiler); --set train.compile=off" in warning
    assert objective.hidden_states == objective.model.hidden_states
    torch.compiler.reset()


def test_with_on_a_failing_compiler_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_take_example_pass", fail)
    with pytest.raises(UsageError, match=r"\(no C compiler\); .* or give --set train.compile=off"):
        compile_one(objective_of())


def test_too_little_memory_is_no_failure_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhaust(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(compiled, "_take_example_pass", exhaust)
    with pytest.raises(torch.OutOfMemoryError):
        compile_one(objective_of())


def test_auto_compiles_long_runs_on_cuda_with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    capability = [(9, 0)]
    installed = {"triton"}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability[0])
    monkeypatch.setattr(compiled, "find_spec", lambda name: name in installed or None)

    def decide(device: torch.device = CUDA, **settings: Any) -> bool:
        return should_compile(TrainConfig(**{"compile": "auto", **settings}), device)

    assert not should_compile(TrainConfig(), CUDA)
    assert decide()
    assert decide(time="15m", max_steps=10_000)
    assert decide(max_steps=2_500, accumulate=4)
    assert not decide(time="14m")
    assert not decide(max_steps=9_999)
    assert not decide(CPU)
    assert decide(CPU, compile="on")
    assert not decide(compile="off")
    assert not decide(deterministic=True)
    assert decide(deterministic=True, compile="on")
    capability[0] = (6, 1)
    assert not decide()
    capability[0] = (7, 0)
    assert decide()
    installed.clear()
    assert not decide()
    assert decide(compile="on", max_steps=1)
