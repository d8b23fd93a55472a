"""Samples -> TokenBatches: shuffled mini-batches of whole groups, cut into length-sorted micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import torch

from ..experience import Sample, TokenBatch


def mini_batches(groups: Sequence[Sequence[Sample]], count: int, rng: Random) -> list[list[Sample]]:
    """Split groups at random into ``count`` parts of nearly equal size, each with weights rescaled to sum to 1."""
    order = list(groups)
    rng.shuffle(order)
    count = min(count, len(order))
    parts = [[sample for group in order[i::count] for sample in group] for i in range(count)]
    return [_rescaled(part) for part in parts]


def _rescaled(samples: list[Sample]) -> list[Sample]:
    total = sum(sample.weight for sample in samples)
    return [
        Sample(s.policy, s.prompt_ids, s.token_ids, s.behaviour_logprobs, s.advantage, s.weight / total)
        for s in samples
    ]


def micro_batches(samples: Iterable[Sample], max_tokens: int, pad_id: int) -> list[TokenBatch]:
    """Batches of at most ``max_tokens`` tokens, padding included (or one sequence), of sequences of like length.

    Samples with advantage 0 have no gradient under a clipped objective without regularisers; they are left out here,
    and still count in the weights of the others.
    """
    live = sorted((s for s in samples if s.advantage != 0), key=lambda s: len(s.prompt_ids) + len(s.token_ids))
    batches: list[list[Sample]] = []
    for sample in live:
        length = len(sample.prompt_ids) + len(sample.token_ids)
        if not batches or (len(batches[-1]) + 1) * length > max_tokens:
            batches.append([])
        batches[-1].append(sample)
    return [pack(batch, pad_id) for batch in batches]


def pack(samples: Sequence[Sample], pad_id: int) -> TokenBatch:
    """Right-padded tensors; see :class:`TokenBatch`."""
    width = max(len(s.prompt_ids) + len(s.token_ids) for s in samples)
    shape = (len(samples), width)
    input_ids = torch.full(shape, pad_id, dtype=torch.long)
    attention_mask, mask = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    behaviour = torch.zeros(shape)
    for row, sample in enumerate(samples):
        start, end = len(sample.prompt_ids), len(sample.prompt_ids) + len(sample.token_ids)
        input_ids[row, :end] = torch.tensor(sample.prompt_ids + sample.token_ids)
        attention_mask[row, :end] = True
        mask[row, start:end] = True
        behaviour[row, start:end] = torch.tensor(sample.behaviour_logprobs)
    return TokenBatch(
        input_ids=input_ids,
        attention_mask=attention_mask,
        mask=mask,
        behaviour_logprobs=behaviour,
        advantages=torch.tensor([s.advantage for s in samples]),
        weights=torch.tensor([s.weight for s in samples]),
    )
