"""Attention over trees of segments, against the scores of all pairs."""

from random import Random

import pytest
import torch
from torch import Tensor

from troupe.experience import Segment
from troupe.models.learning import tree_attention
from troupe.models.learning.tree_attention import Tree, attend

H, D = 4, 8


def random_tree(rng: Random, largest: int = 9, trees: int = 2) -> Tree:
    """Several trees one after another, with segments of 1 to ``largest`` tokens, up to four deep."""
    segments: list[Segment] = []
    positions: list[int] = []

    def grow(start: int, position: int, depth: int) -> int:
        end = start + rng.randint(1, largest)
        index = len(segments)
        segments.append(Segment(start, end, end, rng.random() < 0.6))
        positions.extend(range(position, position + end - start))
        stop = end
        for _ in range(rng.choice([0, 1, 2, 4]) if depth < 3 else 0):
            stop = grow(stop, position + end - start, depth + 1)
        segments[index] = segments[index]._replace(stop=stop)
        return stop

    end = 0
    for _ in range(trees):
        end = grow(end, 0, 0)
    segments[-1] = segments[-1]._replace(scored=True)  # so that there is a query
    return Tree(segments, torch.tensor(positions), scored_only=rng.random() < 0.5)


def drawn(tree: Tree, dtype: torch.dtype, kv_heads: int = 2, heads: int = H, width: int = D) -> list[Tensor]:
    """Queries, keys, values and a gradient."""
    generator = torch.Generator().manual_seed(0)
    rows, tokens = len(tree.queries), len(tree.stops)
    sizes = [(rows, heads), (tokens, kv_heads), (tokens, kv_heads), (rows, heads)]
    return [2 * torch.randn(*size, width, generator=generator, dtype=dtype) for size in sizes]


def dense(q: Tensor, k: Tensor, v: Tensor, tree: Tree) -> Tensor:
    """Written plainly, from the rule."""
    rows, columns = tree.queries[:, None], torch.arange(len(tree.stops), device=tree.device)
    hidden = (columns > rows) | (rows >= tree.stops)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * 0.3
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, float("-inf")).softmax(-1), v)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_results_and_gradients_are_those_of_all_pairs(
    monkeypatch: pytest.MonkeyPatch, seed: int, dtype: torch.dtype, tolerance: float
) -> None:
    """Those in float64; some segments one by one, others together."""
    monkeypatch.setattr(tree_attention, "LONG", seed % 8)
    rng = Random(seed)
    tree = random_tree(rng)
    *inputs, grad = drawn(tree, dtype, rng.choice([1, 2, 4]))
    for tensor in inputs:
        tensor.requires_grad_()
    expected, result = dense(*(tensor.double() for tensor in inputs), tree), attend(*inputs, tree, 0.3)
    assert (result - expected).norm() <= tolerance * expected.norm()
    found = torch.autograd.grad(result, inputs, grad)
    for of_result, of_expected in zip(found, torch.autograd.grad(expected, inputs, grad.double()), strict=True):
        assert (of_result - of_expected).norm() <= tolerance * of_expected.norm()
