"""Stores: tensors and lists with an entry for each row or group, dense, that grow and lose entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor


def moves(size: int, removed: Sequence[int]) -> tuple[list[int], list[int]]:
    """How to close the gaps that ``removed`` leaves in ``range(size)``: (gaps, sources), from the end to the gaps."""
    missing, left = set(removed), size - len(removed)
    gaps = [i for i in range(left) if i in missing]
    sources = [i for i in range(left, size) if i not in missing]
    return gaps, sources


def close_gaps(values: list[Any], removed: Sequence[int]) -> None:
    """Apply :func:`moves` to a list in place."""
    for gap, source in zip(*moves(len(values), removed), strict=True):
        values[gap] = values[source]
    del values[len(values) - len(removed) :]


def move(store: Mapping[int, Sequence[Tensor]], gaps: Sequence[int], sources: Sequence[int]) -> None:
    """Apply :func:`moves` to the first dimension of all tensors of ``store``."""
    if gaps:
        for pair in store.values():
            for tensor in pair:
                tensor[gaps] = tensor[sources]


def enlarged(tensor: Tensor, entries: int, columns: int, dim: int) -> Tensor:
    """``tensor`` with at least so many entries, and columns in ``dim``; entries grow by half, so rarely copied."""
    if tensor.shape[0] >= entries and tensor.shape[dim] >= columns:
        return tensor
    shape = list(tensor.shape)
    shape[0] = max(entries, shape[0] * 3 // 2) if entries > shape[0] else shape[0]
    shape[dim] = max(columns, shape[dim])
    new = tensor.new_zeros(shape)
    new[: tensor.shape[0]].narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
    return new
