"""FlexAttention in blocks: which blocks it is given, and its results against the scores of all pairs."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from troupe.models.learning import block_attention
from troupe.models.learning.block_attention import attend_in_blocks, block_mask, rounded
from troupe.models.learning.tree_attention import Tree

from .test_tree_attention import dense, drawn, random_tree

ROWS = 128
COMPILES = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf", "ignore:`torch.jit.script_method` is deprecated"
)
"""As torch's compiler does for what it looks at."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_attention, "FEWEST_ROWS", ROWS)


def tree_of(seed: int, scored_only: bool = False) -> Tree:
    tree = random_tree(Random(seed))
    return Tree(tree.segments, tree.positions, scored_only)


def in_blocks(tree: Tree, kernel: Callable[..., Any] | None, *qkv: Tensor) -> Tensor:
    """(Q, H, D)"""
    q, k, v = (x.transpose(0, 1)[None] for x in qkv)
    return attend_in_blocks(q, k, v, tree.block_mask, 0.3, kernel)[0]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scored_only", [False, True])
@pytest.mark.parametrize("block", [4, 16])
def test_blocks_are_listed_as_their_pairs_are(seed: int, scored_only: bool, block: int) -> None:
    tree = tree_of(seed, scored_only)
    rows, columns = (rounded(len(x)) for x in (tree.queries, tree.stops))
    mask = block_mask(tree.queries, tree.stops, torch.device("cpu"), block)
    visible = torch.stack([mask.mask_mod(0, 0, torch.tensor(q), torch.arange(columns)) for q in range(rows)])
    assert torch.equal(visible[: len(tree.queries), : len(tree.stops)], tree.visible())
    assert visible.any(1).all()  # a row without keys would be NaN in some versions of torch
    blocks = visible.unflatten(0, (-1, block)).unflatten(2, (-1, block)).transpose(1, 2)
    listed = torch.zeros(2, rows // block, columns // block, dtype=torch.bool)
    for where, name in zip(listed, ("", "full_"), strict=True):
        for side, table in (("kv", where), ("q", where.t())):
            table[:] = False
            counts, indices = (getattr(mask, f"{name}{side}_{of}")[0, 0] for of in ("num_blocks", "indices"))
            for row, count, order in zip(table, counts, indices, strict=True):
                row[order[:count]] = True
            if side == "kv":
                by_query = where.clone()
        assert torch.equal(where, by_query)  # for the backward pass
    partial, whole = listed
    assert torch.equal(whole, blocks.all((2, 3)))
    assert not (blocks.any((2, 3)) & ~partial & ~whole).any()
    if not scored_only:  # nothing is computed for nothing
        assert torch.equal(partial | whole, blocks.any((2, 3)))
    assert mask.shape == (1, 1, rows, columns)


@pytest.mark.parametrize(("count", "rows"), [(1, 4096), (4096, 4096), (4097, 8192), (16384, 16384), (40_000, 65_536)])
def test_rows_of_a_shape(monkeypatch: pytest.MonkeyPatch, count: int, rows: int) -> None:
    monkeypatch.undo()
    assert rounded(count) == rows


@pytest.mark.parametrize("scored_only", [False, True])
def test_results_are_those_of_all_pairs(monkeypatch: pytest.MonkeyPatch, scored_only: bool) -> None:
    """By torch's own computation of all pairs with the mask; heads of 8 numbers, two queries' to one key's."""
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    tree = tree_of(3, scored_only)
    q, k, v, _ = drawn(tree, torch.float32)
    result = in_blocks(tree, flex.flex_attention, q, k, v)
    assert (result - dense(q, k, v, tree)).abs().max() < 1e-5


def compare(tree: Tree, kernel: Callable[..., Any] | None, tolerance: float, *inputs: Tensor) -> None:
    """Results and gradients, for queries, keys, values and a gradient."""
    *qkv, grad = inputs
    exact = [x.double().requires_grad_() for x in qkv]
    qkv = [x.requires_grad_() for x in qkv]
    expected, result = dense(*exact, tree), in_blocks(tree, kernel, *qkv)
    gradients = torch.autograd.grad(result, qkv, grad), torch.autograd.grad(expected, exact, grad.double())
    for of_result, of_expected in [(result, expected), *zip(*gradients, strict=True)]:
        assert (of_result.double() - of_expected).norm() <= tolerance * of_expected.norm()


@COMPILES
@pytest.mark.slow
def test_nothing_is_compiled_for_another_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's compiler, but for the last step, which makes kernels; for a CPU there is none for gradients."""
    from torch._dynamo.testing import CompileCounterWithBackend

    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)  # which refuses gradients on a CPU
    counter = CompileCounterWithBackend("aot_eager")
    kernel = torch.compile(flex.flex_attention, backend=counter, dynamic=False, fullgraph=True)
    trees = [tree_of(seed) for seed in range(12)]
    trees = [tree for tree in trees if len(tree.stops) <= ROWS]
    assert len({len(tree.stops) for tree in trees}) > 3
    for tree in trees:
        compare(tree, kernel, 1e-5, *drawn(tree, torch.float32))
    assert counter.frame_count == 1
    with torch.no_grad():
        for tree in trees[:2]:
            in_blocks(tree, kernel, *drawn(tree, torch.float32)[:3])
    assert counter.frame_count == 2


@COMPILES
@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-2), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("heads", [(4, 2, 8), (14, 2, 64), (16, 8, 128)])
def test_kernels_of_a_gpu(dtype: torch.dtype, tolerance: float, heads: tuple[int, int, int]) -> None:
    """Float32 is rounded to TensorFloat-32.  Trees of up to 2,048 tokens, in at most five shapes."""
    from torch._dynamo.utils import counters

    torch.set_float32_matmul_precision("high")
    counters.clear()
    for seed in range(16):
        tree = random_tree(Random(seed), largest=40)
        tree = Tree(tree.segments, tree.positions.cuda())
        if len(tree.stops) <= 2048:
            inputs = drawn(tree, torch.float32, heads[1], heads[0], heads[2])
            compare(tree, None, tolerance, *(x.to("cuda", dtype) for x in inputs))
    torch.set_float32_matmul_precision("highest")
    assert counters["stats"]["unique_graphs"] <= 5
