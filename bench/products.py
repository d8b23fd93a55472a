"""Matrix products on one core of a CPU: torch's own beside those of ``troupe.kernels.products``, in float32 by oneDNN,
with ``--bfloat16`` turned, or where there are no tiles by a packed copy.

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
ROWS = (4, 16, 64, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--bfloat16", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    turned = products.has_tiles()
    used = (turned or products.packs()) if options.bfloat16 else products.use_onednn()
    second = ("_turned" if turned else "packed_linear") if options.bfloat16 else "_product"
    print(f"torch {torch.__version__}, 1 thread; the second way is {second}, {'' if used else 'not '}used here")
    print("matrix | rows | torch, us | second way, us | its first call, us | torch over it | its GFLOP/s")
    for matrix, (outputs, inputs) in MATRICES.items():
        weight = torch.randn(inputs, outputs).t()  # as the engine keeps it
        if options.bfloat16:
            weight = weight.contiguous().bfloat16()
        copies = [weight.clone() for _ in range((1 << 28) // weight.nbytes)]
        given = {"torch": cycle(copies), second: cycle(copies)}
        if second == "packed_linear":
            given[second] = cycle(
                [torch.ops.mkldnn._reorder_linear_weight(each, products.PACKED_ROWS) for each in copies]
            )
        for rows in ROWS:
            x = torch.randn(rows, inputs).to(weight.dtype)
            ways = {"torch": functional.linear, second: partial(getattr(products, second), bias=None)}
            first = timeit(partial(ways[second], x, next(given[second])), number=1)
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(options.repetitions):
                for name, way in ways.items():
                    times[name].append(timeit(partial(way, x, next(given[name])), number=1))
            theirs, ours = median(times["torch"]), median(times[second])
            figures = (1e6 * theirs, 1e6 * ours, 1e6 * first)
            speed = 2 * rows * weight.numel() / ours / 1e9
            print(matrix, rows, *(f"{us:.0f}" for us in figures), f"{theirs / ours:.2f}", f"{speed:.0f}", sep=" | ")


if __name__ == "__main__":
    main()
