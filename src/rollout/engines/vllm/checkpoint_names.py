"""Every tensor that an engine computes with, under the names of the checkpoint.

vLLM fuses weights (``qkv_proj`` holds ``q_proj``, ``k_proj`` and ``v_proj``) and, on a CPU, packs linear weights away
and leaves ``weight`` empty.  A packed layer is read back by running it on the identity matrix: each output is one
weight times one plus zeros, which is exact in any precision.  One layer at a time is unpacked, never a second model.
Adapters of a fused layer lie side by side, each in a slot of a buffer that is as wide as the largest rank.

Where a model is tensor parallel, each process has a shard of most layers: some outputs, or of a layer that follows such
a one some inputs.  Tensors are gathered one at a time, in the same order in all processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..lora import PREFIX, A, B

HEAD = "lm_head"
WRAPPER = ".base_layer"
"""In the path of a layer that vLLM wraps, for adapters to be added to it."""


@dataclass(frozen=True)
class Shards:
    """Tensors that are divided among processes, of which this one is number ``rank``.

    ``gather`` stacks what all of them have of a tensor, in their order: (processes, ...).  All call it at once.
    """

    rank: int = 0
    gather: Callable[[Tensor], Tensor] = lambda shard: shard[None]

    def whole(self, shard: Tensor, dim: int | None, copies: int = 1) -> Tensor:
        """The tensor of which this process has ``shard``, divided along ``dim``; None: it has all of it.

        Each shard is in ``copies`` processes that follow each other.  The tensor is made of this process's copy, and of
        each other shard of the one in the same place.
        """
        if dim is None:
            return shard
        return self.gather(shard.contiguous())[self.rank % copies :: copies].movedim(0, dim).flatten(dim, dim + 1)


WHOLE = Shards()
"""One process."""


def _divided(module: Any) -> int | None:
    """The dimension along which the matrix (out, in) of a layer is divided; None: not at all."""
    outputs, inputs = (getattr(module, f"{side}_size_per_partition", None) for side in ("output", "input"))
    if outputs is not None and outputs < module.output_size:
        return 0
    return 1 if inputs is not None and inputs < getattr(module, "input_size", inputs) else None


def _copies(module: Any, part: int) -> int:
    """How many processes have the same shard of a fused layer's ``part``: there may be few heads of keys and values."""
    return getattr(module, "num_kv_head_replicas", 1) if part else 1


@torch.no_grad()
def model_tensors(model: nn.Module, shards: Shards = WHOLE) -> Iterator[tuple[str, Tensor]]:
    """(Name in the checkpoint, tensor) of all that ``model``, one of vLLM's, computes with; see :class:`Shards`."""
    fused: dict[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    # An output layer can be the very module of the input embedding: it is there twice, by both names.
    for path, module in model.named_modules(remove_duplicate=False):
        path = path.replace(WRAPPER, "")
        parent, _, leaf = path.rpartition(".")
        for name, parameter in module.named_parameters(recurse=False):
            # On a CPU an output layer keeps its weight beside the packed copy, since the input embedding may share it.
            packed = not parameter.numel() or (path == HEAD and hasattr(module, "cpu_linear"))
            tensor = _unpacked(module) if name == "weight" and packed else parameter
            dim = _divided(module)
            dim = None if dim == tensor.dim() else dim  # a bias of all outputs
            if leaf not in fused:
                yield f"{path}.{name}", _without_padding(module, shards.whole(tensor, dim))
                continue
            sizes = list(getattr(module, "output_partition_sizes"))  # noqa: B009  vLLM's, unknown to nn.Module
            for index, (layer, rows) in enumerate(zip(fused[leaf], tensor.split(sizes), strict=True)):
                yield f"{parent}.{layer}.{name}", shards.whole(rows, dim, _copies(module, index))


def _without_padding(module: nn.Module, tensor: Tensor) -> Tensor:
    return tensor[: getattr(module, "org_vocab_size", len(tensor))] if tensor.dim() else tensor


def _unpacked(module: Any) -> Tensor:
    """(out, in): the weights that a packed linear layer multiplies with."""
    width = getattr(module, "input_size_per_partition", 0) or module.weight.shape[1]
    result: Tensor = module.cpu_linear(torch.eye(width, dtype=module.weight.dtype), module.weight, None)
    return result.t()


@torch.no_grad()
def adapter_tensors(manager: Any, slot: int, rank: int, shards: Shards = WHOLE) -> Iterator[tuple[str, Tensor]]:
    """(Name in a peft checkpoint, tensor) of all that vLLM, whose adapter ``manager`` this is, adds for ``slot``; see
    :class:`Shards`.

    A part of a buffer that is 0 throughout belongs to a layer without an adapter.  One that is not 0 beyond ``rank``,
    where nothing should be, comes whole, and so in a shape that the adapter does not have.  Slot 0, no adapter, is the
    last of the buffers, which a CPU adds to what has none: nothing should be there.
    """
    buffer = next(iter(manager.modules.values())).lora_a_stacked[0]
    here = buffer.new_tensor([not slot or slot in manager.lora_index_to_id])
    if not shards.whole(here, 0).all():  # or some processes would wait for others
        return
    index = manager.lora_index_to_id.index(slot) if slot else -1
    for path, module in manager.modules.items():
        parent, _, leaf = path.rpartition(".")
        layers, dim = manager.packed_modules_mapping.get(leaf) or [leaf], _divided(module.base_layer)
        buffers = zip(layers, module.lora_a_stacked, module.lora_b_stacked, strict=True)
        for place, (layer, a, b) in enumerate(buffers):
            down = shards.whole(a[index, 0], dim if dim == 1 else None)  # (buffer's rank, in)
            up = shards.whole(b[index, 0], dim if dim == 0 else None, _copies(module.base_layer, place))  # (out, rank)
            if down.any() or up.any():
                clean = not down[rank:].any() and not up[:, rank:].any()
                yield f"{PREFIX}{parent}.{layer}{A}", down[:rank] if clean else down
                yield f"{PREFIX}{parent}.{layer}{B}", up[:, :rank] if clean else up
