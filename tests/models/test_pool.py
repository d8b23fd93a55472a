"""A pool's update against the whole of AT-GRPO written plainly, and what must hold when it fails or is interrupted."""

import asyncio
import copy
import statistics
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.objectives import ClippedObjective, ObjectiveOutput
from troupe.experience import Candidate, Completion, Episode, Node, Sample, Task
from troupe.models.packing import mini_batches
from troupe.models.pool import LocalPool, NonFiniteError
from troupe.routing import Router

from .conftest import SGD, TEMPERATURE, Groups, Plain, Tiny, pool

ADAMW = partial(torch.optim.AdamW, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def weights_of(model: Qwen3ForCausalLM) -> Tensor:
    """(parameters,) a copy of all weights in a row."""
    return torch.cat([p.detach().flatten().clone() for p in model.parameters()])


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


# ---- the update as a formula ----------------------------------------------------------------------------------------


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
    ours = pool(tiny(dtype), objective=ClippedObjective(importance_cap=cap), optimizer=optimizer, clip_norm=clip_norm)
    stats = await ours.update(routed)

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

    assert distance(weights_of(ours.module.model), weights_of(model), weights_of(tiny(dtype))) <= TOLERANCE[dtype]
    assert stats["clipped_share"] == stats["step_kl_nats"] == 0  # the ratio is exactly 1
    assert (stats["samples"], stats["live_groups"], stats["optimizer_steps"]) == (32, 7 / 8, 1)
    assert ours.version == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
async def test_several_steps_compare_with_the_updates_start(
    tiny: Tiny, groups: Callable[..., Groups], plain_logprobs: Plain, dtype: torch.dtype
) -> None:
    given, epochs, sgd = groups(), 3, partial(torch.optim.SGD, lr=0.1)
    ours = pool(tiny(dtype), mini_batches=2, epochs=epochs, seed=5, optimizer=sgd)
    stats = await ours.update(given)

    model = tiny(dtype)
    parts = mini_batches(given, 2, Random("5/p/0"))  # the split itself is test_packing's subject
    olds = [[plain_logprobs(model, s, TEMPERATURE).detach() for s in part] for part in parts]
    optimizer = sgd(model.parameters())
    for _ in range(epochs):
        for part, old in zip(parts, olds, strict=True):
            plain_step(model, optimizer, part, old, plain_logprobs, 0.0, 1e9)

    assert distance(weights_of(ours.module.model), weights_of(model), weights_of(tiny(dtype))) <= TOLERANCE[dtype]
    assert stats["clipped_share"] > 0.1
    assert stats["step_kl_nats"] > 1e-3
    assert stats["optimizer_steps"] == 6


async def test_statistics_by_hand(tiny: Tiny, plain_logprobs: Plain) -> None:
    model = tiny(torch.float64)
    samples = [
        Sample("p", (5, 6), (7, 1), (-2.0, -3.0), advantage=1.0, weight=0.25),
        Sample("p", (5, 6), (8,), (-1.0,), advantage=-0.5, weight=0.25),
        Sample("p", (9,), (4,), (-1.0,), advantage=0.0, weight=0.25),
        Sample("p", (9,), (4,), (-1.0,), advantage=0.0, weight=0.25),
    ]
    before = [plain_logprobs(model, s, TEMPERATURE).tolist() for s in samples]
    scheduler = partial(torch.optim.lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.5, total_iters=2)
    ours = pool(model, scheduler=scheduler)
    stats = await ours.update([samples[:2], samples[2:]])
    # Ratio 1: the loss is minus the weighted advantages.
    assert stats["loss"] == pytest.approx(-(0.25 * 1.0 + 0.25 * -0.5), abs=1e-12)
    # k3 of learner over behaviour, over the three tokens that have an advantage.
    drift = [before[0][0] + 2, before[0][1] + 3, before[1][0] + 1]
    k3 = sum(torch.tensor(d).double().exp().item() - 1 - d for d in drift) / 3
    assert stats["behaviour_kl_nats"] == pytest.approx(k3, rel=1e-6)
    assert (stats["samples"], stats["live_groups"]) == (4, 0.5)
    # The rate is the one that the step was taken with; the schedule advances once an update.
    assert stats["learning_rate"] == 0.5
    assert (await ours.update([samples[:2]]))["learning_rate"] == 0.375
    assert (await ours.update([samples[:2]]))["learning_rate"] == 0.25


async def test_without_any_advantage_nothing_moves(tiny: Tiny) -> None:
    ours = pool(tiny(), optimizer=ADAMW)
    before = weights_of(ours.module.model)
    stats = await ours.update([[Sample("p", (5,), (6,), (-1.0,), 0.0, 0.5)] * 2])
    assert torch.equal(weights_of(ours.module.model), before)
    assert (stats["optimizer_steps"], stats["live_groups"], stats["samples"]) == (0, 0, 2)
    assert ours.version == 1


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
async def test_other_precisions_step_the_same_way(tiny: Tiny, groups: Callable[..., Groups], precision: str) -> None:
    exact, other = pool(tiny()), pool(tiny(), precision=precision)
    dtype = next(other.module.parameters()).dtype
    assert dtype == (torch.float64 if precision == "64-true" else torch.float32)  # master weights
    for each in (exact, other):
        await each.update(groups())
    moved = weights_of(exact.module.model) - weights_of(tiny())
    found = weights_of(other.module.model) - weights_of(tiny())
    assert torch.nn.functional.cosine_similarity(moved.double(), found.double(), dim=0) > 0.99


# ---- failure --------------------------------------------------------------------------------------------------------


class BrokenGradient(ClippedObjective):
    """A finite loss with a gradient that is not a number."""

    def __call__(self, logprobs: Tensor, *rest: Tensor) -> ObjectiveOutput:
        output = super().__call__(logprobs, *rest)
        output.loss = output.loss + (logprobs.sum() * 0).sqrt()
        return output


def snapshot(ours: LocalPool) -> dict[str, Any]:
    return copy.deepcopy(ours.state_dict())


def equal(one: Any, other: Any) -> bool:
    """Equal bit for bit, through dictionaries and lists."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


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
    ours, twin = pool(tiny(), optimizer=ADAMW), pool(tiny(), optimizer=ADAMW)
    for each in (ours, twin):
        await each.update(groups(seed=1))
    before = snapshot(ours)
    with pytest.raises(NonFiniteError, match=r"policy 'p'.*loss is nan"):
        await ours.update(spoilt(groups(), index))
    assert equal(snapshot(ours), before)
    # The gradients of the micro-batches before the bad one are gone too.
    for each in (ours, twin):
        await each.update(groups(seed=2))
    assert equal(snapshot(ours), snapshot(twin))


async def test_a_gradient_that_is_not_finite_changes_nothing(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    ours = pool(tiny(), optimizer=ADAMW, objective=BrokenGradient())
    before = snapshot(ours)
    with pytest.raises(NonFiniteError, match=r"policy 'p'.*gradient's norm is nan"):
        await ours.update(groups())
    assert equal(snapshot(ours), before)
    assert all(p.grad is None for p in ours.module.parameters())


class Slow(ClippedObjective):
    """Waits, once it is in the middle of an update, until it is let go."""

    entered, release = threading.Event(), threading.Event()

    def __call__(self, *arguments: Tensor) -> ObjectiveOutput:
        self.entered.set()
        assert self.release.wait(30)
        return super().__call__(*arguments)


async def test_who_reads_an_interrupted_pool_waits_for_the_update(
    tiny: Tiny, groups: Callable[..., Groups], tmp_path: Path
) -> None:
    undisturbed, ours = pool(tiny(), epochs=3), pool(tiny(), epochs=3, objective=Slow())
    Slow.entered.clear()
    Slow.release.clear()
    await undisturbed.update(groups())
    update = asyncio.create_task(ours.update(groups()))
    await asyncio.to_thread(Slow.entered.wait, 30)
    update.cancel()
    with pytest.raises(asyncio.CancelledError):
        await update
    export = asyncio.create_task(asyncio.to_thread(ours.export, tmp_path))
    done, _ = await asyncio.wait([export], timeout=0.2)
    assert not done
    Slow.release.set()
    await export
    exported = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(weights_of(exported), weights_of(undisturbed.module.model))
    assert ours.version == 1


# ---- handing weights on ---------------------------------------------------------------------------------------------


async def test_an_export_is_what_from_pretrained_reads(
    tiny: Tiny, groups: Callable[..., Groups], tmp_path: Path
) -> None:
    ours = pool(tiny())
    await ours.update(groups())
    ours.export(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, ours.module.model(ids).logits)
        assert not torch.equal(loaded(ids).logits, tiny()(ids).logits)


async def test_weights_load_into_a_model_of_the_same_kind(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    ours, engine = pool(tiny()), tiny(seed=1)
    await ours.update(groups())
    engine.load_state_dict(dict(await ours.weights()))
    assert torch.equal(weights_of(engine), weights_of(ours.module.model))


async def test_a_loaded_state_goes_on_bit_for_bit(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    settings: dict[str, Any] = {
        "optimizer": ADAMW,
        "scheduler": partial(torch.optim.lr_scheduler.LinearLR, total_iters=5),
        "mini_batches": 2,
    }
    ours, other = pool(tiny(), **settings), pool(tiny(seed=3), **settings)
    await ours.update(groups(seed=1))
    other.load_state_dict(snapshot(ours))
    for each in (ours, other):
        await each.update(groups(seed=2))
    assert equal(snapshot(ours), snapshot(other))


async def test_pools_side_by_side_are_pools_one_by_one(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    def pair() -> list[LocalPool]:
        settings: dict[str, Any] = {"optimizer": ADAMW, "mini_batches": 2, "epochs": 2}
        return [pool(tiny(seed=i), name=f"p{i}", **settings) for i in (0, 1)]

    together, apart = pair(), pair()
    for seed in (1, 2):
        await asyncio.gather(*(p.update(groups(seed=seed + i)) for i, p in enumerate(together)))
        for i, p in enumerate(apart):
            await p.update(groups(seed=seed + i))
    assert equal([snapshot(p) for p in together], [snapshot(p) for p in apart])


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
async def test_every_pass_over_the_samples_has_one_precision(
    tiny: Tiny, groups: Callable[..., Groups], precision: str
) -> None:
    still = partial(torch.optim.SGD, lr=0.0)
    stats = await pool(tiny(), epochs=2, mini_batches=2, optimizer=still, precision=precision).update(groups())
    assert stats["optimizer_steps"] == 4
    assert stats["step_kl_nats"] == stats["clipped_share"] == 0  # the learner has not moved, so every ratio is 1


async def test_recomputed_activations_give_the_same_update(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    plain, saving = tiny(torch.float64), tiny(torch.float64)
    saving.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    for model in (plain, saving):
        await pool(model).update(groups())
    assert saving.is_activation_checkpointing and not plain.is_activation_checkpointing
    assert distance(weights_of(saving), weights_of(plain), weights_of(tiny(torch.float64))) < 1e-12
