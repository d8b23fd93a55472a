"""The cache that shares prompts: exact log-probs while rows and groups come and go."""

from __future__ import annotations

import copy

import pytest
import torch

from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.engines.torch.prefixes import enlarged, grown, moves

from .conftest import all_of, build, request, worst


@pytest.mark.parametrize("lockstep", [True, False])
async def test_rows_that_join_late_and_leave_early_get_exact_logprobs(lockstep, forward, tokenizer):
    """More requests than rows, of many lengths: the ring of own columns wraps and widens, groups come and go."""
    model = build()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, max_batch_rows=8, lockstep=lockstep)
    requests = [request(2 + 5 * i % 31, seed=i, n=1 + i % 4, max_tokens=3 + 7 * i % 23) for i in range(24)]
    assert worst(model, requests, await all_of(engine, requests)) < 1e-4


def test_moves_close_the_gaps_from_the_end():
    assert moves(5, [1, 4]) == ([1], [3])
    assert moves(3, [0, 1]) == ([0], [2])
    assert moves(3, [2]) == ([], [])


@pytest.mark.parametrize(
    ("present", "needed", "size"),
    [
        ((0, 0), (3, 9), (3, 9)),
        ((8, 10), (8, 10), (8, 10)),
        ((8, 10), (4, 5), (8, 10)),
        ((8, 10), (3, 5), (3, 10)),  # what is twice as large as needed shrinks
        ((8, 10), (4, 4), (4, 4)),
        ((8, 10), (9, 4), (12, 4)),
        ((8, 10), (9, 6), (12, 10)),  # entries grow by half
        ((8, 10), (20, 6), (20, 10)),
        ((8, 10), (9, 11), (12, 11)),
        ((200, 10), (3, 90), (3, 90)),  # nothing is kept for entries that have left, where all is copied anyway
    ],
)
def test_how_a_store_grows(present: tuple[int, int], needed: tuple[int, int], size: tuple[int, int]) -> None:
    assert grown(present, needed) == size
    kept, columns = min(present[0], needed[0]), min(present[1], needed[1])
    store = torch.rand(present[0], 2, present[1], 3)
    larger = enlarged(store, needed, 2)
    assert (larger.shape[0], larger.shape[2]) == size
    assert torch.equal(larger[:kept, :, :columns], store[:kept, :, :columns]) and not larger[:, :, present[1] :].any()
