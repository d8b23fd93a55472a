"""Attention in which the K candidates of a node share the keys and values of their prompt.

**Memory.**  An ordinary cache of a batch keeps every row's whole history: K copies of the same prompt.  Here a layer
has two stores, each a pair of tensors (keys, values):

- the prompts, one entry per *group*, the rows with one prompt: (>= N, Hkv, >= P, D), padded on the right, and keys
  transposed, (>= N, Hkv, D, >= P), which a CPU multiplies faster;
- the completions' own tokens, one entry per *row*: (>= B, Hkv, C, D), a ring of C columns.

A prompt of 1,000 tokens with 8 candidates of up to 100 takes 1,000 + 8 * 100 places instead of 8 * 1,100.

**One step.**  A decoding step has one query per row and head, so it computes little and reads much: its time is that of
fetching keys and values from memory.  Row by row, each candidate would fetch the prompt's keys again (K matrix-vector
products).  Instead the queries of all candidates of a group, and of the G query heads that share a key-value head, are
stacked into one matrix, and meet the prompt's keys in one matrix product that fetches them once.  Each candidate's
queries then meet its own keys.  One softmax runs over both kinds of scores, side by side, so that the result is that of
ordinary attention, up to rounding; nothing is approximated.

**The model.**  The attention is plugged into ``transformers`` through its attention interface and a cache, so every
model that uses both keeps its own forward pass.

Shapes: ``N`` groups, ``W`` candidates of the largest group, ``B`` candidates (rows), ``H`` query heads, ``Hkv``
key-value heads, ``G = H / Hkv``, ``P`` tokens of the longest prompt, ``C`` columns for the candidates' own tokens,
``D`` head width.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from ....errors import UnsupportedAttentionError
from .prefixes import Past, Piece, Size, close_gaps, enlarged, grown, move, moves

ATTENTION = "troupe_shared_prompt"
# Keyword arguments of an attention call that change its result and are not computed here.
_FOREIGN = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask")
_LOG2_E = math.log2(math.e)

# The cache whose forward pass runs in this thread.  `transformers` calls the attention as a plain function and hands it
# no cache; several engines decode side by side, each in a thread of its own, hence not a global variable.
_thread = threading.local()


@dataclass(frozen=True)
class _Prefill:
    """A forward pass that reads prompts: prompt ``sources[i]`` of its batch is that of group ``groups[i]``.

    With a ``past`` it reads of each what follows that.
    """

    sources: Tensor
    groups: Tensor
    past: Past | None


@dataclass(frozen=True)
class _DecodingStep:
    """A forward pass that reads one new token of every row: where it writes, and what it reads."""

    column: int
    """Of the ring, written by all rows."""
    own: slice
    """The columns of the ring that any row reads."""
    longest: int
    """Tokens of the longest prompt."""
    prompt_mask: Tensor | None
    """(N, 1, longest) bool, True on padding of shorter prompts; None if there is none."""
    own_mask: Tensor | None
    """(B, 1, 1, columns in ``own``) bool, True where a column is not of the row's present tokens; None if all are."""
    slots: Tensor | None
    """(B,) int64, each row's place in the grid of groups and ranks; None if that is simply the row's index."""


class SharedPromptCache(Cache):
    """Keys and values of a batch: prompts once per group, completions once per row.

    Rows and groups are dense in their stores: ``remove`` fills the gaps with the last ones, so that a step reads no
    entry in vain, and copies a few entries instead of all that follow.

    All rows write column ``step % C`` of the ring in step ``step``, whenever they joined.  So a step's write is one
    plain copy, whereas a column of each row's own would need a scatter; and rows may join at any time without a shift
    of those that are there.  Nothing is overwritten too early, because no row lives for more than C steps.  Columns
    older than a row hold tokens of rows before it, and are masked.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.group_of: list[int] = []
        """The group of each row."""
        self.prompt_lengths: list[int] = []
        """Of each group, tokens."""
        self._first_steps: list[int] = []  # of each row
        self._steps = 0
        self.columns = 0
        """C: how many own tokens each row has room for."""
        self._prompt: dict[int, list[Tensor]] = {}  # layer -> keys (>= N, Hkv, D, >= P), values (>= N, Hkv, >= P, D)
        self._own: dict[int, list[Tensor]] = {}  # layer -> keys and values (>= B, Hkv, C, D)
        self._pass: _Prefill | _DecodingStep | None = None
        self._slots: Tensor | None = None
        self._width = 1  # W

    # ---- rows and groups --------------------------------------------------------------------------------------------

    def add_groups(self, lengths: Sequence[int], members: Sequence[int], columns: int) -> None:
        """Append groups with prompts of ``lengths`` tokens and ``members`` rows, of up to ``columns`` own tokens."""
        first = len(self.prompt_lengths)
        self.prompt_lengths += lengths
        for group, count in enumerate(members, start=first):
            self.group_of += [group] * count
            self._first_steps += [self._steps] * count
        groups, rows, longest = len(self.prompt_lengths), len(self.group_of), max(self.prompt_lengths)
        if columns > self.columns:
            self._widen(rows, columns)
        for pair in self._prompt.values():
            pair[:] = [enlarged(tensor, (groups, longest), dim) for tensor, dim in zip(pair, (3, 2), strict=True)]
        for pair in self._own.values():
            pair[:] = [enlarged(tensor, (rows, self.columns), 2) for tensor in pair]
        self._assign_slots()

    def room(self, prompts: Size, own: Size) -> int:
        """Tokens that the stores have room for, once they have grown for so many (groups, tokens of the longest
        prompt) and (rows, own tokens).
        """
        tokens = 0
        for store, needed in (self._prompt, prompts), (self._own, own):
            present = next(((values.shape[0], values.shape[2]) for _, values in store.values()), (0, 0))
            tokens += math.prod(grown(present, needed))
        return tokens

    def remove(self, rows: Sequence[int]) -> None:
        """Drop rows, and the groups that are left without any; the last ones take their places."""
        move(self._own, *moves(len(self.group_of), rows))
        close_gaps(self.group_of, rows)
        close_gaps(self._first_steps, rows)
        occupied = set(self.group_of)
        empty = [group for group in range(len(self.prompt_lengths)) if group not in occupied]
        gaps, sources = moves(len(self.prompt_lengths), empty)
        move(self._prompt, gaps, sources)
        close_gaps(self.prompt_lengths, empty)
        renamed = dict(zip(sources, gaps, strict=True))
        self.group_of = [renamed.get(group, group) for group in self.group_of]
        self._assign_slots()

    def _assign_slots(self) -> None:
        """Give every row a place in the grid of (group, rank), in which the groups' queries are stacked.

        Rows of a group need not be neighbours, since ``remove`` moves them.  Where they are, and all groups have W
        rows, as in most batches, the rows are the grid, and no step has to rearrange its queries.
        """
        ranks = [0] * len(self.prompt_lengths)
        slots = []
        for group in self.group_of:
            slots.append((group, ranks[group]))
            ranks[group] += 1
        self._width = max(ranks, default=1)
        flat = [group * self._width + rank for group, rank in slots]
        dense = flat == list(range(len(ranks) * self._width))
        self._slots = None if dense else torch.tensor(flat)

    def _widen(self, rows: int, columns: int) -> None:
        """Room for so many ``rows``, and more ``columns`` in the ring; each step that is still in it moves to its
        column modulo the new width.
        """
        for pair in self._own.values():
            for index, old in enumerate(pair):
                entries, _ = grown((old.shape[0], self.columns), (rows, columns))
                new, kept = old.new_zeros(entries, old.shape[1], columns, old.shape[3]), min(old.shape[0], entries)
                for step in range(max(0, self._steps - self.columns), self._steps):
                    new[:kept, :, step % columns] = old[:kept, :, step % self.columns]
                pair[index] = new
        self.columns = columns

    # ---- what may be used again -------------------------------------------------------------------------------------

    def prompt_piece(self, group: int, start: int) -> Piece:
        """A copy of the keys and values of a group's prompt, from token ``start``."""
        part = slice(start, self.prompt_lengths[group])
        return Piece(
            {
                layer: (keys[group, ..., part].transpose(1, 2).clone(), values[group, :, part].clone())
                for layer, (keys, values) in self._prompt.items()
            }
        )

    def own_piece(self, row: int) -> Piece:
        """A copy of the keys and values of all tokens that a row has read after its prompt."""
        steps = range(self._first_steps[row], self._steps)
        first, last = steps[0] % self.columns, steps[-1] % self.columns
        around = [step % self.columns for step in steps]  # the ring's end
        columns = slice(first, last + 1) if first <= last else around
        return Piece(
            {
                layer: (keys[row][:, columns].clone(), values[row][:, columns].clone())
                for layer, (keys, values) in self._own.items()
            }
        )

    # ---- what a forward pass does -----------------------------------------------------------------------------------

    @contextmanager
    def prefilling(self, sources: Sequence[int], groups: Sequence[int], past: Past | None = None) -> Iterator[None]:
        """The forward pass inside reads prompts, or what follows their ``past``; prompt ``sources[i]`` of its batch is
        that of group ``groups[i]``.
        """
        with self._active(_Prefill(torch.tensor(sources), torch.tensor(groups), past)):
            yield

    @property
    def past(self) -> Past | None:
        """What the prompts begin with that the present forward pass reads."""
        return self._pass.past if isinstance(self._pass, _Prefill) else None

    @contextmanager
    def decoding(self, device: torch.device) -> Iterator[None]:
        """The forward pass inside reads one new token of every row."""
        with self._active(self._next_step(device)):
            yield
        self._steps += 1

    @contextmanager
    def _active(self, forward_pass: _Prefill | _DecodingStep) -> Iterator[None]:
        self._pass, _thread.cache = forward_pass, self
        try:
            yield
        finally:
            self._pass, _thread.cache = None, None

    def _next_step(self, device: torch.device) -> _DecodingStep:
        """The same for all layers, so computed once per step; masks only where a row must not see something."""
        step, columns = self._steps, self.columns
        longest = max(self.prompt_lengths)
        prompt_mask = own_mask = None
        if min(self.prompt_lengths) < longest:
            lengths = torch.tensor(self.prompt_lengths, device=device)
            prompt_mask = (torch.arange(longest, device=device) >= lengths[:, None])[:, None]
        oldest = min(self._first_steps)
        first, last = oldest % columns, step % columns
        if max(self._first_steps) != oldest or first > last:  # rows of different ages, or a slice around the ring's end
            first, last = 0, min(step, columns - 1)
            age = (step - torch.arange(last + 1, device=device)) % columns
            first_steps = torch.tensor(self._first_steps, device=device)
            own_mask = (age > (step - first_steps)[:, None])[:, None, None]
        slots = None if self._slots is None else self._slots.to(device)
        return _DecodingStep(step % columns, slice(first, last + 1), longest, prompt_mask, own_mask, slots)

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Store the keys and values (batch, Hkv, T, D) that the forward pass computed; hands them on, after those of
        its past.
        """
        if self.past is not None:
            key_states, value_states = self.past.joined(layer_idx, key_states, value_states)
        forward_pass, (_, heads, tokens, width) = self._pass, key_states.shape
        if isinstance(forward_pass, _Prefill):
            if layer_idx not in self._prompt:
                groups, longest = len(self.prompt_lengths), max(self.prompt_lengths)
                shapes = (groups, heads, width, longest), (groups, heads, longest, width)
                self._prompt[layer_idx] = [key_states.new_zeros(shape) for shape in shapes]
            keys, values = self._prompt[layer_idx]
            tokens = min(tokens, values.shape[2])  # what a past has more is padding
            keys[forward_pass.groups, ..., :tokens] = key_states.transpose(2, 3)[forward_pass.sources, ..., :tokens]
            values[forward_pass.groups, :, :tokens] = value_states[forward_pass.sources, :, :tokens]
        elif forward_pass is not None:
            rows = len(self.group_of)
            if layer_idx not in self._own:
                self._own[layer_idx] = [key_states.new_zeros(rows, heads, self.columns, width) for _ in range(2)]
            for tensor, states in zip(self._own[layer_idx], (key_states, value_states), strict=True):
                tensor[:rows, :, forward_pass.column] = states[:, :, 0]
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions are always handed to the model, masks never come from here."""
        return 0

    def attend(self, layer: int, query: Tensor, scaling: float) -> Tensor:
        """One step's attention: ``query`` (B, H, 1, D) -> (B, 1, H, D)."""
        step, (prompt_k, prompt_v), (own_k, own_v) = self._pass, self._prompt[layer], self._own[layer]
        assert isinstance(step, _DecodingStep)
        rows, heads, width = query.shape[0], own_k.shape[1], self._width
        groups, per_head, length = len(self.prompt_lengths), query.shape[1] // heads, step.longest
        query = (query * (scaling * _LOG2_E)).reshape(rows, heads, per_head, -1)  # scores in bits, for exp2

        # A grid has a slot for W rows in every group; slots of smaller groups are zeros, computed and thrown away.
        def to_grid(x: Tensor) -> Tensor:  # (B, Hkv, G, X) -> (N * Hkv, W * G, X)
            if step.slots is not None:
                x = x.new_zeros(groups * width, *x.shape[1:]).index_copy_(0, step.slots, x)
            x = x.view(groups, width, heads, per_head, -1).transpose(1, 2)
            return x.reshape(groups * heads, width * per_head, -1)

        def to_rows(x: Tensor) -> Tensor:  # (N * Hkv, W * G, X) -> (B, Hkv, G, X)
            x = x.view(groups, heads, width, per_head, -1).transpose(1, 2).flatten(0, 1)
            return x if step.slots is None else x.index_select(0, step.slots)

        # Scores of each row's own tokens: one product per (row, key-value head), (G, D) x (D, C).
        keys = own_k[:rows, :, step.own].flatten(0, 1)
        own = torch.bmm(query.flatten(0, 1), keys.transpose(1, 2)).view(rows, heads, per_head, -1)
        if step.own_mask is not None:
            own.masked_fill_(step.own_mask, float("-inf"))
        # Scores of the prompts: one product per (group, key-value head), (W * G, D) x (D, P).
        prompt = torch.bmm(to_grid(query), prompt_k[:groups, ..., :length].flatten(0, 1))
        if step.prompt_mask is not None:
            prompt.view(groups, -1, length).masked_fill_(step.prompt_mask, float("-inf"))
        if query.itemsize < 4:  # half precision is summed in float32, as the models' own attention does
            own, prompt = own.float(), prompt.float()
        # One softmax over prompt and own tokens, as if they lay side by side in an ordinary cache.  They stay apart:
        # to copy the scores into one tensor costs as much as a product.  With exp2, since exp takes three times as long
        # on AMD's CPUs.
        largest = torch.maximum(to_rows(prompt.amax(-1, keepdim=True)), own.amax(-1, keepdim=True))
        prompt.sub_(to_grid(largest)).exp2_()
        own.sub_(largest).exp2_()
        total = to_rows(prompt.sum(-1, keepdim=True)).add_(own.sum(-1, keepdim=True))
        out = to_rows(torch.bmm(prompt.to(query.dtype), prompt_v[:groups, :, :length].flatten(0, 1))).flatten(0, 1)
        values = own_v[:rows, :, step.own].flatten(0, 1)
        out = torch.baddbmm(out, own.to(query.dtype).flatten(0, 1), values).view_as(query) / total
        return out.to(query.dtype).view(rows, 1, heads * per_head, -1)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The attention that ``transformers`` calls: (batch, H, T, D) queries -> (batch, T, H, D)."""
    foreign = [name for name in _FOREIGN if kwargs.get(name) is not None]
    cache = getattr(_thread, "cache", None)
    if foreign or cache is None or attention_mask is not None:
        reason = f"with {', '.join(foreign)}" if foreign else "outside of the engine, or with a mask of its own"
        raise UnsupportedAttentionError(f"{type(module).__name__} calls its attention {reason}")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if isinstance(cache._pass, _DecodingStep):
        return cache.attend(module.layer_idx, query, scaling), None
    # A prompt sees itself alone, so ordinary causal attention over the batch will do, and the stores are not read.
    # Prompts are padded on the right, where a causal mask hides the padding from every real token.
    mask = None if cache.past is None else cache.past.mask
    grouped = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(
        query, key, value, mask, is_causal=mask is None, scale=scaling, enable_gqa=grouped
    )
    return out.transpose(1, 2), None


AttentionInterface.register(ATTENTION, _attention)
