"""Decoding that runs out of memory: torch's own allocator fails, in the passes with more rows than a bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch

from troupe.rollout.engines.base import EngineError, Stateful
from troupe.rollout.engines.torch.engine import TorchEngine

from .conftest import all_of, build, decoder, request

REQUESTS = [request(4 + i % 3, seed=i, n=2) for i in range(8)]


def bound_memory(engine: TorchEngine, rows: int, where: str) -> None:
    """Let ``prefill`` (prompts) or ``step`` (rows) fail on more than ``rows``."""
    forward = decoder(engine).forward
    real = getattr(forward, where)

    def bounded(cache: Any, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        if len(ids) > rows:
            torch.empty(1 << 60, dtype=torch.uint8)
        return real(cache, ids, places)

    setattr(forward, where, bounded)


@pytest.mark.parametrize(("lockstep", "where", "rows"), [(True, "step", 5), (False, "prefill", 2)])
async def test_fewer_rows_decode_the_same_as_if_there_had_never_been_more(tokenizer, lockstep, where, rows):
    small, roomy = (TorchEngine({"p": build()}, tokenizer, size, lockstep) for size in (4, 64))
    bound_memory(roomy, rows, where)
    expected, answers = await all_of(small, REQUESTS), await all_of(roomy, REQUESTS)
    if lockstep:  # the same batches, hence the same bits
        assert answers == expected
    assert [[c.token_ids for c in node] for node in answers] == [[c.token_ids for c in node] for node in expected]
    assert roomy.drain() == {"faults/engine": 0, "faults/oom_decoding": 2}, "16 rows, 8, 4"
    await all_of(roomy, REQUESTS)
    assert not any(roomy.drain().values()), "the smaller number stays"


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.slow
async def test_those_that_wait_do_not_count_as_a_batch_that_failed(tokenizer, lockstep):
    """The cache holds few rows beside many that wait: half of the few is tried next."""
    tokens = 4 * 6 + 8 * 8  # eight rows: four prompts of up to 6 tokens, and 8 tokens of each row
    requests = [request(4 + i % 3, seed=i, n=2) for i in range(32)]
    engine = TorchEngine({"p": build()}, tokenizer, 64, lockstep, max_cache_gib=tokens * 256 / 2**30)
    bound_memory(engine, 5, "step")
    assert len(await all_of(engine, requests)) == 32
    assert engine.drain()["faults/oom_decoding"] == 1 and engine.state_dict() == {"rows": 4}


async def test_the_smaller_number_is_the_engines_state(tokenizer):
    first, other = (TorchEngine({"p": build()}, tokenizer, 64) for _ in range(2))
    assert isinstance(first, Stateful)
    bound_memory(first, 5, "step")
    await all_of(first, REQUESTS)
    other.load_state_dict(first.state_dict())
    sizes, admit = [], decoder(other).admit
    decoder(other).admit = lambda jobs: (sizes.append(sum(job.request.n for job in jobs)), admit(jobs))
    assert await all_of(other, REQUESTS) == await all_of(first, REQUESTS)
    assert max(sizes) == 4
    assert len(await other.generate(request(4, n=7))) == 7, "a request with more decodes alone"


@pytest.mark.slow
async def test_one_request_that_does_not_fit_is_named(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer, 64)
    bound_memory(engine, 1, "step")
    errors = await asyncio.gather(*map(engine.generate, REQUESTS[:3]), return_exceptions=True)
    assert len(errors) == 3 and all(isinstance(error, EngineError) for error in errors)
    with pytest.raises(EngineError, match=r"policy 'p': .*the 2 completions of one prompt.*DefaultCPUAllocator"):
        await engine.generate(REQUESTS[0])
    assert engine.drain()["faults/engine"] == 2
