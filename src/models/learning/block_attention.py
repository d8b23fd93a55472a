"""FlexAttention over the trees of :mod:`.tree_attention`, on a GPU: in blocks, of which most are empty.

torch compiles a kernel for each shape, which takes seconds, so that shapes must be few: rows are added up to a power of
two.  These see themselves alone and cost next to nothing.  Kernels for any length are no way out: torch compiles them
anew where a mask of blocks has another length (pytorch/pytorch#189952).

Shapes: ``Q`` queries, ``T`` tokens, ``H`` query heads, ``Hkv`` key-value heads, ``D`` head width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import pad

BLOCK: Final = 128
"""Queries and keys of a block."""
FEWEST_ROWS: Final = 4096
"""Of a shape: smaller ones would save less than they cost to compile."""
LEAST_WIDTH: Final = 16
"""Of a head: the kernels have no narrower ones.  Numbers that are 0 are added."""
MOST_SHAPES: Final = 64
"""With those of other models and with and without gradients.  Above 8, torch would otherwise refuse."""


def rounded(count: int) -> int:
    """The rows of the shape for ``count`` tokens."""
    return max(FEWEST_ROWS, 1 << (count - 1).bit_length())


def attend_in_blocks(
    query: Tensor, key: Tensor, value: Tensor, mask: BlockMask, scale: float, kernel: Callable[..., Any] | None = None
) -> Tensor:
    """(1, Q, H, D) attention of queries (1, H, Q, D) to keys and values (1, Hkv, T, D), all of one dtype.

    ``mask`` is :func:`block_mask`'s, ``kernel`` FlexAttention, compiled by default.
    """
    rows, width = query.shape[2:]
    lengths = mask.seq_lengths[0], mask.seq_lengths[1], mask.seq_lengths[1]
    sizes = zip((query, key, value), lengths, strict=True)
    # One layout for all calls: torch would compile for others, too.
    q, k, v = (pad(x, (0, max(LEAST_WIDTH - width, 0), 0, n - x.shape[2])).contiguous() for x, n in sizes)
    # In each call: other threads, such as that of a backward pass that computes anew, have settings of their own.
    with torch._dynamo.config.patch(recompile_limit=MOST_SHAPES):
        out: Tensor = (kernel or _compiled())(q, k, v, block_mask=mask, scale=scale, enable_gqa=True)
    return out[:, :, :rows, :width].transpose(1, 2)


@cache
def _compiled() -> Callable[..., Any]:
    """``fullgraph``: an error beyond :data:`MOST_SHAPES`, and not the scores of all pairs in memory."""
    compiled: Callable[..., Any] = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return compiled


def block_mask(queries: Tensor, stops: Tensor, device: torch.device, block: int = BLOCK) -> BlockMask:
    """Which blocks of queries see which of keys, in part or whole, by the rule of :class:`.tree_attention.Tree`.

    ``queries`` (Q,) are the tokens that are queries, ascending, ``stops`` (T,) those of :attr:`.tree_attention.Tree`,
    both on a CPU.  The mask is for :func:`rounded` rows, on ``device``.
    """
    count, total = len(stops), rounded(len(stops))
    stops = torch.cat([stops, torch.arange(count + 1, total + 1)])
    added = torch.arange(count, count + rounded(len(queries)) - len(queries))
    queries = torch.cat([queries, added.clamp(max=total - 1)])
    by_query, by_key, begins = queries.view(-1, block), stops.view(-1, block), torch.arange(0, total, block)
    first, last = by_query[:, :1], by_query[:, -1:]
    some = (begins <= last) & (first < by_key.amax(1))
    whole = (begins + block - 1 <= first) & (last < by_key.amin(1))
    tokens, ends = (x.to(torch.int32).to(device, non_blocking=True) for x in (queries, stops))

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= tokens[query]) & (tokens[query] < ends[key])

    tables: dict[str, Any] = {}
    for name, pairs in (("", some & ~whole), ("full_", whole)):
        for side, each in (("kv", pairs), ("q", pairs.t())):
            tables[f"{name}{side}_num_blocks"], tables[f"{name}{side}_indices"] = _ordered(each)
    on_device = {name: table.to(device, non_blocking=True) for name, table in tables.items()}
    return BlockMask((len(queries), total), BLOCK_SIZE=(block, block), mask_mod=sees, **on_device)


def _ordered(pairs: Tensor) -> tuple[Tensor, Tensor]:
    """Of each row, how many columns have a pair, and which: (1, 1, rows) and (1, 1, rows, columns) int32; then 0."""
    counts = pairs.sum(-1)
    rows, columns = pairs.nonzero(as_tuple=True)
    places = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    indices = torch.zeros(pairs.shape, dtype=torch.int32)
    indices[rows, places] = columns.to(torch.int32)
    return counts.to(torch.int32)[None, None], indices[None, None]
