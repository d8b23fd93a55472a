"""Weights as arrays for Ray's object store."""

import pytest
import torch

from troupe.cluster.actors import packed, unpacked


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_keep_every_bit(dtype: torch.dtype) -> None:
    weights = {"a": torch.randn(3, 4).to(dtype), "b": torch.randn(4, 6).to(dtype).T, "c": torch.randn(()).to(dtype)}
    arrays = packed(weights)
    for array, _ in arrays.values():
        array.flags.writeable = False  # as Ray gives them back
    again = unpacked(arrays)
    assert again.keys() == weights.keys()
    for key, value in weights.items():
        assert again[key].dtype == dtype and torch.equal(again[key], value)
