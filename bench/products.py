"""Matrix products in float32 on one core of a CPU: MKL, as torch computes them, beside oneDNN
(``troupe.kernels.products``).

The shapes are those of the laptop's model and of SmolLM2-135M, with the rows of a decoding step and of an update.
Repetitions are interleaved; the figures are medians.  ``first`` is the time of a call with a number of rows that was
not there before, for which oneDNN compiles code.
"""

from __future__ import annotations

import argparse
from functools import partial
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
}
ROWS = (4, 16, 64, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=50)
    repetitions = parser.parse_args().repetitions
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread; oneDNN is {'' if products.use_onednn() else 'not '}used here")
    print("matrix | rows | MKL, us | oneDNN, us | first, us | MKL over oneDNN | GFLOP/s of oneDNN")
    for matrix, (outputs, inputs) in MATRICES.items():
        weight = torch.randn(inputs, outputs).t()  # as the engine keeps it
        for rows in ROWS:
            x = torch.randn(rows, inputs)
            ways = {"mkl": partial(functional.linear, x, weight), "onednn": partial(products._product, x, weight, None)}
            first = timeit(ways["onednn"], number=1)
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(repetitions):
                for name, way in ways.items():
                    times[name].append(timeit(way, number=1))
            mkl, onednn = median(times["mkl"]), median(times["onednn"])
            figures = (1e6 * mkl, 1e6 * onednn, 1e6 * first)
            speed = 2 * rows * weight.numel() / onednn / 1e9
            print(matrix, rows, *(f"{us:.0f}" for us in figures), f"{mkl / onednn:.2f}", f"{speed:.0f}", sep=" | ")


if __name__ == "__main__":
    main()
