"""A simulated CUDA device: tensors that report `cuda:0` and keep their numbers on the CPU.

It shows what a GPU would be asked to do, without a GPU:

- an operation on tensors of two devices raises;
- kernel launches, host syncs, copies, bytes, FLOPs and attention kernels are counted, with the line that caused them;
- an asynchronous copy to the host has no values before the next sync, and its source on the host must not change.

Autograd, autocast, fused optimizers and pinned memory are PyTorch's own.

It does not show the results of GPU kernels (the CPU computes them), speed, several streams, CUDA graphs, NCCL and
Triton. `torch.compile` returns its argument unchanged, and `torch.inference_mode` is `torch.no_grad`.

The device replaces functions of PyTorch, so it lives in a process of its own. A test calls

    counts = simulated_cuda.run(count_training_step, 3)

where `count_training_step` is a function at the top level of a module: it is called there with these arguments, and its
result comes back. Arguments and results are pickled; tensors cannot be among them. Inside,

    with counting() as counts:
        step()

counts what `step` does on the device. All tests of one pytest process share one such process, because importing PyTorch
takes longer than most tests. `needs_simulated_cuda` skips tests where the device cannot be built.
"""

from simulated_cuda.counts import Counts, counting
from simulated_cuda.library import unavailable
from simulated_cuda.process import needs_simulated_cuda, run

__all__ = ["Counts", "counting", "needs_simulated_cuda", "run", "unavailable"]
