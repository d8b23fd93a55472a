"""A digest of a tensor, made where the tensor lies, and the comparison of an engine's digests with the learner's.

The bits are read as words of 64, in blocks of :data:`WORDS`.  Of each block two sums are made, each of

    t * (t >> 32)  modulo 2^64,   t = word + key of the word's place in the block,

and SHA-256 is of the dtype, the shape and the sums in their order.  All of it is integer arithmetic, so that CPU and
GPU agree, whatever the number of threads and however much is computed at a time.

Two different blocks have the same sum for at most 2^33 of the 2^64 keys at a word in which they differ: where the high
half of t differs too, that difference times the low half must be one certain number, which determines the low half;
where it does not, the difference of the low halves determines the high half.  (So argue Black et al., "UMAC: Fast and
Secure Message Authentication", 1999, of their NH.)  Both sums are the same with a probability of at most 2^-62, then,
for keys that have nothing to do with the weights.  The keys are no secret: this is a defence against accidents, not
against somebody who wants to deceive.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256, shake_256

import torch
from torch import Tensor

from ..base import EngineError

Digests = dict[str, str]
"""Name in the checkpoint -> hexadecimal digest."""

WORDS = 4096
"""In a block."""
KEYS = torch.frombuffer(bytearray(shake_256(b"troupe").digest(2 * WORDS * 8)), dtype=torch.int64).view(2, WORDS)
"""(2, WORDS) int64: of each sum, for each place in a block."""
BLOCK_BYTES = 8 * WORDS
CACHE_BLOCKS, DEVICE_BLOCKS = 8, 256
"""How many are computed at a time: on a CPU what its cache holds; elsewhere enough work for a device, which needs five
times the room for it (40 MiB)."""


class WeightsMismatchError(EngineError):
    """An engine computes with other weights than those it was given; the message names policy and tensors."""


def digest(tensor: Tensor, dtype: torch.dtype) -> str:
    """Of shape and values in ``dtype``; -0 counts as 0, and NaN need not equal itself.

    A tensor that is not contiguous is copied whole.
    """
    return digests([("", tensor)], dtype)[""]


def _sums(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """(blocks, 2) int64 of ``numbers`` (n,), the last block filled with zeros."""
    device, width = numbers.device, BLOCK_BYTES // dtype.itemsize
    blocks = min(CACHE_BLOCKS if device.type == "cpu" else DEVICE_BLOCKS, -(-len(numbers) // width))
    keys = KEYS.to(device)
    values = torch.empty(blocks, width, dtype=dtype, device=device)
    mixed = torch.empty(blocks, *KEYS.shape, dtype=torch.int64, device=device)
    halves, sums = torch.empty_like(mixed), []
    for piece in numbers.split(max(1, values.numel())):
        count = -(-len(piece) // width)
        filled = values[:count].view(-1)
        filled[: len(piece)] = piece
        filled[len(piece) :] = 0
        filled += 0.0  # which makes 0 of -0
        torch.add(values[:count].view(torch.int64)[:, None], keys, out=mixed[:count])
        torch.bitwise_right_shift(mixed[:count], 32, out=halves[:count])
        sums.append(mixed[:count].mul_(halves[:count]).sum(-1))
    return torch.cat(sums)


def digests(tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> Digests:
    """The :func:`digest` of each of ``tensors``; a device is waited for once, and not after each of them."""
    sums = {name: (tensor.shape, _sums(tensor.detach().reshape(-1), dtype)) for name, tensor in tensors}
    return {name: _hashed(dtype, shape, of_blocks.cpu()) for name, (shape, of_blocks) in sums.items()}


def _hashed(dtype: torch.dtype, shape: torch.Size, sums: Tensor) -> str:
    hashed = sha256(f"{dtype} {tuple(shape)}".encode())
    hashed.update(sums.numpy().data)
    return hashed.hexdigest()


def compare(policy: str, expected: Digests, engine: Digests) -> None:
    """Raise :class:`WeightsMismatchError` unless the engine holds every tensor of the learner, and no other."""
    problems = {
        "differ": [name for name in expected if name in engine and engine[name] != expected[name]],
        "are missing in the engine": [name for name in expected if name not in engine],
        "are unknown to the learner": [name for name in engine if name not in expected],
    }
    if text := "; ".join(f"{_some(names)} {what}" for what, names in problems.items() if names):
        raise WeightsMismatchError(
            f"policy '{policy}': the engine does not compute with the weights that it was given: {text}"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
