"""How fast the proof of weights reads: :func:`troupe.rollout.engines.vllm.digest.digest` beside SHA-256.  Usage::

    python bench/digests.py [--device cuda] [--threads 1] [--mb 256] [--repetitions 7]

GB/s, the best of the repetitions, which are interleaved.  SHA-256 has the tensor copied to the host first, where it is
not there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from hashlib import sha256
from timeit import timeit

import torch
from torch import Tensor

from troupe.rollout.engines.vllm.digest import digest


def plain(tensor: Tensor) -> str:
    return sha256(tensor.cpu().view(-1).view(torch.uint8).numpy().data).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.device}, {torch.backends.cpu.get_cpu_capability()}")
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.randn(arguments.mb * 10**6 // dtype.itemsize, device=arguments.device).to(dtype)
        ways: dict[str, Callable[[], str]] = {
            "digest": lambda tensor=tensor, dtype=dtype: digest(tensor, dtype),
            "SHA-256": lambda tensor=tensor: plain(tensor),
        }
        # Both end with the digest on the host, and so with all that was asked of a device.
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(arguments.repetitions):
            best = {name: min(best[name], timeit(work, number=1)) for name, work in ways.items()}
        print(
            f"{dtype}: " + ", ".join(f"{name} {tensor.nbytes / 1e9 / least:.2f} GB/s" for name, least in best.items())
        )


if __name__ == "__main__":
    main()
