"""The operations of a policy's passes, and what a GPU could do meanwhile: MFU (arXiv 2204.02311, appendix B)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from transformers import PreTrainedModel

from ...experience import TokenBatch

PEAK_TFLOPS: Final = {"H100": 989, "H200": 989, "A100": 312, "L40S": 362, "L4": 121, "4090": 165, "A10G": 70}
"""Dense bfloat16, by a part of the device's name; the first that fits."""


def peak(device: torch.device) -> float | None:
    """Operations per second of a GPU in bfloat16, whatever it computes in; None for others and unknown ones."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((1e12 * tflops for part, tflops in PEAK_TFLOPS.items() if part in name), None)


@dataclass
class Operations:
    """A sum over passes, of the model's own operations: 2 per weight and token, the head where tokens are scored, and 4
    per number of a query head and pair of tokens that see each other.  Gradients cost as much for the inputs of the
    layers, and again for weights that learn; twice for the pairs.  What is computed a second time to save memory does
    not count, nor do norms and activations.
    """

    layers: int
    """Weights of the layers' matrices, without adapters."""
    head: int
    pair: int
    """Numbers of all query heads of all layers."""
    adapter: int
    """Weights that learn, where the others are frozen; else 0."""
    done: float = 0.0

    @classmethod
    def of(
        cls, model: PreTrainedModel, learnt: Sequence[nn.Parameter], adapters: Collection[nn.Parameter]
    ) -> Operations | None:
        """For a policy that learns ``learnt``; ``adapters`` are those of all policies.  None for a mixture of experts,
        of whose weights a token meets a part.
        """
        config = model.config
        if getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None):
            return None
        others = set(adapters)
        others |= {part.weight for part in (model.get_input_embeddings(), model.get_output_embeddings())}
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(
            layers=sum(p.numel() for p in model.parameters() if p.dim() > 1 and p not in others),
            head=config.hidden_size * config.vocab_size,
            pair=config.num_hidden_layers * config.num_attention_heads * width,
            adapter=sum(weight.numel() for weight in learnt) if adapters else 0,
        )

    def add(self, batch: TokenBatch, *, learning: bool) -> None:
        """A pass over ``batch``, with a backward pass where it learns."""
        tokens = len(batch.input_ids)
        scored = pairs = 0
        for start, end, stop, is_scored in batch.segments:
            length = end - start
            scored += length * is_scored
            pairs += length * (length + 1) // 2 + length * (stop - end)
        forward, attention = 2 * (self.layers * tokens + self.head * scored), 4 * self.pair * pairs
        passes = (2 if self.adapter else 3) if learning else 1
        self.done += passes * forward + (3 if learning else 1) * (attention + 2 * self.adapter * tokens)
