"""The difference between log-probabilities of engine and learner."""

import pytest
import torch

from troupe.rollout.engines.vllm.server import ProbeResult
from troupe.rollout.engines.vllm.verifier import difference


def test_one_wrong_logprob_is_noticed() -> None:
    learner = torch.log_softmax(torch.randn(4, 60, generator=torch.Generator().manual_seed(0)), -1)
    results = [ProbeResult({int(i): float(row[i]) for i in row.topk(5).indices}, 0) for row in learner]
    assert difference(learner, results) == 0
    token = next(iter(results[2].logprobs))
    results[2] = ProbeResult({**results[2].logprobs, token: results[2].logprobs[token] + 0.25}, 0)
    assert difference(learner, results) == pytest.approx(0.25, abs=1e-5)
    results[1] = ProbeResult({token: float("nan")}, 0)
    assert difference(learner, results) == float("inf")
