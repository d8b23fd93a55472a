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


Size = tuple[int, int]
"""Entries of a store, and the columns of each."""


def grown(present: Size, needed: Size) -> Size:
    """What a store of the ``present`` size becomes for what is ``needed``.

    Entries grow by half, so rarely copied.  What is twice as large as needed shrinks; where columns change, all is
    copied, and no more entries are kept than are needed.
    """
    (entries, columns), (least, width) = present, needed
    wide = width if not width <= columns <= 2 * width else columns
    if least > entries:
        return max(least, entries * 3 // 2), wide
    return least if wide != columns or entries > 2 * least else entries, wide


def enlarged(tensor: Tensor, needed: Size, dim: int) -> Tensor:
    """``tensor`` with room for what is ``needed``, columns in ``dim`` (:func:`grown`); that much of it is kept."""
    shape = list(tensor.shape)
    shape[0], shape[dim] = grown((tensor.shape[0], tensor.shape[dim]), needed)
    if tuple(shape) == tuple(tensor.shape):
        return tensor
    new = tensor.new_zeros(shape)
    entries, columns = min(tensor.shape[0], shape[0]), min(tensor.shape[dim], shape[dim])
    new[:entries].narrow(dim, 0, columns).copy_(tensor[:entries].narrow(dim, 0, columns))
    return new
