"""Attention in which the K candidates of a node share the keys and values of their prompt.

A prompt's keys and values are stored once a group (the candidates of one prompt); a candidate's own are stored beside.
In a decoding step the queries of a group's candidates meet the prompt's keys in one matrix product, each candidate's
queries meet its own keys, and one softmax runs over both.  The attention is plugged into ``transformers`` through its
attention interface and a cache, so every model that uses both keeps its own forward pass.

Shapes: ``N`` groups, ``W`` candidates of the largest group, ``B`` candidates (rows), ``H`` query heads, ``Hkv``
key-value heads, ``G = H / Hkv``, ``P`` tokens of the longest prompt, ``C`` columns for the candidates' own tokens,
``D`` head width.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface
from transformers.cache_utils import Cache

ATTENTION = "troupe_shared_prompt"
# Which keyword arguments of an attention call change its result and are not computed here.
_FOREIGN = ("sliding_window", "softcap", "s_aux", "position_bias", "head_mask")

_thread = threading.local()


class UnsupportedAttentionError(ValueError):
    """A model asks its attention for something that is not computed here."""


def moves(size: int, gone: Sequence[int]) -> tuple[list[int], list[int]]:
    """How to close the holes ``gone`` in ``range(size)``: move ``sources`` to ``holes``, keep the front."""
    missing, left = set(gone), size - len(gone)
    holes = [i for i in range(left) if i in missing]
    sources = [i for i in range(left, size) if i not in missing]
    return holes, sources


class SharedPromptCache(Cache):
    """Keys and values of a batch: prompts once a group, completions once a row.

    ``group_of`` gives each row's group; rows and groups are dense, ``remove`` closes the holes from the end.  A row's
    own columns form a ring that all rows write in step, so that rows may join at any time.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.group_of: list[int] = []
        self.prompt_lengths: list[int] = []
        self._born: list[int] = []
        self._steps = self._columns = 0
        self._prompt: dict[int, list[Tensor]] = {}  # layer -> keys and values (>= N, Hkv, >= P, D)
        self._own: dict[int, list[Tensor]] = {}  # layer -> keys and values (>= B, Hkv, C, D)
        self._plan: _Prefill | _Step | None = None
        self._slots: Tensor | None = None
        self._width = 1

    # ---- rows and groups --------------------------------------------------------------------------------------------

    def add_groups(self, lengths: Sequence[int], members: Sequence[int], columns: int) -> None:
        """Append groups with prompts of ``lengths`` tokens and ``members`` rows, of up to ``columns`` own tokens."""
        first = len(self.prompt_lengths)
        self.prompt_lengths += lengths
        for group, count in enumerate(members, start=first):
            self.group_of += [group] * count
            self._born += [self._steps] * count
        if columns > self._columns:
            self._widen(columns)
        for kept, rows, width in ((self._prompt, len(self.prompt_lengths), max(self.prompt_lengths)),
                                  (self._own, len(self.group_of), self._columns)):  # fmt: skip
            for pair in kept.values():
                pair[:] = [_grown(tensor, rows, width) for tensor in pair]
        self._arrange()

    def remove(self, rows: Sequence[int]) -> None:
        """Drop rows, and the groups that are left without any; the last ones take the holes."""
        _shift(self._own, *moves(len(self.group_of), rows))
        close(self.group_of, rows)
        close(self._born, rows)
        living = set(self.group_of)
        gone = [group for group in range(len(self.prompt_lengths)) if group not in living]
        holes, sources = moves(len(self.prompt_lengths), gone)
        _shift(self._prompt, holes, sources)
        close(self.prompt_lengths, gone)
        moved = dict(zip(sources, holes, strict=True))
        self.group_of = [moved.get(group, group) for group in self.group_of]
        self._arrange()

    def _arrange(self) -> None:
        """Give every row a slot in the (group, rank) grid."""
        ranks = [0] * len(self.prompt_lengths)
        slots = []
        for group in self.group_of:
            slots.append((group, ranks[group]))
            ranks[group] += 1
        self._width = max(ranks, default=1)
        flat = [group * self._width + rank for group, rank in slots]
        dense = flat == list(range(len(ranks) * self._width))
        self._slots = None if dense else torch.tensor(flat)

    def _widen(self, columns: int) -> None:
        """More own columns; what the ring holds keeps its step."""
        for pair in self._own.values():
            for index, old in enumerate(pair):
                new = old.new_zeros(*old.shape[:2], columns, old.shape[3])
                for step in range(max(0, self._steps - self._columns), self._steps):
                    new[:, :, step % columns] = old[:, :, step % self._columns]
                pair[index] = new
        self._columns = columns

    # ---- what a forward pass does -----------------------------------------------------------------------------------

    @contextmanager
    def prefilling(self, sources: Sequence[int], groups: Sequence[int]) -> Iterator[None]:
        """The forward pass inside reads prompts; prompt ``sources[i]`` of its batch is that of group ``groups[i]``."""
        with self._acting(_Prefill(torch.tensor(sources), torch.tensor(groups))):
            yield

    @contextmanager
    def decoding(self, device: torch.device) -> Iterator[None]:
        """The forward pass inside reads one new token of every row."""
        with self._acting(self._next_step(device)):
            yield
        self._steps += 1

    @contextmanager
    def _acting(self, plan: _Prefill | _Step) -> Iterator[None]:
        self._plan, _thread.cache = plan, self
        try:
            yield
        finally:
            self._plan, _thread.cache = None, None

    def _next_step(self, device: torch.device) -> _Step:
        step, columns = self._steps, self._columns
        longest = max(self.prompt_lengths)
        prompt_mask = own_mask = None
        if min(self.prompt_lengths) < longest:
            lengths = torch.tensor(self.prompt_lengths, device=device)
            prompt_mask = (torch.arange(longest, device=device) >= lengths[:, None])[:, None]
        oldest = min(self._born)
        first, last = oldest % columns, step % columns
        if max(self._born) != oldest or first > last:
            first, last = 0, min(step, columns - 1)
            age = (step - torch.arange(last + 1, device=device)) % columns
            born = torch.tensor(self._born, device=device)
            own_mask = (age > (step - born)[:, None])[:, None, None]
        slots = None if self._slots is None else self._slots.to(device)
        return _Step(step % columns, slice(first, last + 1), longest, prompt_mask, own_mask, slots)

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Store the keys and values (batch, Hkv, T, D) that the forward pass computed; hands them on."""
        plan, new = self._plan, (key_states, value_states)
        if isinstance(plan, _Prefill):
            kept, rows, width = self._prompt, len(self.prompt_lengths), max(self.prompt_lengths)
        else:
            kept, rows, width = self._own, len(self.group_of), self._columns
        if layer_idx not in kept:
            kept[layer_idx] = [s.new_zeros(rows, s.shape[1], width, s.shape[3]) for s in new]
        for store, states in zip(kept[layer_idx], new, strict=True):
            if isinstance(plan, _Prefill):
                store[plan.groups, :, : states.shape[2]] = states[plan.sources]
            elif plan is not None:
                store[:rows, :, plan.column] = states[:, :, 0]
        return new

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions are always given, masks never come from here."""
        return 0

    def attend(self, layer: int, query: Tensor, scaling: float) -> Tensor:
        """One step's attention: ``query`` (B, H, 1, D) -> (B, 1, H, D)."""
        plan, (prompt_k, prompt_v), (own_k, own_v) = self._plan, self._prompt[layer], self._own[layer]
        assert isinstance(plan, _Step)
        rows, heads, width = query.shape[0], own_k.shape[1], self._width
        groups, per_head, length = len(self.prompt_lengths), query.shape[1] // heads, plan.longest
        query = (query * scaling).reshape(rows, heads, per_head, -1)

        def to_grid(x: Tensor) -> Tensor:  # (B, Hkv, G, X) -> (N, Hkv, W, G, X)
            if plan.slots is not None:
                x = x.new_zeros(groups * width, *x.shape[1:]).index_copy_(0, plan.slots, x)
            return x.view(groups, width, heads, per_head, -1).transpose(1, 2)

        def to_rows(x: Tensor) -> Tensor:  # (N, Hkv, W, G, X) -> (B * Hkv, G, X)
            x = x.transpose(1, 2).flatten(0, 1)
            x = x if plan.slots is None else x.index_select(0, plan.slots)
            return x.flatten(0, 1)

        keys = own_k[:rows, :, plan.own].flatten(0, 1)
        own = torch.bmm(query.flatten(0, 1), keys.transpose(1, 2)).view(rows, heads, per_head, -1)
        if plan.own_mask is not None:
            own.masked_fill_(plan.own_mask, float("-inf"))
        grid = to_grid(query).reshape(groups * heads, width * per_head, -1)
        prompt = torch.bmm(grid, prompt_k[:groups, :, :length].flatten(0, 1).transpose(1, 2))
        if plan.prompt_mask is not None:
            prompt.view(groups, -1, length).masked_fill_(plan.prompt_mask, float("-inf"))
        weights = torch.cat([prompt.view(groups, heads, width, per_head, -1), to_grid(own)], -1)
        # Half precision is summed in float32, as the models' own attention does.
        weights = weights.softmax(-1, dtype=torch.float32 if weights.itemsize < 4 else None).to(query.dtype)
        from_prompt = weights.view(groups * heads, width * per_head, -1)[..., :length]
        out = torch.bmm(from_prompt, prompt_v[:groups, :, :length].flatten(0, 1))
        out = to_rows(out.view(groups, heads, width, per_head, -1))
        out = torch.baddbmm(out, to_rows(weights[..., length:]), own_v[:rows, :, plan.own].flatten(0, 1))
        return out.reshape(rows, 1, heads * per_head, -1)


class _Prefill:
    """Prompt ``sources[i]`` of the forward batch goes to group ``groups[i]``."""

    def __init__(self, sources: Tensor, groups: Tensor) -> None:
        self.sources, self.groups = sources, groups


class _Step:
    """Where one decoding step writes (``column``) and what it reads."""

    def __init__(
        self,
        column: int,
        own: slice,
        longest: int,
        prompt_mask: Tensor | None,
        own_mask: Tensor | None,
        slots: Tensor | None,
    ) -> None:
        self.column, self.own, self.longest = column, own, longest
        self.prompt_mask, self.own_mask, self.slots = prompt_mask, own_mask, slots


def _grown(tensor: Tensor, rows: int, width: int) -> Tensor:
    """``tensor`` with at least this many rows and columns; grows by half, so that joining rows rarely copy."""
    if tensor.shape[0] >= rows and tensor.shape[2] >= width:
        return tensor
    size = max(rows, tensor.shape[0] * 3 // 2) if rows > tensor.shape[0] else tensor.shape[0]
    new = tensor.new_zeros(size, tensor.shape[1], max(width, tensor.shape[2]), tensor.shape[3])
    new[: tensor.shape[0], :, : tensor.shape[2]] = tensor
    return new


def _shift(kept: Mapping[int, Sequence[Tensor]], holes: Sequence[int], sources: Sequence[int]) -> None:
    """Move entries of the first dimension."""
    if holes:
        for pair in kept.values():
            for tensor in pair:
                tensor[holes] = tensor[sources]


def close(values: list[Any], gone: Sequence[int]) -> None:
    """Apply :func:`moves` to a list in place."""
    for hole, source in zip(*moves(len(values), gone), strict=True):
        values[hole] = values[source]
    del values[len(values) - len(gone) :]


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
    if isinstance(cache._plan, _Step):
        return cache.attend(module.layer_idx, query, scaling), None
    # Prompts are padded on the right, where a causal mask hides the padding from every real token.
    shared = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=shared)
    return out.transpose(1, 2), None


AttentionInterface.register(ATTENTION, _attention)
