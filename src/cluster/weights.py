"""Weights in Ray's object store."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

Packed = dict[str, tuple[np.ndarray, str]]
"""Arrays, with the names of torch's dtypes: Ray keeps arrays in shared memory, where the processes of a node read them
without a copy."""


def packed(weights: Mapping[str, Tensor]) -> Packed:
    """``weights`` as arrays; bfloat16, which numpy does not have, as whole numbers of the same bits."""
    result: Packed = {}
    for key, weight in weights.items():
        plain = weight.detach().cpu().contiguous()
        bits = plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain
        result[key] = bits.numpy(), str(plain.dtype).removeprefix("torch.")
    return result


def unpacked(arrays: Packed) -> dict[str, Tensor]:
    """Tensors in the memory of ``arrays``, which must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return {key: torch.from_numpy(array).view(getattr(torch, dtype)) for key, (array, dtype) in arrays.items()}


class StoredWeights(Mapping[str, Tensor]):
    """Weights in Ray's object store, which travel to this process where they are read."""

    def __init__(self, reference: Any) -> None:
        self.reference = reference
        self._weights: dict[str, Tensor] | None = None

    @property
    def _here(self) -> dict[str, Tensor]:
        if self._weights is None:
            self._weights = unpacked(import_module("ray").get(self.reference))
        return self._weights

    def __getitem__(self, key: str) -> Tensor:
        return self._here[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._here)

    def __len__(self) -> int:
        return len(self._here)
