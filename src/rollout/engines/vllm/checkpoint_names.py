"""Every tensor that an engine computes with, under the names of the checkpoint.

vLLM fuses weights (``qkv_proj`` holds ``q_proj``, ``k_proj`` and ``v_proj``) and, on a CPU, packs linear weights away
and leaves ``weight`` empty.  A packed layer is read back by running it on the identity matrix: each output is one
weight times one plus zeros, which is exact in any precision.  One layer at a time is unpacked, never a second model.
Adapters of a fused layer lie side by side, each in a slot of a buffer that is as wide as the largest rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..lora import PREFIX, A, B

HEAD = "lm_head"
WRAPPER = ".base_layer"
"""In the path of a layer that vLLM wraps, for adapters to be added to it."""


@torch.no_grad()
def model_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """(Name in the checkpoint, tensor) of all that ``model``, one of vLLM's on one device, computes with."""
    fused: dict[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    # An output layer can be the very module of the input embedding: it is there twice, by both names.
    for path, module in model.named_modules(remove_duplicate=False):
        path = path.replace(WRAPPER, "")
        parent, _, leaf = path.rpartition(".")
        for name, parameter in module.named_parameters(recurse=False):
            # On a CPU an output layer keeps its weight beside the packed copy, since the input embedding may share it.
            packed = not parameter.numel() or (path == HEAD and hasattr(module, "cpu_linear"))
            tensor = _unpacked(module) if name == "weight" and packed else parameter
            if leaf not in fused:
                yield f"{path}.{name}", _without_padding(module, tensor)
                continue
            sizes = list(getattr(module, "output_partition_sizes"))  # noqa: B009  vLLM's, unknown to nn.Module
            for part, rows in zip(fused[leaf], tensor.split(sizes), strict=True):
                yield f"{parent}.{part}.{name}", rows


def _without_padding(module: nn.Module, tensor: Tensor) -> Tensor:
    return tensor[: getattr(module, "org_vocab_size", len(tensor))] if tensor.dim() else tensor


def _unpacked(module: Any) -> Tensor:
    """(out, in): the weights that a packed linear layer multiplies with."""
    width = getattr(module, "input_size_per_partition", 0) or module.weight.shape[1]
    result: Tensor = module.cpu_linear(torch.eye(width, dtype=module.weight.dtype), module.weight, None)
    return result.t()


@torch.no_grad()
def adapter_tensors(manager: Any, slot: int, rank: int) -> Iterator[tuple[str, Tensor]]:
    """(Name in a peft checkpoint, tensor) of all that vLLM, whose adapter ``manager`` this is, adds for ``slot``.

    A part of a buffer that is 0 throughout belongs to a layer without an adapter.  One that is not 0 beyond ``rank``,
    where nothing should be, comes whole, and so in a shape that the adapter does not have.  Slot 0, no adapter, is the
    last of the buffers, which a CPU adds to what has none: nothing should be there.
    """
    if slot and slot not in manager.lora_index_to_id:
        return
    index = manager.lora_index_to_id.index(slot) if slot else -1
    for path, module in manager.modules.items():
        parent, _, leaf = path.rpartition(".")
        parts = manager.packed_modules_mapping.get(leaf) or [leaf]
        for part, a, b in zip(parts, module.lora_a_stacked, module.lora_b_stacked, strict=True):
            down, up = a[index, 0], b[index, 0]  # (buffer's rank, in), (out, buffer's rank)
            if down.any() or up.any():
                clean = not down[rank:].any() and not up[:, rank:].any()
                yield f"{PREFIX}{parent}.{part}{A}", down[:rank] if clean else down
                yield f"{PREFIX}{parent}.{part}{B}", up[:, :rank] if clean else up
