"""Matrix products on one core of a CPU: torch's own beside those of ``troupe.kernels.products``, in float32 or with
``--bfloat16``, there by a packed copy where this machine has a use for one.

The shapes are those of the laptop's model, of SmolLM2-135M and of Qwen2.5-Coder-0.5B, with the rows of a decoding step
and of an update.  As in a model, each call has another matrix, of which there are 256 MiB; repetitions are interleaved;
the figures are medians.  The first call with a number of rows that was not there before has oneDNN compile code.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import cycle
from statistics import median
from timeit import timeit

import torch
from torch.nn import functional

from troupe.kernels import products

MATRICES = {  # outputs, inputs
    "laptop, queries to values": (512, 256),
    "laptop, gate and up": (1536, 256),
    "laptop, down": (256, 768),
    "SmolLM2, gate and up": (3072, 576),
    "SmolLM2, down": (576, 1536),
    "0.5B, gate and up": (9728, 896),
    "0.5B, down": (896, 4864),
}
ROWS = (1, 8, 64, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--bfloat16", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread")
    print("matrix | rows | torch, us | ours, us | its first call, us | torch over it | its GFLOP/s")
    for matrix, (outputs, inputs) in MATRICES.items():
        weight = torch.randn(inputs, outputs).t()  # as the engine keeps it
        if options.bfloat16:
            weight = weight.contiguous().bfloat16()
        matrices = [weight.clone() for _ in range((1 << 28) // weight.nbytes)]
        copies = [products.packed(each) for each in matrices]
        ours = cycle(
            [partial(products.linear, weight=each, copy=copy) for each, copy in zip(matrices, copies, strict=True)]
        )
        theirs = cycle([partial(functional.linear, weight=each) for each in matrices])
        for rows in ROWS:
            x = torch.randn(rows, inputs).to(weight.dtype)
            first = timeit(partial(next(ours), x), number=1)
            times = [
                [timeit(partial(next(way), x), number=1) for way in (theirs, ours)] for _ in range(options.repetitions)
            ]
            torchs, own = (median(column) for column in zip(*times, strict=True))
            figures = (1e6 * torchs, 1e6 * own, 1e6 * first)
            speed = 2 * rows * weight.numel() / own / 1e9
            print(matrix, rows, *(f"{us:.0f}" for us in figures), f"{torchs / own:.2f}", f"{speed:.0f}", sep=" | ")


if __name__ == "__main__":
    main()
