"""Draws: distributions, truncation, and numbers that depend on a request alone."""

from __future__ import annotations

import copy

import pytest
import torch
from scipy.stats import chisquare

from troupe.experience import Sampling
from troupe.rollout.engines.torch import sampling
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.engines.torch.sampling import BLOCK, LIKELIEST, SamplingTensors, distribution, draw, uniforms

from .conftest import VOCABULARY, all_of, build, request


async def test_first_tokens_follow_the_softmax(tokenizer):
    model = build(eos_token_id=None)
    single = request(6, n=4000, max_tokens=1)
    (node,) = await all_of(TorchEngine({"p": copy.deepcopy(model)}, tokenizer, max_batch_rows=4000), [single])
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([single.prompt_ids])).logits[0, -1].double().softmax(-1) * 4000
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in node]), minlength=VOCABULARY).double()
    assert expected.min() > 5, "too few draws for the test"
    assert chisquare(counts, expected).pvalue > 1e-3


def test_uniforms_depend_on_seed_and_row_only():
    assert uniforms(7, 3, 5) == uniforms(7, 3, 9)[:5]
    assert len({tuple(uniforms(seed, row, 2)) for seed in (0, 1, 2**63 - 1) for row in range(5)}) == 15


def test_a_draw_never_takes_a_token_of_probability_zero():
    logits = torch.tensor([[float("-1e30"), 2.0, float("-1e30"), 1.0, float("-1e30")]]).repeat(4, 1)
    edge = torch.tensor([0.0, 1 - 2.0**-53, 0.5, 0.9999999], dtype=torch.float64)
    tokens, logprobs = draw(logits, SamplingTensors(None, None, None, None), edge)
    assert tokens.tolist() == [1, 3, 1, 3] and torch.isfinite(logprobs).all()


@pytest.mark.parametrize("count", [BLOCK - 1, BLOCK, BLOCK + 1, 7 * BLOCK + 5])
def test_a_draw_is_the_inverse_of_the_cumulative_probabilities(count, monkeypatch):
    """Also where the probabilities are added by blocks, of which most are empty, and rows are drawn part by part."""
    logits = torch.randn(6, count, generator=torch.Generator().manual_seed(count)) * 4
    logits[3:, : count - 3] = -1e30
    logits[5, -1] = -1e30
    uniform = torch.tensor([0.3, 0.999999, 1 - 2.0**-53, 0.0, 0.5, 1 - 2.0**-53], dtype=torch.float64)
    ways = SamplingTensors.of([Sampling(temperature=0.5 + row / 4) for row in range(6)], count, logits.device)
    tokens, logprobs = draw(logits, ways, uniform)
    exact = (logits.double() / ways.temperature).log_softmax(-1)
    after = exact.exp().cumsum(-1).gather(1, tokens[:, None])[:, 0]
    before = after - exact.gather(1, tokens[:, None]).exp()[:, 0]
    assert (before - 1e-6 <= uniform).all() and (uniform <= after + 1e-6).all()
    assert torch.allclose(logprobs.double(), exact.gather(1, tokens[:, None])[:, 0], atol=1e-5)
    assert (exact.gather(1, tokens[:, None]) > -100).all() and tokens[5] == count - 2 and tokens[3] == count - 3
    monkeypatch.setattr(sampling, "AT_ONCE", 2 * count)
    assert all(
        torch.equal(one, other) for one, other in zip(draw(logits, ways, uniform), (tokens, logprobs), strict=True)
    )


def test_truncation_of_mixed_rows():
    logits = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log().repeat(4, 1)
    ways = [Sampling(), Sampling(top_k=2), Sampling(top_p=0.5), Sampling(top_p=0.9, top_k=3)]
    probabilities = distribution(logits, SamplingTensors.of(ways, 4, logits.device)).exp()
    expected = [[0.5, 0.25, 0.15, 0.1], [2 / 3, 1 / 3, 0, 0], [1, 0, 0, 0], [5 / 9, 2.5 / 9, 1.5 / 9, 0]]
    assert torch.allclose(probabilities, torch.tensor(expected), atol=1e-6)


def test_truncation_of_a_large_vocabulary_is_that_of_all_words_sorted():
    """Peaked rows, whose nucleus is among the likeliest; then a flat one beside them, whose nucleus is not."""
    ways = [Sampling(top_p=0.9), Sampling(top_p=0.9, top_k=7), Sampling(top_k=3000), Sampling()]
    noise = torch.randn(4, 5 * LIKELIEST, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for sharpness in ([12, 12, 2, 1], [0.1, 12, 2, 1]):
        logits = noise * torch.tensor(sharpness)[:, None]
        found = distribution(logits, SamplingTensors.of(ways, logits.shape[1], logits.device)).exp()
        for row, way, probabilities in zip(logits, ways, found, strict=True):
            ordered, order = row.sort(descending=True)
            share = ordered.softmax(-1)
            if way.top_k:
                share[way.top_k :] = 0
            share = share / share.sum()
            share = share * (share.cumsum(-1) - share < way.top_p)
            assert torch.allclose(probabilities[order], share / share.sum(), atol=1e-12)
        assert (sharpness[0] > 1) == (int((found[0] > 0).sum()) < LIKELIEST)


def test_equal_words_stay_or_go_together_whatever_shares_the_batch():
    """At the edge of a nucleus the order of equal logits decides nothing, and neither does a flat row beside."""
    logits = torch.zeros(2, 3 * LIKELIEST)
    logits[0, ::300] = 12.0  # 11 equal words with nearly all of the mass: five reach 0.4
    ways = [Sampling(top_p=0.4), Sampling(top_p=0.99)]
    alone = distribution(logits[:1], SamplingTensors.of(ways[:1], logits.shape[1], logits.device))
    beside = distribution(logits, SamplingTensors.of(ways, logits.shape[1], logits.device))
    assert torch.equal(alone[0], beside[0]) and int(alone.isfinite().sum()) == 11


def test_a_tiny_temperature_is_nearly_greedy():
    logits = torch.tensor([[1e4, 2e4, -3e4]])
    tokens, logprobs = draw(
        logits, SamplingTensors.of([Sampling(temperature=1e-30)], 3, logits.device), torch.tensor([0.99])
    )
    assert tokens.tolist() == [1] and logprobs.tolist() == [0.0]


async def test_a_request_draws_the_same_whatever_shares_its_batch(tokenizer):
    engine = TorchEngine({"p": build()}, tokenizer)
    requests = [request(length, seed=length) for length in range(3, 12)]
    together = await all_of(engine, requests)
    for each, node in zip(requests, together, strict=True):
        (alone,) = await all_of(engine, [each])
        assert [c.token_ids for c in alone] == [c.token_ids for c in node]
        assert len({c.token_ids for c in node}) > 1
