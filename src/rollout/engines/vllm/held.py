"""Every tensor that an engine computes with, under the names of the checkpoint.

vLLM fuses weights (``qkv_proj`` holds ``q_proj``, ``k_proj`` and ``v_proj``) and, on a CPU, packs linear weights away
and leaves ``weight`` empty.  A packed layer is read back by running it on the identity matrix: each output is one
weight times one plus zeros, which is exact in any precision.  One layer at a time is unpacked, never a second model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

HEAD = "lm_head"
WRAPPED = ".base_layer"
"""In the path of a layer that vLLM wraps, for adapters to be added to it."""


@torch.no_grad()
def held(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(Name in the checkpoint, tensor) of all that ``model``, one of vLLM's on one device, computes with."""
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    for path, module in model.named_modules():
        path = path.replace(WRAPPED, "")
        for name, parameter in module.named_parameters(recurse=False):
            # An output layer keeps its weight beside the packed copy, since the input embedding may share it.
            packed = not parameter.numel() or (path == HEAD and hasattr(module, "cpu_linear"))
            yield from _split(
                path, name, _unpacked(module) if name == "weight" and packed else parameter, module, fused
            )
    yield from _tied_head(model)


def _tied_head(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """An output layer that is the very module of the input embedding.  On a CPU it has a packed copy of its own."""
    head = getattr(model, HEAD, None)
    tied = {path for path, module in model.named_modules(remove_duplicate=False) if module is head} - {HEAD}
    if isinstance(head, nn.Module) and tied:
        tensor = _unpacked(head) if hasattr(head, "cpu_linear") else _weight(head)
        yield f"{HEAD}.weight", tensor[: _rows(head, tensor)]


def _split(
    path: str, name: str, tensor: Tensor, module: nn.Module, fused: Mapping[str, list[str]]
) -> Iterator[tuple[str, Tensor]]:
    """The checkpoint's tensors that lie in one of the engine's."""
    parent, _, leaf = path.rpartition(".")
    if leaf not in fused:
        yield f"{path}.{name}", tensor[: _rows(module, tensor)] if tensor.dim() else tensor
        return
    sizes = getattr(module, "output_partition_sizes")  # noqa: B009  vLLM's, unknown to nn.Module
    for part, rows in zip(fused[leaf], tensor.split(list(sizes)), strict=True):
        yield f"{parent}.{part}.{name}", rows


def _rows(module: nn.Module, tensor: Tensor) -> int:
    """Rows without the padding of a vocabulary."""
    return int(getattr(module, "org_vocab_size", tensor.shape[0]))


def _weight(module: nn.Module) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight


def _unpacked(module: nn.Module) -> Tensor:
    """(out, in): the weights that a packed linear layer multiplies with."""
    linear: Any = module.cpu_linear
    weight = _weight(module)
    identity = torch.eye(int(getattr(module, "input_size_per_partition", 0)) or weight.shape[1], dtype=weight.dtype)
    result: Tensor = linear(identity, weight, None)
    return result.t()
