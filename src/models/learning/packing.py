"""Samples -> TokenBatches: mini-batches of whole groups, packed with their prompts shared, cut into micro-batches.

The candidates of a node have one prompt, and an agent's later prompt may contain its earlier one and the completion.
What several sequences begin with is there once, and computed once: this saves most of a learner's work where prompts
are long and completions short.  Sequences with a common beginning make a row, a tree of tokens in depth-first order.
The prompt p q r with the completions a b c and d e, and the prompt p q r d e s of the next turn with the completion
f g (were they long enough to be worth it)::

    input_ids    p  q    r  a  b    r  d    e    s  f
    positions    0  1    2  3  4    2  3    4    5  6     each segment goes on where its sequence branched off
    segments     0  0    1  1  1    2  2    3    4  4
    targets              a  b  c    d  e         f  g

Token s sees p q r d e and itself: segments 0, 2, 3 and 4.

The last token of a completion is nobody's input, and the last token of a prompt begins the segment of each of its
completions, so that a segment's tokens either all predict targets (*scored*), or none does.  A token sees the segments
that its own continues, and what comes before it in its own: as if its sequence were alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Final

import torch

from ...experience import Sample, Segment, TokenBatch

Row = list[Sample]
"""Samples whose sequences share beginnings, in the order of these: of ``prompt_ids + token_ids``."""

LEAST_SHARED: Final = 4
"""Shorter beginnings are computed anew: to share them would cost more than it saves."""


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
    samples: Iterable[Sample], max_tokens: int, rank: int = 0, world: int = 1, *, every_sample: bool = False
) -> list[TokenBatch]:
    """The batches of :func:`micro_batch_rows`, packed.

    Samples with advantage 0 have no gradient under an objective without regularisers; unless ``every_sample``, they are
    left out here, and still count in the weights of the others.
    """
    samples = [sample for sample in samples if every_sample or sample.advantage != 0]
    return [pack(rows) for rows in micro_batch_rows(samples, max_tokens, rank, world)]


def micro_batch_rows(samples: Iterable[Sample], max_tokens: int, rank: int = 0, world: int = 1) -> list[list[Row]]:
    """The rows of batches of at most ``max_tokens`` tokens (or one sample), of similar length.

    A row belongs to one process, whatever ``max_tokens``; what is longer than a process's share is cut before.  All
    processes get equally many batches; one that lacks rows idles on samples of weight 0.
    """
    rows = rows_of(samples)
    share = -(-sum(map(_length, rows)) // world)
    rows = sorted((part for row in rows for part in _cut(row, share)), key=_length)
    cut = [[part for row in rows[i::world] for part in _cut(row, max_tokens)] for i in range(world)]
    shares = [_chunks(sorted(parts, key=_length), max_tokens) for parts in cut]
    idle = [[replace(sample, weight=0.0) for sample in _cut(row, max_tokens)[0]] for row in rows[:1]]
    return shares[rank] + [idle] * (max(map(len, shares)) - len(shares[rank]))


def _cut(row: Row, max_tokens: int) -> list[Row]:
    """``row`` in parts of at most ``max_tokens`` tokens, or of one sample."""
    parts: list[Row] = []
    room = 0
    for sample, shared in zip(row, _shared(row), strict=True):
        length = len(_sequence(sample))
        if not parts or length - shared > room:
            parts.append([])
            room, shared = max_tokens, 0
        parts[-1].append(sample)
        room -= length - shared
    return parts


def _chunks(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """``rows`` in batches, in order."""
    batches: list[list[Row]] = []
    room = 0
    for row in rows:
        if not batches or _length(row) > room:
            batches.append([])
            room = max_tokens
        batches[-1].append(row)
        room -= _length(row)
    return batches


def rows_of(samples: Iterable[Sample]) -> list[Row]:
    """``samples`` in rows: one joins the row of another if their sequences begin alike."""
    rows: list[Row] = []
    ordered = sorted(samples, key=lambda sample: sample.prompt_ids + sample.token_ids)
    for sample, shared in zip(ordered, _shared(ordered), strict=True):
        if not shared:
            rows.append([])
        rows[-1].append(sample)
    return rows


def draw_rows(samples: Iterable[Sample], share: float, rng: Random) -> list[Sample]:
    """The samples of a ``share`` of the prompts, for each agent and turn by itself: at least one prompt of each, all
    equally likely.

    ``weight`` says how many samples each stands for, so that a sum with these weights is on average that over all.
    """
    by_place: dict[tuple[str, int], dict[tuple[int, ...], list[Sample]]] = {}
    for sample in samples:
        by_place.setdefault((sample.agent, sample.turn), {}).setdefault(sample.prompt_ids, []).append(sample)
    chosen = []
    for by_prompt in by_place.values():
        count = math.ceil(share * len(by_prompt))
        for members in rng.sample(list(by_prompt.values()), count):
            chosen += [replace(sample, weight=len(by_prompt) / count) for sample in members]
    return chosen


# ---- the tree of a row ----------------------------------------------------------------------------------------------


def _sequence(sample: Sample) -> tuple[int, ...]:
    """What the model reads: the last token of the completion predicts nothing."""
    return sample.prompt_ids + sample.token_ids[:-1]


def _shared(samples: Sequence[Sample]) -> Iterator[int]:
    """How many tokens of each sequence are those of the one before, which is the nearest in a row's order.

    The last token of the prompt and what follows predict targets, and are never shared with earlier samples.
    """
    before: tuple[int, ...] = ()
    for sample in samples:
        sequence = _sequence(sample)
        most = min(len(before), len(sample.prompt_ids) - 1)
        shared = next((i for i in range(most) if before[i] != sequence[i]), most)
        yield shared if shared >= LEAST_SHARED else 0
        before = sequence


def _length(row: Row) -> int:
    return sum(len(_sequence(sample)) - shared for sample, shared in zip(row, _shared(row), strict=True))


def pack(rows: Sequence[Row]) -> TokenBatch:
    """Tensors of the rows, one after another; see :class:`TokenBatch` and the drawing above."""
    samples = [sample for row in rows for sample in row]
    ids: list[int] = []
    positions: list[int] = []
    stops: list[int] = []  # of each token, where the tokens that continue its sequence end
    scored: list[bool] = []
    cuts: set[int] = set()  # where segments begin
    shape = (len(samples), max(len(sample.token_ids) for sample in samples))
    targets, sources = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    mask, behaviour = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape)
    advantages = torch.tensor([sample.advantage for sample in samples])[:, None].repeat(1, shape[1])
    b = 0
    for row in rows:
        path: list[int] = []  # the tokens of a sequence, by position
        for sample, shared in zip(row, _shared(row), strict=True):
            sequence, count, start = _sequence(sample), len(sample.token_ids), len(sample.prompt_ids) - 1
            for token in path[shared:]:
                stops[token] = len(ids)
            cuts.update(path[shared : shared + 1])  # the sequence before goes on alone from here
            path = [*path[:shared], *range(len(ids), len(ids) + len(sequence) - shared)]
            cuts |= {len(ids), path[start]}
            ids += sequence[shared:]
            positions += range(shared, len(sequence))
            scored += [False] * (start - shared) + [True] * (len(sequence) - start)
            stops += [0] * (len(sequence) - shared)
            sources[b, :count] = torch.tensor(path[start : start + count])
            targets[b, :count] = torch.tensor(sample.token_ids)
            mask[b, :count] = True
            behaviour[b, :count] = torch.tensor(sample.behaviour_logprobs)
            if sample.penalties:
                advantages[b, :count] -= torch.tensor(sample.penalties)
            b += 1
        for token in path:
            stops[token] = len(ids)
    starts = sorted(cuts)
    return TokenBatch(
        input_ids=torch.tensor(ids),
        positions=torch.tensor(positions),
        segments=[Segment(i, j, stops[i], scored[i]) for i, j in zip(starts, [*starts[1:], len(ids)], strict=True)],
        sources=sources,
        targets=targets,
        mask=mask,
        places_filled=mask.flatten().nonzero()[:, 0],
        behaviour_logprobs=behaviour,
        advantages=advantages,
        weights=torch.tensor([sample.weight for sample in samples]),
        places=[(sample.agent, sample.turn) for sample in samples],
    )
