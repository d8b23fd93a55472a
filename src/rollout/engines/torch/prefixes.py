"""Prefixes: keys and values of earlier prompts and completions, which later prompts begin with.

An agent whose chat grows asks with its earlier prompts and messages again, token by token.  What its model has computed
of these depends on nothing that follows, so that the next prompt is read from there on.

A sequence is the tokens of a prompt, or of a prompt and a completion, with the :class:`Part` s that hold their keys and
values.  The K completions of a prompt share its parts, and what continues a sequence shares that sequence's: a part is
stored once.  Sequences are sorted, so that the longest common beginning with any of them is that with a neighbour.

Stores: tensors and lists with an entry for each row or group, dense, that grow and lose entries.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

LEAST_SHARE = 0.25
"""Of a prompt, that must be known: attention to a prefix has a mask, and costs more for each token than without."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Keys and values of successive tokens: (Hkv, t, D) each, by layer."""

    layers: Mapping[int, tuple[Tensor, Tensor]]

    @cached_property
    def bytes(self) -> int:
        return sum(tensor.nbytes for pair in self.layers.values() for tensor in pair)


class Part(NamedTuple):
    """The first ``tokens`` of a piece."""

    piece: Piece
    tokens: int


@dataclass(frozen=True)
class Prefix:
    """The beginning of a prompt: its first ``length`` tokens, whose keys and values ``parts`` hold, in order."""

    length: int = 0
    parts: tuple[Part, ...] = ()


class PrefixCache:
    """The sequences of one policy, of its present weights.

    They take at most ``limit`` bytes; the least recently used one goes first.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.bytes = 0
        self._sorted: list[tuple[int, ...]] = []
        self._parts: OrderedDict[tuple[int, ...], tuple[Part, ...]] = OrderedDict()  # least recently used first
        self._uses: Counter[Piece] = Counter()  # by how many sequences

    def __len__(self) -> int:
        return len(self._sorted)

    def find(self, prompt: tuple[int, ...]) -> Prefix:
        """The longest known beginning of ``prompt``, without its last token, after which logits are needed; none where
        it is less than :data:`LEAST_SHARE` of the prompt.
        """
        place = bisect_left(self._sorted, prompt)
        neighbours = self._sorted[max(0, place - 1) : place + 1]
        length, sequence = max(((_common(prompt, each), each) for each in neighbours), default=(0, ()))
        length = min(length, len(prompt) - 1)
        if not length or length < LEAST_SHARE * len(prompt):
            return Prefix()
        self._parts.move_to_end(sequence)
        return Prefix(length, _cut(self._parts[sequence], length))

    def add(self, sequence: tuple[int, ...], parts: tuple[Part, ...]) -> None:
        """Keep ``sequence``, whose tokens' keys and values are ``parts``."""
        if sequence in self._parts:
            self._parts.move_to_end(sequence)
            return
        insort(self._sorted, sequence)
        self._parts[sequence] = parts
        for piece, _ in parts:
            self._uses[piece] += 1
            self.bytes += piece.bytes if self._uses[piece] == 1 else 0
        while self.bytes > self.limit:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        sequence, parts = self._parts.popitem(last=False)
        del self._sorted[bisect_left(self._sorted, sequence)]
        for piece, _ in parts:
            self._uses[piece] -= 1
            if not self._uses[piece]:
                del self._uses[piece]
                self.bytes -= piece.bytes


class Past:
    """What the prompts of one forward pass begin with: ``prefixes``, one of each, none of them empty."""

    def __init__(self, prefixes: Sequence[Prefix], rests: Sequence[int], device: torch.device) -> None:
        """``rests`` are the numbers of tokens that the pass reads after each prefix; it pads them to the largest."""
        self.prefixes = prefixes
        width, lengths = max(rests), [prefix.length for prefix in prefixes]
        starts = torch.tensor(lengths, device=device)
        longest = max(length + rest for length, rest in zip(lengths, rests, strict=True))
        # Padding after a long prefix would have positions that the model does not have.
        self.positions = (starts[:, None] + torch.arange(width, device=device)).clamp(max=longest - 1)
        """(n, R) int64, of the tokens that are read."""
        places = torch.arange(int(starts.max()) + width, device=device)
        self.mask = (places <= self.positions[:, :, None])[:, None]
        """(n, 1, R, T) bool: True where a token sees another of its prompt, itself and padding after it included."""

    def joined(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (n, Hkv, T, D) of the whole prompts, from those (n, Hkv, R, D) of what is read."""
        return self._whole(layer, 0, keys), self._whole(layer, 1, values)

    def _whole(self, layer: int, which: int, read: Tensor) -> Tensor:
        rows = [
            torch.cat([*(part.piece.layers[layer][which][:, : part.tokens] for part in prefix.parts), states], 1)
            for prefix, states in zip(self.prefixes, read, strict=True)
        ]
        return pad_sequence([row.transpose(0, 1) for row in rows], batch_first=True).transpose(1, 2)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens the two begin with in common."""
    differing = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def _cut(parts: Sequence[Part], length: int) -> tuple[Part, ...]:
    """The parts of the first ``length`` tokens."""
    kept: list[Part] = []
    for piece, tokens in parts:
        if length <= 0:
            break
        kept.append(Part(piece, min(tokens, length)))
        length -= tokens
    return tuple(kept)


def moves(size: int, removed: Sequence[int]) -> tuple[list[int], list[int]]:
    """How to close the gaps that ``removed`` leaves in ``range(size)``: (gaps, sources), from the end to the gaps."""
    missing, left = set(removed), size - len(removed)
    gaps = [i for i in range(left) if i in missing]
    sources = [i for i in range(left, size) if i not in missing]
    return gaps, sources


def close_gaps(values: list[Any], removed: Sequence[int]) -> None:
    """Apply :func:`moves` to a list in place."""
    for gap, source in zip(*moves(len(values), removed), strict=True):
        values[gap] = values[source]
    del values[len(values) - len(removed) :]


def move(store: Mapping[int, Sequence[Tensor]], gaps: Sequence[int], sources: Sequence[int]) -> None:
    """Apply :func:`moves` to the first dimension of all tensors of ``store``."""
    if gaps:
        for pair in store.values():
            for tensor in pair:
                tensor[gaps] = tensor[sources]


Size = tuple[int, int]
"""Entries of a store, and the columns of each."""


def grown(present: Size, needed: Size) -> Size:
    """What a store of the ``present`` size becomes for what is ``needed``.

    Entries grow by half, so rarely copied.  What is twice as large as needed shrinks; where columns change, all is
    copied, and no more entries are kept than are needed.
    """
    (entries, columns), (least, width) = present, needed
    wide = width if not width <= columns <= 2 * width else columns
    if least > entries:
        return max(least, entries * 3 // 2), wide
    return least if wide != columns or entries > 2 * least else entries, wide


def enlarged(tensor: Tensor, needed: Size, dim: int) -> Tensor:
    """``tensor`` with room for what is ``needed``, columns in ``dim`` (:func:`grown`); that much of it is kept."""
    shape = list(tensor.shape)
    shape[0], shape[dim] = grown((tensor.shape[0], tensor.shape[dim]), needed)
    if tuple(shape) == tuple(tensor.shape):
        return tensor
    new = tensor.new_zeros(shape)
    entries, columns = min(tensor.shape[0], shape[0]), min(tensor.shape[dim], shape[dim])
    new[:entries].narrow(dim, 0, columns).copy_(tensor[:entries].narrow(dim, 0, columns))
    return new
