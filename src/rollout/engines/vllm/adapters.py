"""Adapters in vLLM's process: loaded from memory, and read back from what it computes with.

vLLM stacks the adapters of a fused layer (``qkv_proj``) side by side, each in a slot of a buffer that is as wide as the
largest rank.  :func:`stacked` splits the buffers back into the tensors of a peft checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from ..lora import PREFIX, A, B

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""How wide vLLM's buffers can be."""


def buffer_width(policy: str, rank: int) -> int:
    """Of vLLM's buffers for adapters of at most ``rank``.  Raises ``ValueError``, naming the policy, beyond all."""
    if rank > RANKS[-1]:
        raise ValueError(f"policy '{policy}': vLLM runs adapters of rank r <= {RANKS[-1]}, got {rank}")
    return min(width for width in RANKS if width >= rank)


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """For the way to the process."""
    return save({name: tensor.contiguous() for name, tensor in tensors.items()})


def install(manager: Any, slot: int, rank: int, given: bytes) -> None:
    """Make ``given`` the adapter number ``slot`` of vLLM's adapter ``manager``.  Its scale is within B."""
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    adapter = LoRAModel.from_lora_tensors(
        slot,
        load(given),
        PEFTHelper(r=rank, lora_alpha=rank, target_modules=[]),
        device="cpu",
        dtype=manager.lora_config.lora_dtype,
    )
    manager.remove_adapter(slot)
    manager.add_adapter(adapter)
    manager.activate_adapter(slot)
    for wrapper in manager.punica_wrapper_mapping.values():
        if manager.device.type == "cpu":
            wrapper.add_lora_linear = MethodType(add_by_adapter, wrapper)


def clear(manager: Any) -> None:
    """Make every slot of vLLM's adapter ``manager`` empty, whatever its buffers hold."""
    manager.remove_all_adapters()
    for module in manager.modules.values():
        for index in range(manager.lora_slots):
            module.reset_lora(index)


@torch.no_grad()
def add_by_adapter(
    wrapper: Any,
    y: Tensor,
    x: Tensor,
    down: Sequence[Tensor],
    up: Sequence[Tensor],
    scale: float,
    widths: Sequence[int],
    **_: Any,
) -> None:
    """Add to ``y`` (tokens, out) what each token's adapter makes of ``x`` (tokens, in); ``down`` (slots, 1, r, in) and
    ``up`` (slots, 1, out, r) are those of the parts of a fused layer, ``widths`` wide.

    In place of vLLM's own on a CPU, which gathers a copy of the matrices for every token.
    """
    slots = wrapper.token_lora_indices[: len(x)]
    for slot in slots.unique().tolist():
        if slot < 0:  # no adapter
            continue
        mine = (slots == slot).nonzero()[:, 0]
        asked, start = x[mine].float(), 0
        for a, b, width in zip(down, up, widths, strict=True):
            low = (asked @ a[slot, 0].float().t() * scale).to(y.dtype)
            y[:, start : start + width].index_add_(0, mine, low @ b[slot, 0].t())
            start += width


def stacked(manager: Any, slot: int, rank: int) -> Iterator[tuple[str, Tensor]]:
    """(Name in a peft checkpoint, tensor) of all that vLLM computes with for adapter ``slot``.

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
            if not down.any() and not up.any():
                continue
            clean = not down[rank:].any() and not up[:, rank:].any()
            yield f"{PREFIX}{parent}.{part}{A}", down[:rank] if clean else down
            yield f"{PREFIX}{parent}.{part}{B}", up[:, :rank] if clean else up
