"""Samples -> TokenBatches: mini-batches of whole groups, packed with their prompts shared, cut into micro-batches.

The candidates of a node have one prompt, so a row holds that prompt once and then the completions, one after another.
This saves most of a learner's work where prompts are long and completions short.  A row with the prompt p0 p1 p2, the
completions a0 a1 and b0 b1 b2, and two tokens of padding::

                 prompt       completion 1   completion 2    padding
    input_ids    p0  p1  p2   a0  a1         b0  b1  b2      -   -
    positions     0   1   2    3   4          3   4   5      0   0     each completion directly follows the prompt
    segments      0   0   0    1   1          2   2   2     -1  -1

A token sees the prompt, and what comes before it in its own segment, as if its completion were alone (x)::

           p0  p1  p2  a0  a1  b0  b1  b2
    p2      x   x   x
    a1      x   x   x   x   x
    b1      x   x   x           x   x

``sources`` says which place in the row predicts a token: p2 predicts a0 and b0, a0 predicts a1, b0 predicts b1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import torch

from ..experience import Sample, TokenBatch

Row = list[Sample]
"""Samples of one prompt that share a row."""


def mini_batches(
    groups: Sequence[Sequence[Sample]], count: int, rng: Random, *, by_tokens: bool = False
) -> list[list[Sample]]:
    """Split groups at random into ``count`` parts of nearly equal size, each with its weights divided by the sum of its
    shares: its part of all groups.

    So the gradient of a part is, on average over the splits, that of the whole, and ``weight=message`` sums to 1.  A
    division by the sum of the weights would make episodes of many messages count less under ``weight=episode``.

    With ``by_tokens`` a sample's weight is proportional to its number of tokens, whatever its group.
    """
    order = list(groups)
    rng.shuffle(order)
    count = min(count, len(order))
    parts = [[sample for group in order[i::count] for sample in group] for i in range(count)]
    if by_tokens:
        parts = [[replace(sample, weight=float(len(sample.token_ids)), share=None) for sample in p] for p in parts]
    return [_rescale(part) for part in parts]


def _rescale(samples: list[Sample]) -> list[Sample]:
    total = sum(sample.weight if sample.share is None else sample.share for sample in samples)
    return [replace(sample, weight=sample.weight / total) for sample in samples]


def micro_batches(
    samples: Iterable[Sample],
    max_tokens: int,
    pad_id: int,
    rank: int = 0,
    world: int = 1,
    *,
    every_sample: bool = False,
) -> list[TokenBatch]:
    """The batches of :func:`micro_batch_rows`, packed.

    Samples with advantage 0 have no gradient under an objective without regularisers; unless ``every_sample``, they are
    left out here, and still count in the weights of the others.
    """
    samples = [sample for sample in samples if every_sample or sample.advantage != 0]
    return [pack(rows, pad_id) for rows in micro_batch_rows(samples, max_tokens, rank, world)]


def micro_batch_rows(samples: Iterable[Sample], max_tokens: int, rank: int = 0, world: int = 1) -> list[list[Row]]:
    """The rows of batches of at most ``max_tokens`` tokens, padding included (or one sample), of similar length.

    Row i belongs to process i modulo ``world``, whatever ``max_tokens``; one that is longer is cut.  All processes get
    equally many batches; one that lacks rows idles on samples of weight 0.
    """
    rows = sorted(rows_of(samples), key=_length)
    cut = [[part for row in rows[i::world] for part in _cut(row, max_tokens)] for i in range(world)]
    shares = [_chunks(sorted(parts, key=_length), max_tokens) for parts in cut]
    idle = [[replace(sample, weight=0.0) for sample in _cut(row, max_tokens)[0]] for row in rows[:1]]
    return shares[rank] + [idle] * (max(map(len, shares)) - len(shares[rank]))


def _cut(row: Row, max_tokens: int) -> list[Row]:
    """``row`` in parts of at most ``max_tokens`` tokens, or of one sample."""
    parts: list[Row] = [[]]
    for sample in row:
        if parts[-1] and _length([*parts[-1], sample]) > max_tokens:
            parts.append([])
        parts[-1].append(sample)
    return parts


def _chunks(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Cut ``rows``, which grow in length, into batches; the last row of a batch is its longest."""
    batches: list[list[Row]] = []
    for row in rows:
        if not batches or (len(batches[-1]) + 1) * _length(row) > max_tokens:
            batches.append([])
        batches[-1].append(row)
    return batches


def rows_of(samples: Iterable[Sample]) -> list[Row]:
    """Put samples of one prompt into common rows, as long as a row's completions are at most twice its prompt.

    Attention costs the square of a row's length, so long completions cost less in rows of their own.
    """
    by_prompt: dict[tuple[int, ...], list[Row]] = {}
    for sample in samples:
        rows = by_prompt.setdefault(sample.prompt_ids, [[]])
        length = sum(len(other.token_ids) for other in rows[-1]) + len(sample.token_ids)
        if rows[-1] and length > 2 * len(sample.prompt_ids):
            rows.append([])
        rows[-1].append(sample)
    return [row for rows in by_prompt.values() for row in rows]


def draw_rows(samples: Iterable[Sample], share: float, rng: Random) -> list[Sample]:
    """The samples of a ``share`` of the rows, for each agent and turn by itself: at least one row of each, all rows
    equally likely.

    ``weight`` says how many samples each stands for, so that a sum with these weights is on average that over all.
    """
    by_place: dict[tuple[str, int], list[Row]] = {}
    for row in rows_of(samples):
        by_place.setdefault((row[0].agent, row[0].turn), []).append(row)
    chosen = []
    for rows in by_place.values():
        count = math.ceil(share * len(rows))
        for row in rng.sample(rows, count):
            chosen += [replace(sample, weight=len(rows) / count) for sample in row]
    return chosen


def _length(row: Row) -> int:
    return len(row[0].prompt_ids) + sum(len(sample.token_ids) for sample in row)


def pack(rows: Sequence[Row], pad_id: int) -> TokenBatch:
    """Right-padded tensors; see :class:`TokenBatch` and the drawing above."""
    samples = [sample for row in rows for sample in row]
    packed = (len(rows), max(map(_length, rows)))
    input_ids, positions = torch.full(packed, pad_id), torch.zeros(packed, dtype=torch.long)
    segments = torch.full(packed, -1)
    padded = (len(samples), max(len(sample.token_ids) for sample in samples))
    targets, sources = torch.zeros(padded, dtype=torch.long), torch.zeros(padded, dtype=torch.long)
    mask, behaviour = torch.zeros(padded, dtype=torch.bool), torch.zeros(padded)
    advantages = torch.tensor([sample.advantage for sample in samples])[:, None].repeat(1, padded[1])
    row_of, b = [], 0
    for r, row in enumerate(rows):
        prompt = row[0].prompt_ids
        end = len(prompt)
        input_ids[r, :end], positions[r, :end], segments[r, :end] = torch.tensor(prompt), torch.arange(end), 0
        for segment, sample in enumerate(row, start=1):
            start, length = end, len(sample.token_ids)
            end += length
            input_ids[r, start:end] = targets[b, :length] = torch.tensor(sample.token_ids)
            positions[r, start:end] = torch.arange(len(prompt), len(prompt) + length)
            segments[r, start:end] = segment
            sources[b, :length] = torch.arange(start - 1, end - 1)
            sources[b, 0] = len(prompt) - 1  # its first token follows the prompt, not the completion before it
            mask[b, :length] = True
            behaviour[b, :length] = torch.tensor(sample.behaviour_logprobs)
            if sample.penalties:
                advantages[b, :length] -= torch.tensor(sample.penalties)
            row_of.append(r)
            b += 1
    return TokenBatch(
        input_ids=input_ids,
        positions=positions,
        segments=segments,
        rows=torch.tensor(row_of),
        sources=sources,
        targets=targets,
        mask=mask,
        behaviour_logprobs=behaviour,
        advantages=advantages,
        weights=torch.tensor([sample.weight for sample in samples]),
        places=[(sample.agent, sample.turn) for sample in samples],
    )
