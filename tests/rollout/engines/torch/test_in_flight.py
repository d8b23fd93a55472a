"""Weights that are loaded between two tokens: which version drew each, and with which keys and values."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Mapping, Sequence

import pytest
import torch
from transformers import DynamicCache, PreTrainedModel

from troupe.experience import Completion, Request
from troupe.rollout.engines.lora import PREFIX, Adapted
from troupe.rollout.engines.torch.engine import TorchEngine

from .conftest import all_of, build, decoder, plain_logprobs, request

NEW = 20
"""Tokens of each completion here."""


def due_after(engine: TorchEngine, steps: Sequence[int], policy: str = "p") -> list[asyncio.Event]:
    """Events that are set once ``policy`` has decoded so many ``steps``; it goes on once a load waits."""
    loop, events, count = asyncio.get_running_loop(), [asyncio.Event() for _ in steps], iter(range(1, 1000))
    step = decoder(engine, policy).step
    decoder(engine, policy).eos = frozenset()

    def stepping() -> None:
        step()
        if (now := next(count)) in steps:
            loop.call_soon_threadsafe(events[steps.index(now)].set)
            while not engine._waiting_loads:
                time.sleep(0.001)

    decoder(engine, policy).step = stepping
    return events


@torch.no_grad()
def over_kept_cache(models: Sequence[PreTrainedModel], asked: Request, said: Completion) -> torch.Tensor:
    """Log-probs of the tokens of ``said``, each by the model of its version, which reads the token before it alone."""
    cache, read, logprobs = DynamicCache(), list(asked.prompt_ids), []
    for token, version in zip(said.token_ids, said.versions, strict=True):
        logits = models[version](input_ids=torch.tensor([read]), past_key_values=cache, use_cache=True).logits[0, -1]
        logprobs.append(logits.log_softmax(-1)[token])
        read = [token]
    return torch.stack(logprobs)


def check(models: Sequence[PreTrainedModel], asked: Sequence[Request], said: Sequence[Sequence[Completion]]) -> None:
    """The recorded log-probs are those of each token's version over the kept cache, and of no version alone."""
    for one, node in zip(asked, said, strict=True):
        for completion in node:
            recorded = torch.tensor(completion.logprobs)
            assert (recorded - over_kept_cache(models, one, completion)).abs().max() < 1e-4
            for model in models:
                assert (recorded - plain_logprobs(model, one, completion.token_ids)).abs().max() > 0.1


async def test_each_token_is_drawn_by_its_version_over_the_kept_cache(tokenizer, forward):
    models = [build(seed=seed) for seed in range(3)]
    engine = TorchEngine({"p": copy.deepcopy(models[0])}, tokenizer, lockstep=False, in_flight=True)
    assert isinstance(decoder(engine).forward, forward)
    first, second = due_after(engine, [5, 11])
    requests = [request(3 + i, seed=i, max_tokens=NEW, n=2) for i in range(3)]
    answers = asyncio.create_task(all_of(engine, requests))
    await first.wait()
    await engine.load("p", models[1].state_dict(), 1)
    await second.wait()
    late = asyncio.create_task(engine.generate(request(6, max_tokens=4)))
    await asyncio.sleep(0)
    await engine.load("p", models[2].state_dict(), 2)
    assert not answers.done(), "nothing is waited for"
    said = await answers
    # The first token is drawn from the prompt's logits, and one by each step.
    assert {c.versions for node in said for c in node} == {(0,) * 6 + (1,) * 6 + (2,) * 8}
    assert {c.version for node in said for c in node} == {0}
    check(models, requests, said)
    assert {(c.version, c.versions) for c in await late} == {(2, ())}, "what waits gets the new ones"
    await engine.close()


def adapter(model: PreTrainedModel, seed: int) -> dict[str, torch.Tensor]:
    """Random weights of rank 2 on the keys and the gates of all layers."""
    generator, weights = torch.Generator().manual_seed(seed), {}
    for name, weight in model.state_dict().items():
        if "k_proj.weight" in name or "gate_proj.weight" in name:
            path = PREFIX + name.removesuffix(".weight")
            weights[f"{path}.lora_A.weight"] = torch.randn(2, weight.shape[1], generator=generator)
            weights[f"{path}.lora_B.weight"] = torch.randn(weight.shape[0], 2, generator=generator)
    return weights


def merged(model: PreTrainedModel, weights: Mapping[str, torch.Tensor]) -> PreTrainedModel:
    """``model`` with W + 0.3 B A."""
    result, own = copy.deepcopy(model), {}
    for name, weight in model.state_dict().items():
        path = PREFIX + name.removesuffix(".weight")
        low = [weights.get(f"{path}.lora_{end}.weight") for end in "BA"]
        own[name] = weight if low[0] is None else weight + 0.3 * low[0] @ low[1]
    result.load_state_dict(own)
    return result


async def test_adapters_change_between_two_tokens_too_each_alone(tokenizer, forward):
    model, weights = build(), {}
    for name, seed in (("p", 1), ("q", 2), ("new", 3)):
        weights[name] = adapter(model, seed)
    policies = {name: Adapted(copy.deepcopy(model), weights[name], 0.3) for name in "pq"}
    policies["q"] = Adapted(policies["p"].model, weights["q"], 0.3)
    engine = TorchEngine(policies, tokenizer, lockstep=False, in_flight=True)
    (due,) = due_after(engine, [4])
    decoder(engine, "q").eos = frozenset()
    requests = [request(3 + i, seed=i, policy="pq"[i % 2], max_tokens=NEW, n=2) for i in range(4)]
    answers = asyncio.create_task(all_of(engine, requests))
    await due.wait()
    await engine.load("p", weights["new"], 1)
    assert not answers.done()
    said = await answers
    assert {c.versions for node in said[::2] for c in node} == {(0,) * 5 + (1,) * 15}
    assert {c.versions for node in said[1::2] for c in node} == {()}
    check([merged(model, weights["p"]), merged(model, weights["new"])], requests[::2], said[::2])
    other = merged(model, weights["q"])
    for one, node in zip(requests[1::2], said[1::2], strict=True):
        for c in node:
            assert (torch.tensor(c.logprobs) - plain_logprobs(other, one, c.token_ids)).abs().max() < 1e-4
    await engine.close()


async def test_weights_that_do_not_fit_leave_completions_as_they_are(tokenizer):
    model = build()
    engine = TorchEngine({"p": copy.deepcopy(model)}, tokenizer, lockstep=False, in_flight=True)
    (due,) = due_after(engine, [5])
    answer = asyncio.create_task(engine.generate(request(4, max_tokens=NEW)))
    await due.wait()
    with pytest.raises(ValueError, match="policy 'p': these weights do not fit"):
        await engine.load("p", {}, 1)
    for completion in await answer:
        assert (completion.version, completion.versions, len(completion.token_ids)) == (0, (), NEW)
        own = plain_logprobs(model, request(4, max_tokens=NEW), completion.token_ids)
        assert (torch.tensor(completion.logprobs) - own).abs().max() < 1e-4
    await engine.close()


async def test_an_engine_that_is_idle_loads_at_once(tokenizer):
    other = build(seed=1)
    engine = TorchEngine({"p": build()}, tokenizer, lockstep=False, in_flight=True)
    await engine.load("p", other.state_dict(), 7)
    (completion,) = await engine.generate(request(4, n=1))
    assert (completion.version, completion.versions) == (7, ())
    own = plain_logprobs(other, request(4), completion.token_ids)
    assert (torch.tensor(completion.logprobs) - own).abs().max() < 1e-4
    await engine.close()


def test_in_lockstep_it_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"engine\.in_flight=true with engine\.lockstep=true"):
        TorchEngine({"p": build()}, tokenizer, in_flight=True)
