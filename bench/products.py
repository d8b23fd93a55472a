"""Matrix products in float32 on one core of a CPU: MKL, as torch computes them, beside oneDNN (``troupe.products``).

The shapes are those of the laptop's model and of SmolLM2-135M, with the rows of a decoding step and of an update.
Repetitions are interleaved; the figures are medians.  ``first`` is the time of a call with a number of rows that was
not there before, for which oneDNN compiles code.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional

from troupe import products

MATRICES = {  # outputs, inputs
    "laptop, queries to values": (512, 256),
    "laptop, gate and up": (1536, 256),
    "laptop, down": (256, 768),
    "SmolLM2, gate and up": (3072, 576),
    "SmolLM2, down": (576, 1536),
}
ROWS = (4, 16, 64, 1024)


def seconds(work: Callable[[], Tensor]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=50)
    repetitions = parser.parse_args().repetitions
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread; oneDNN is {'' if products.use_onednn() else 'not '}used here")
    print("matrix | rows | MKL, us | oneDNN, us | first, us | MKL over oneDNN | GFLOP/s of oneDNN")
    for name, (outputs, inputs) in MATRICES.items():
        weight = torch.randn(inputs, outputs).t()  # as the engine keeps it
        for rows in ROWS:
            x = torch.randn(rows, inputs)
            first = seconds(lambda x=x, weight=weight: products._product(x, weight, None))  # type: ignore[misc]
            times: dict[str, list[float]] = {"mkl": [], "onednn": []}
            for _ in range(repetitions):
                times["mkl"].append(seconds(lambda x=x, weight=weight: functional.linear(x, weight)))  # type: ignore[misc]
                times["onednn"].append(seconds(lambda x=x, weight=weight: products._product(x, weight, None)))  # type: ignore[misc]
            mkl, onednn = median(times["mkl"]), median(times["onednn"])
            figures = (1e6 * mkl, 1e6 * onednn, 1e6 * first)
            speed = 2 * rows * weight.numel() / onednn / 1e9
            print(name, rows, *(f"{us:.0f}" for us in figures), f"{mkl / onednn:.2f}", f"{speed:.0f}", sep=" | ")


if __name__ == "__main__":
    main()
