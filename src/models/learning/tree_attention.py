"""Attention over packed sequences that share beginnings (:mod:`.packing`), in memory linear in the tokens.

A token sees its own segment up to itself, and whole the segments that its own continues.  So the scores fall into
rectangles: a segment with itself (causal), and a segment with all that continues it, which lies behind it in one piece.
Each is one call of a flash attention kernel; a token's results from several are put together by their log-sum-exp, as
in ring attention (arXiv 2310.01889).  Given the final result and log-sum-exp, the kernel's backward pass yields exactly
each rectangle's part of the gradients.

On CUDA, FlexAttention computes the same (:mod:`.block_attention`).  Where a model's layers have a sliding window or cap
their scores, and in float64 on CUDA, these are computed densely.

Shapes: ``T`` tokens, ``Q`` tokens whose attention is computed (all, or the scored ones), ``H`` query heads, ``Hkv``
key-value heads, ``D`` head width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout as drop
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from ...errors import UnsupportedAttentionError
from ...experience import Segment, TokenBatch
from .block_attention import attend_in_blocks, block_mask

ATTENTION: Final = "troupe_tree"
"""The name of the attention implementation; it takes a :class:`Tree` as the keyword argument ``tree`` of a model's
``forward``, and without one is transformers' ``sdpa``.
"""


LONG: Final = 64
"""Segments of more tokens are computed one by one, without a copy; shorter ones together."""

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True, eq=False)
class _Causal:
    """Segments of similar length with themselves: (S, L) indices of their tokens among queries and keys, padded with
    each segment's first; ``padding`` (S, L) bool, None if there is none.
    """

    queries: Tensor
    keys: Tensor
    padding: Tensor | None


@dataclass(eq=False)
class Tree:
    """The segments of a packed batch, and which of its tokens are queries: all, or those that are scored."""

    segments: Sequence[Segment]
    positions: Tensor
    """(T,) int64, of each token in its sequence."""
    scored_only: bool = False
    calls: int = 0
    """How many layers have used it."""

    @classmethod
    def of(cls, batch: TokenBatch, *, scored_only: bool = False) -> Tree:
        return cls(batch.segments, batch.positions, scored_only)

    @property
    def device(self) -> torch.device:
        return self.positions.device

    @cached_property
    def queries(self) -> Tensor:
        """(Q,) int64, the tokens that are queries."""
        return self._host_queries.to(self.device)

    @cached_property
    def _host_queries(self) -> Tensor:
        return torch.cat([torch.arange(s.start, s.end) for s in self.segments if self._queried(s)])

    def _queried(self, segment: Segment) -> bool:
        return segment.scored or not self.scored_only

    @cached_property
    def _before(self) -> list[int]:
        """How many queries precede each token where a segment begins or ends, by token."""
        before = [0] * (self.segments[-1].end + 1)
        count = 0
        for segment in self.segments:
            before[segment.start] = count
            count += (segment.end - segment.start) * self._queried(segment)
        before[-1] = count
        return before

    @cached_property
    def across(self) -> list[tuple[slice, slice]]:
        """(Queries, keys) of each segment that others continue: all of those see all of it."""
        pairs = []
        for start, end, stop, _ in self.segments:
            queries = slice(self._before[end], self._before[stop])
            if queries.start < queries.stop:
                pairs.append((queries, slice(start, end)))
        return pairs

    @cached_property
    def alone(self) -> list[tuple[slice, slice]]:
        """(Queries, keys) of each long queried segment with itself."""
        long = (s for s in self.segments if self._queried(s) and s.end - s.start > LONG)
        return [(slice(first := self._before[s.start], first + s.end - s.start), slice(s.start, s.end)) for s in long]

    @cached_property
    def within(self) -> list[_Causal]:
        """Each short queried segment with itself; those of similar length together."""
        groups: list[list[Segment]] = []
        for segment in sorted(filter(self._queried, self.segments), key=lambda s: s.end - s.start):
            length = segment.end - segment.start
            if length > LONG:
                break
            if not groups or length > 1.25 * (groups[-1][0].end - groups[-1][0].start):
                groups.append([])
            groups[-1].append(segment)
        return [self._causal(group) for group in groups]

    def _causal(self, group: Sequence[Segment]) -> _Causal:
        starts = torch.tensor([segment.start for segment in group])[:, None]
        lengths = torch.tensor([segment.end - segment.start for segment in group])[:, None]
        offsets = torch.arange(int(lengths.max()))
        padding = offsets >= lengths
        offsets = offsets.masked_fill(padding, 0)
        queries = torch.tensor([self._before[segment.start] for segment in group])[:, None] + offsets
        pads = padding.to(self.device) if padding.any() else None
        return _Causal(queries.to(self.device), (starts + offsets).to(self.device), pads)

    @cached_property
    def stops(self) -> Tensor:
        """(T,) int64: token q sees token k if ``k <= q < stops[k]``."""
        return self._host_stops.to(self.device)

    @cached_property
    def _host_stops(self) -> Tensor:
        return torch.cat([torch.full((segment.end - segment.start,), segment.stop) for segment in self.segments])

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return int(self.positions.max()) + 1

    def visible(self, window: int | None = None) -> Tensor:
        """(Q, T) bool, whether a query sees a token, fewer than ``window`` positions away."""
        tokens, queries = torch.arange(len(self.stops), device=self.device), self.queries[:, None]
        visible = (tokens <= queries) & (queries < self.stops)
        return visible if window is None else visible & (self.positions[queries] - self.positions < window)

    @cached_property
    def block_mask(self) -> Any:
        """For FlexAttention, see :mod:`.block_attention`."""
        return block_mask(self._host_queries, self._host_stops, self.device)


class _Attend(torch.autograd.Function):
    """See :func:`attend`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, tree: Tree, scale: float) -> Tensor:
        out, lse = attend_forward(query, key, value, tree, scale)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.tree, ctx.scale = tree, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        return (*attend_backward(grad, query, key, value, out, lse, ctx.tree, ctx.scale), None, None)


def attend(query: Tensor, key: Tensor, value: Tensor, tree: Tree, scale: float) -> Tensor:
    """(Q, H, D) attention of queries (Q, H, D) to keys and values (T, Hkv, D), on a CPU."""
    out: Tensor = _Attend.apply(query, key, value, tree, scale)
    return out


def attend_forward(query: Tensor, key: Tensor, value: Tensor, tree: Tree, scale: float) -> tuple[Tensor, Tensor]:
    """The result (Q, H, D), and the log-sum-exp of each query's scores (Q, H); rows behind the last segment's are 0."""
    per_head = query.shape[1] // key.shape[1]
    out = torch.zeros_like(query)
    lse = query.new_empty(query.shape[:2], dtype=torch.promote_types(query.dtype, torch.float32))
    for part in tree.within:
        tensors = (_gather(query, part.queries), *(_repeated(_gather(x, part.keys), per_head) for x in (key, value)))
        part_out, part_lse = _flash(*tensors, is_causal=True, scale=scale)
        _scatter(out, part_out, part)
        _scatter(lse, part_lse, part)
    for rows, columns in tree.alone:
        tensors = (_by_head(query[rows], per_head), *(_spread(x[columns], per_head) for x in (key, value)))
        out[rows], lse[rows] = (_by_token(x) for x in _flash(*tensors, is_causal=True, scale=scale))
    for rows, columns in tree.across:
        tensors = (_by_head(query[rows], per_head), *(_spread(x[columns], per_head) for x in (key, value)))
        part_out, part_lse = (_by_token(x) for x in _flash(*tensors, scale=scale))
        # The weight of this part's result, of both parts' sum: exp(part) / (exp(part) + exp(lse)).
        total = torch.logaddexp(lse[rows], part_lse)
        out[rows].lerp_(part_out, (part_lse - total).exp_().to(out.dtype)[..., None])
        lse[rows] = total
    return out, lse


def attend_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor, tree: Tree, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values."""
    per_head = query.shape[1] // key.shape[1]
    grads = torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)
    pairs = [*((False, *pair) for pair in tree.across), *((True, *pair) for pair in tree.alone)]
    for causal, rows, columns in pairs:
        by_query = (_by_head(x[rows], per_head) for x in (grad, query))
        keys = (_spread(x[columns], per_head) for x in (key, value))
        results = (_by_head(x[rows], per_head) for x in (out, lse))
        found = _gradients(*by_query, *keys, *results, causal=causal, scale=scale)
        grads[0][rows] += _by_token(found[0])
        for total, each in zip(grads[1:], found[1:], strict=True):
            total[columns] += each.sum(1).transpose(0, 1)
    for part in tree.within:
        part_grad, queries, part_out, part_lse = (_gather(x, part.queries) for x in (grad, query, out, lse))
        if part.padding is not None:
            part_grad = part_grad.masked_fill(part.padding[:, None, :, None], 0.0)
            part_lse = part_lse.masked_fill(part.padding[:, None], 1e30)  # no weight for any key
        keys = (_repeated(_gather(x, part.keys), per_head) for x in (key, value))
        of_query, *of_keys = _gradients(part_grad, queries, *keys, part_out, part_lse, causal=True, scale=scale)
        grads[0].index_add_(0, part.queries.flatten(), of_query.transpose(1, 2).flatten(0, 1))
        for total, each in zip(grads[1:], of_keys, strict=True):
            summed = each.unflatten(1, (-1, per_head)).sum(2) if per_head > 1 else each
            total.index_add_(0, part.keys.flatten(), summed.transpose(1, 2).flatten(0, 1))
    return grads


def _gradients(*tensors: Tensor, causal: bool, scale: float) -> tuple[Tensor, ...]:
    """The gradients of a rectangle; causal ones of half precision in float32, which takes the kernel half the time."""
    dtype = tensors[0].dtype
    if causal and dtype.itemsize < 4:
        tensors = tuple(x.float() for x in tensors)
    return tuple(x.to(dtype) for x in _flash_backward(*tensors, 0.0, causal, scale=scale))


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """(T, H, ...) at (S, L) -> (S, H, L, ...)"""
    return x[index].transpose(1, 2)


def _repeated(x: Tensor, per_head: int) -> Tensor:
    """(S, Hkv, L, D) -> (S, H, L, D)"""
    return x.repeat_interleave(per_head, 1) if per_head > 1 else x


def _scatter(x: Tensor, values: Tensor, part: _Causal) -> None:
    """Write (S, H, L, ...) ``values`` to the queries of ``part``."""
    values = values.transpose(1, 2)
    if part.padding is None:
        x[part.queries] = values
    else:
        x[part.queries[~part.padding]] = values[~part.padding]


def _by_head(x: Tensor, per_head: int) -> Tensor:
    """(L, H, ...) -> (Hkv, H / Hkv, L, ...): key-value heads as a batch."""
    return x.unflatten(1, (-1, per_head)).movedim(0, 2)


def _by_token(x: Tensor) -> Tensor:
    """(Hkv, H / Hkv, L, ...) -> (L, H, ...)"""
    return x.movedim(2, 0).flatten(1, 2)


def _spread(x: Tensor, per_head: int) -> Tensor:
    """(L, Hkv, D) -> (Hkv, H / Hkv, L, D), in the same memory."""
    return x.transpose(0, 1)[:, None].expand(-1, per_head, -1, -1)


# ---- for transformers' models ---------------------------------------------------------------------------------------


_FOREIGN: Final = ("s_aux", "position_bias", "head_mask", "cache")
"""Keyword arguments of an attention call that change its result and are not computed here."""


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    tree: Tree | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention that ``transformers`` calls: (1, H, T, D) queries -> (1, T, H, D)."""
    if tree is None:
        options: dict[str, Any] = {"scaling": scaling, "dropout": dropout, "softcap": softcap}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options, **kwargs)
    if foreign := [name for name in _FOREIGN if kwargs.get(name) is not None]:
        raise UnsupportedAttentionError(
            f"{type(module).__name__} calls its attention with {', '.join(foreign)}, which Troupe cannot train"
        )
    tree.calls += 1
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if sliding_window is not None and tree.longest <= sliding_window:
        sliding_window = None  # no sequence is that long
    # FlexAttention has no kernels for float64.
    if dropout or softcap or sliding_window is not None or (query.is_cuda and value.dtype == torch.float64):
        return _dense(query, key, value, tree.visible(sliding_window), scale, dropout, softcap), None
    # Under autocast, norms and rotations leave queries and keys in float32, and the values are in half precision.
    query, key = query.to(value.dtype), key.to(value.dtype)
    if query.is_cuda:
        return attend_in_blocks(query, key, value, tree.block_mask, scale), None
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    return attend(q, k, v, tree, scale)[None], None


def _dense(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor, scale: float, dropout: float, softcap: float | None
) -> Tensor:
    """With the scores of all pairs in memory."""
    per_head = query.shape[1] // key.shape[1]
    scores = (query * scale) @ _repeated(key, per_head).transpose(2, 3)
    if softcap:
        scores = (scores / softcap).tanh() * softcap
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1, torch.promote_types(scores.dtype, torch.float32))
    return (drop(weights, dropout).to(value.dtype) @ _repeated(value, per_head)).transpose(1, 2)


AttentionInterface.register(ATTENTION, _attention)
