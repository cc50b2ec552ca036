#!/usr/bin/env python3
"""What a training step of 25,000 tokens asks of a GPU, and the speed that follows from it.

    python tests/cuda/predict.py [base|big]

The step runs on the simulated device, at an eighth of its size (see base_step.py). Every speed is a prediction: no GPU
has been measured.
"""

import sys

from simulated_cuda import run


def main() -> None:
    # Here, because the process with the simulated device imports this file before it has the device.
    from base_step import GPUS, base_step

    name = sys.argv[1] if len(sys.argv) > 1 else "base"
    step = run(base_step, name)
    print(f"{name}: {step.launches} launches, {step.flops / 1e12:.1f} TFLOP")
    print(
        f"{step.product_bytes / 1e9:.0f} GB by matrix products, {step.other_bytes / 1e9:.0f} GB by other operations, "
        f"{step.compiled_bytes / 1e9:.0f} GB if the model is compiled"
    )
    for gpu in GPUS:
        now, compiled = (step.tokens / step.seconds(gpu, compiled) for compiled in (False, True))
        print(f"{gpu}: {now:,.0f} target tokens per second, compiled {compiled:,.0f} (predicted)")


if __name__ == "__main__":
    main()
