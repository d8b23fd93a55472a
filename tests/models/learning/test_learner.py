"""One policy's update against the whole of AT-GRPO written plainly, and against other objectives; what it refuses."""

import statistics
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen3ForCausalLM

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.grpo import Grpo
from troupe.algorithms.objectives import ClippedObjective, ObjectiveOutput, PolicyGradient
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Sample, Task
from troupe.models.learning import learner
from troupe.models.learning.optimizer_steps import NonFiniteError
from troupe.models.learning.packing import mini_batches
from troupe.routing import Router

from ..conftest import (
    SGD,
    TEMPERATURE,
    Groups,
    Plain,
    Tiny,
    equal,
    full_policy,
    learn,
    model_of,
    perturb,
    snapshot,
    weights_of,
)

ADAMW = partial(torch.optim.AdamW, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def distance(found: Tensor, expected: Tensor, origin: Tensor) -> float:
    """Of two sets of weights, relative to how far the expected ones have moved from ``origin``."""
    moved = (expected - origin).norm()
    assert moved > 1e-3
    return ((found - expected).norm() / moved).item()


def played(seed: int = 0) -> list[Episode]:
    """Two episodes of two agents and two turns, four candidates a node, one node without any difference."""
    rng = Random(seed)
    rewards = [[0, 1.1, 0, 0.1], [1, 0, 1, 0], [0.05, 0.05, 0.05, 0.05], [0, 0, 0, 1]]
    rewards += [[0.1, 0.2, 0.3, 1], [1, 1, 0, 1], [0, 0.1, 0, 0], [1, 0, 0, 0]]
    episodes = []
    for task in ("t", "u"):
        nodes = []
        for turn in (0, 1):
            for agent in ("tool", "plan"):
                prompt = tuple(rng.randrange(4, 24) for _ in range(rng.randint(2, 9)))
                candidates = []
                for reward in rewards.pop(0):
                    ids = tuple(rng.randrange(1, 24) for _ in range(rng.randint(1, 6)))
                    logprobs = tuple(-rng.randint(1, 40) / 8 for _ in ids)
                    spoken = Completion(ids, logprobs, "", "stop", "p", 0)
                    candidates.append(Candidate(spoken, local=0.0, team=reward, reward=reward))
                nodes.append(Node(task, agent, turn, prompt, candidates))
        episodes.append(Episode(Task(task, "train", {}), nodes, []))
    return episodes


def plain_step(
    model: Qwen3ForCausalLM,
    optimizer: torch.optim.Optimizer,
    samples: list[Sample],
    olds: list[Tensor] | None,
    plain_logprobs: Plain,
    cap: float,
    clip_norm: float,
) -> None:
    """One optimizer step on the clipped objective, one sample and one token at a time."""
    total = torch.zeros((), dtype=model.dtype)
    for index, sample in enumerate(samples):
        logprobs = plain_logprobs(model, sample, TEMPERATURE)
        old = logprobs.detach() if olds is None else olds[index]
        gain = torch.zeros((), dtype=model.dtype)
        for i in range(len(sample.token_ids)):
            ratio = (logprobs[i] - old[i]).exp()
            term = torch.min(ratio * sample.advantage, ratio.clamp(0.8, 1.2) * sample.advantage)
            if cap:
                term = term * (old[i] - sample.behaviour_logprobs[i]).exp().clamp(max=cap)
            gain = gain + term / len(sample.token_ids)
        total = total - sample.weight * gain
    optimizer.zero_grad()
    total.backward()
    norm = sum(p.grad.double().pow(2).sum() for p in model.parameters()) ** 0.5
    for p in model.parameters():
        p.grad *= min(1.0, clip_norm / (norm + 1e-6))  # as torch's clip_grad_norm_
    optimizer.step()


# ---- AT-GRPO as a formula --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip_norm", [1e9, 0.05])
@pytest.mark.parametrize("cap", [0.0, 1.5])
@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
async def test_one_update_is_at_grpo_written_plainly(
    tiny: Tiny, plain_logprobs: Plain, dtype: torch.dtype, optimizer: Any, cap: float, clip_norm: float
) -> None:
    # Troupe: credit, routing, pool.
    episodes = played()
    AtGrpo(std_floor=0.2)(episodes)
    routed = Router({"tool": "p", "plan": "p"}, ("tool", "plan"), ("p",)).route(episodes, AtGrpo().key)["p"]
    ours = full_policy(
        tiny(dtype), objective=ClippedObjective(importance_cap=cap), optimizer=optimizer, clip_norm=clip_norm
    )
    stats = await learn(ours, routed)

    # Plainly: eight groups of four; the mean over a completion's tokens, then candidates, then groups.
    samples = []
    for episode in played():
        for node in episode.nodes:
            rewards = [c.reward for c in node.candidates]
            mean, std = sum(rewards) / 4, statistics.stdev(rewards)
            for c in node.candidates:
                advantage = (c.reward - mean) / (std + 0.2)
                advantage = torch.tensor(advantage, dtype=torch.float32).item()  # as a TokenBatch holds it
                spoken = c.completion
                samples.append(Sample("p", node.prompt_ids, spoken.token_ids, spoken.logprobs, advantage, 1 / 8 / 4))
    model = tiny(dtype)
    plain_step(model, optimizer(model.parameters()), samples, None, plain_logprobs, cap, clip_norm)

    assert distance(weights_of(model_of(ours)), weights_of(model), weights_of(tiny(dtype))) <= TOLERANCE[dtype]
    assert stats["clipped_share"] == stats["step_kl_nats"] == 0  # the ratio is exactly 1
    assert (stats["samples"], stats["live_groups"], stats["optimizer_steps"]) == (32, 7 / 8, 1)
    assert ours.version == 1


@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
async def test_one_update_is_rloo_written_plainly(tiny: Tiny, plain_logprobs: Plain, optimizer: Any) -> None:
    """Two tasks of three episodes, of 1 to 4 messages: the mean over episodes of (R - mean of the others) log p."""
    rng, returns, lengths = Random(0), [[1, 0, 0.5], [0.25, 1, 0]], [[1, 4, 3], [4, 2, 4]]
    episodes = []
    for task, values, messages in zip("tu", returns, lengths, strict=True):
        for value, count in zip(values, messages, strict=True):
            nodes, edges = [], []
            for turn in range(count):
                ids = tuple(rng.randrange(1, 24) for _ in range(rng.randint(1, 6)))
                spoken = Completion(ids, (-1.0,) * len(ids), "", "stop", "p", 0)
                nodes.append(Node(task, "solo", turn, (5, rng.randrange(4, 24)), [Candidate(spoken, 0.0, 0.0, 0.0)]))
                last = Outcome(value == 1, count, value, value) if turn == count - 1 else None
                edges.append(JointAction({"solo": (turn, 0)}, None if last else turn + 1, last))
            episodes.append(Episode(Task(task, "train", {}), nodes, edges))
    rule = Grpo(baseline="leave_one_out", normalise=False, weight="episode")
    rule(episodes)
    routed = Router({"solo": "p"}, ("solo",), ("p",)).route(episodes, rule.key, rule.weight)["p"]
    ours = full_policy(tiny(torch.float64), objective=PolicyGradient(normalisation="sequence_sum"), optimizer=optimizer)
    await learn(ours, routed)

    model = tiny(torch.float64)
    step = optimizer(model.parameters())
    total = torch.zeros((), dtype=torch.float64)
    for values, played_ in zip(returns, (episodes[:3], episodes[3:]), strict=True):
        for value, episode in zip(values, played_, strict=True):
            advantage = torch.tensor(value - (sum(values) - value) / 2).item()  # float32, as a TokenBatch holds it
            for node in episode.nodes:
                said = node.candidates[0].completion
                sample = Sample("p", node.prompt_ids, said.token_ids, said.logprobs, advantage, 1)
                total = total - advantage * plain_logprobs(model, sample, TEMPERATURE).sum() / 2 / 3
    total.backward()
    step.step()
    assert distance(weights_of(model_of(ours)), weights_of(model), weights_of(tiny(torch.float64))) <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
async def test_several_steps_compare_with_the_updates_start(
    tiny: Tiny, groups: Callable[..., Groups], plain_logprobs: Plain, dtype: torch.dtype
) -> None:
    given, epochs, sgd = groups(), 3, partial(torch.optim.SGD, lr=0.1)
    ours = full_policy(tiny(dtype), mini_batches=2, epochs=epochs, seed=5, optimizer=sgd)
    versions = range(2 if dtype == torch.float64 else 1)  # further steps take roundings of float32 too far apart
    stats, *_ = [await learn(ours, given) for _ in versions]

    model = tiny(dtype)
    optimizer = sgd(model.parameters())
    for version in versions:
        parts = mini_batches(given, 2, Random(f"5/p/{version}"))  # the split itself is test_packing's subject
        olds = [[plain_logprobs(model, s, TEMPERATURE).detach() for s in part] for part in parts]
        for _ in range(epochs):
            for part, old in zip(parts, olds, strict=True):
                plain_step(model, optimizer, part, old, plain_logprobs, 0.0, 1e9)

    assert distance(weights_of(model_of(ours)), weights_of(model), weights_of(tiny(dtype))) <= TOLERANCE[dtype]
    assert stats["clipped_share"] > 0.1
    assert stats["step_kl_nats"] > 1e-3
    assert stats["optimizer_steps"] == 6


async def test_without_any_advantage_nothing_moves(tiny: Tiny) -> None:
    ours = full_policy(tiny(), optimizer=ADAMW)
    before = weights_of(model_of(ours))
    stats = await learn(ours, [[Sample("p", (5,), (6,), (-1.0,), 0.0, 0.5)] * 2])
    assert torch.equal(weights_of(model_of(ours)), before)
    assert (stats["optimizer_steps"], stats["live_groups"], stats["samples"]) == (0, 0, 2)
    assert ours.version == 1


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
async def test_other_precisions_step_the_same_way(tiny: Tiny, groups: Callable[..., Groups], precision: str) -> None:
    exact, other = full_policy(tiny()), full_policy(tiny(), precision=precision)
    dtype = next(model_of(other).parameters()).dtype
    assert dtype == (torch.float64 if precision == "64-true" else torch.float32)  # master weights
    for each in (exact, other):
        await learn(each, groups())
    moved = weights_of(model_of(exact)) - weights_of(tiny())
    found = weights_of(model_of(other)) - weights_of(tiny())
    assert torch.nn.functional.cosine_similarity(moved.double(), found.double(), dim=0) > 0.99


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
async def test_every_pass_over_the_samples_has_one_precision(
    tiny: Tiny, groups: Callable[..., Groups], precision: str
) -> None:
    still = partial(torch.optim.SGD, lr=0.0)
    stats = await learn(full_policy(tiny(), epochs=2, mini_batches=2, optimizer=still, precision=precision), groups())
    assert stats["optimizer_steps"] == 4
    assert stats["step_kl_nats"] == stats["clipped_share"] == 0  # the learner has not moved, so every ratio is 1


@pytest.mark.parametrize("large", [True, False])
async def test_a_large_model_gives_back_memory_after_each_micro_batch(
    tiny: Tiny, groups: Callable[..., Groups], monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    trims: list[bool] = []
    monkeypatch.setattr(learner, "trim_heap", lambda: trims.append(True))
    monkeypatch.setattr(learner, "LARGE", 0 if large else learner.LARGE)
    await learn(full_policy(tiny(), max_tokens=16), groups())
    assert len(trims) > 1 if large else not trims


async def test_recomputed_activations_give_the_same_update(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    plain, saving = tiny(torch.float64), tiny(torch.float64)
    saving.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    for model in (plain, saving):
        await learn(full_policy(model), groups())
    assert saving.is_activation_checkpointing and not plain.is_activation_checkpointing
    assert distance(weights_of(saving), weights_of(plain), weights_of(tiny(torch.float64))) < 1e-12


# ---- other objectives as formulas ------------------------------------------------------------------------------------


def tokens_of(groups: Groups) -> int:
    return sum(len(sample.token_ids) for group in groups for sample in group)


async def test_one_step_with_kl_and_entropy_written_plainly(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    """Every token of the mini-batch weighs the same; the learner stands away from its reference."""
    dtype = torch.float64
    given = next(found for seed in range(99) if tokens_of(found := groups(seed=seed)) == 64)  # 1 / 64 is exact
    objective = ClippedObjective(normalisation="token_mean", kl=0.3, entropy=0.2)
    ours = full_policy(tiny(dtype), objective=objective)
    perturb(model_of(ours))
    stats = await learn(ours, given)

    model = perturb(tiny(dtype))
    reference, samples, tokens = tiny(dtype), [sample for group in given for sample in group], tokens_of(given)
    loss, kl, entropy = torch.zeros((), dtype=dtype), 0.0, 0.0
    for sample in samples:  # those with advantage 0 too
        ids = torch.tensor([[*sample.prompt_ids, *sample.token_ids]])
        start = len(sample.prompt_ids)
        now, before = (
            (m(input_ids=ids).logits[0, start - 1 : -1] / TEMPERATURE).log_softmax(-1) for m in (model, reference)
        )
        for i, token in enumerate(sample.token_ids):
            d = now[i, token] - before[i, token].detach()
            k3, h = (-d).exp() - 1 + d, -(now[i].exp() * now[i]).sum()
            gain = sample.advantage * (now[i, token] - now[i, token].detach()).exp() - 0.3 * k3 + 0.2 * h
            loss = loss - gain / tokens
            kl, entropy = kl + k3.item() / tokens, entropy + h.item() / tokens
    loss.backward()
    for (name, found), parameter in zip(model_of(ours).named_parameters(), model.parameters(), strict=True):
        assert (found - (parameter - 0.5 * parameter.grad)).norm() <= 1e-9 * (1 + parameter.norm()), name
    assert stats["reference_kl_nats"] == pytest.approx(kl, rel=1e-6)
    assert stats["entropy_nats"] == pytest.approx(entropy, rel=1e-6)


async def test_one_step_of_magrpo_written_plainly(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    """The mean over candidates and nodes of A times the sum of log-probabilities at the sampling temperature."""
    objective = PolicyGradient(normalisation="sequence_sum")
    ours = full_policy(tiny(torch.float64), objective=objective)
    given, model = groups(), tiny(torch.float64)
    await learn(ours, given)
    samples = [sample for group in given for sample in group]
    loss = torch.zeros((), dtype=torch.float64)
    for sample in samples:
        ids, start = torch.tensor([[*sample.prompt_ids, *sample.token_ids]]), len(sample.prompt_ids)
        scores = (model(input_ids=ids).logits[0, start - 1 : -1] / TEMPERATURE).log_softmax(-1)
        loss = loss - sample.advantage * sum(scores[i, t] for i, t in enumerate(sample.token_ids)) / len(samples)
    loss.backward()
    for (name, found), parameter in zip(model_of(ours).named_parameters(), model.parameters(), strict=True):
        assert (found - (parameter - 0.5 * parameter.grad)).norm() <= 1e-9 * (1 + parameter.norm()), name


# ---- failure ---------------------------------------------------------------------------------------------------------


class BrokenGradient(ClippedObjective):
    """A finite loss with a gradient that is not a number."""

    def __call__(self, logprobs: Tensor, *rest: Tensor) -> ObjectiveOutput:
        output = super().__call__(logprobs, *rest)
        output.loss = output.loss + (logprobs.sum() * 0).sqrt()
        return output


def spoilt(given: Groups, index: int) -> Groups:
    """``given`` with an advantage that is not a number on the sample which is ``index``-th in length."""
    by_length = sorted((s for g in given for s in g if s.advantage), key=lambda s: len(s.prompt_ids + s.token_ids))
    victim = by_length[index]
    return [
        [
            Sample(s.policy, s.prompt_ids, s.token_ids, s.behaviour_logprobs, float("nan"), s.weight)
            if s is victim
            else s
            for s in g
        ]
        for g in given
    ]


@pytest.mark.parametrize("index", [0, -1], ids=["first micro-batch", "last micro-batch"])
async def test_a_loss_that_is_not_finite_changes_nothing(tiny: Tiny, groups: Callable[..., Groups], index: int) -> None:
    ours, twin = full_policy(tiny(), optimizer=ADAMW), full_policy(tiny(), optimizer=ADAMW)
    for each in (ours, twin):
        await learn(each, groups(seed=1))
    before = snapshot(ours)
    with pytest.raises(NonFiniteError, match=r"policy 'p'.*loss is nan"):
        await learn(ours, spoilt(groups(), index))
    assert equal(snapshot(ours), before)
    # The gradients of the micro-batches before the bad one are gone too.
    for each in (ours, twin):
        await learn(each, groups(seed=2))
    assert equal(snapshot(ours), snapshot(twin))


async def test_a_gradient_that_is_not_finite_changes_nothing(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    ours = full_policy(tiny(), optimizer=ADAMW, objective=BrokenGradient())
    before = snapshot(ours)
    with pytest.raises(NonFiniteError, match=r"policy 'p'.*gradient's norm is nan"):
        await learn(ours, groups())
    assert equal(snapshot(ours), before)
    assert all(p.grad is None for p in model_of(ours).parameters())
