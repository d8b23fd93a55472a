"""The cache that shares prompts: exact log-probs while rows and groups come and go."""

from __future__ import annotations

import copy

import pytest

from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.engines.torch.stores import moves

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
