"""Pools: updates side by side, readers that wait for an update, and weights and states handed on."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from troupe.algorithms.objectives import ClippedObjective, ObjectiveOutput
from troupe.experience import Candidate, Completion, Episode, Node, Task
from troupe.models.pools.pool import Policy
from troupe.models.pools.team import Team

from ..conftest import TEMPERATURE, Groups, Plain, Tiny, equal, full_policy, learn, model_of, snapshot, weights_of

ADAMW = partial(torch.optim.AdamW, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)


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
    undisturbed, ours = full_policy(tiny(), epochs=3), full_policy(tiny(), epochs=3, objective=Slow())
    Slow.entered.clear()
    Slow.release.clear()
    await learn(undisturbed, groups())
    update = asyncio.create_task(learn(ours, groups()))
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
    assert torch.equal(weights_of(exported), weights_of(model_of(undisturbed)))
    assert ours.version == 1


async def test_pools_side_by_side_are_pools_one_by_one(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    def pair() -> list[Policy]:
        settings: dict[str, Any] = {"optimizer": ADAMW, "mini_batches": 2, "epochs": 2}
        return [full_policy(tiny(seed=i), name=f"p{i}", **settings) for i in (0, 1)]

    together, apart = pair(), pair()
    for seed in (1, 2):
        await asyncio.gather(*(learn(p, groups(seed=seed + i)) for i, p in enumerate(together)))
        for i, p in enumerate(apart):
            await learn(p, groups(seed=seed + i))
    assert equal([snapshot(p) for p in together], [snapshot(p) for p in apart])


# ---- handing weights and states on -----------------------------------------------------------------------------------


async def test_an_export_is_what_from_pretrained_reads(
    tiny: Tiny, groups: Callable[..., Groups], tmp_path: Path
) -> None:
    ours = full_policy(tiny())
    await learn(ours, groups())
    ours.export(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, model_of(ours)(ids).logits)
        assert not torch.equal(loaded(ids).logits, tiny()(ids).logits)


async def test_weights_load_into_a_model_of_the_same_kind(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    ours, engine = full_policy(tiny()), tiny(seed=1)
    await learn(ours, groups())
    engine.load_state_dict(dict(await ours.weights()))
    assert torch.equal(weights_of(engine), weights_of(model_of(ours)))


async def test_a_loaded_state_goes_on_bit_for_bit(tiny: Tiny, groups: Callable[..., Groups]) -> None:
    settings: dict[str, Any] = {
        "optimizer": ADAMW,
        "scheduler": partial(torch.optim.lr_scheduler.LinearLR, total_iters=5),
        "mini_batches": 2,
    }
    ours, other = full_policy(tiny(), **settings), full_policy(tiny(seed=3), **settings)
    await learn(ours, groups(seed=1))
    other.load_state_dict(snapshot(ours))
    for each in (ours, other):
        await learn(each, groups(seed=2))
    assert equal(snapshot(ours), snapshot(other))


# ---- the reference --------------------------------------------------------------------------------------------------


async def test_the_reference_is_the_policy_at_the_runs_start(
    tiny: Tiny, groups: Callable[..., Groups], plain_logprobs: Plain
) -> None:
    """After an update; of a policy that does not learn it is the policy itself."""
    objective = ClippedObjective(kl=0.1, kl_estimator="k1", kl_in="credit")
    ours = full_policy(tiny(), objective=objective, optimizer=ADAMW)
    await learn(ours, groups())
    samples = [sample for group in groups(seed=1) for sample in group]
    nodes = [
        Node(
            "t",
            "a",
            0,
            s.prompt_ids,
            [Candidate(Completion(s.token_ids, s.behaviour_logprobs, "", "stop", n, 1), 0, 0, 0)],
        )
        for n, s in [*(("p", sample) for sample in samples), ("frozen", samples[0])]
    ]
    team = Team({"p": ours}, {}, {}, {}, {})
    await team.score_reference([Episode(Task("t", "train", {}), nodes, [])])
    *found, frozen = [node.candidates[0].reference_logprobs for node in nodes]
    for sample, logprobs in zip(samples, found, strict=True):
        assert logprobs == pytest.approx(plain_logprobs(tiny(), sample, TEMPERATURE).tolist(), abs=1e-4)
    assert frozen == samples[0].behaviour_logprobs


async def test_scores_are_of_the_present_weights_and_change_nothing(
    tiny: Tiny, groups: Callable[..., Groups], plain_logprobs: Plain
) -> None:
    scored, other = full_policy(tiny(), optimizer=ADAMW), full_policy(tiny(), optimizer=ADAMW)
    samples = [sample for group in groups(seed=1) for sample in group]
    for sample, logprobs in zip(samples, await scored.logprobs(samples), strict=True):
        assert logprobs == pytest.approx(plain_logprobs(tiny(), sample, TEMPERATURE).tolist(), abs=1e-4)
    for policy in (scored, other):
        await learn(policy, groups())
    assert equal(snapshot(scored), snapshot(other))
    assert await scored.logprobs(samples) != await full_policy(tiny(), optimizer=ADAMW).logprobs(samples)
    assert scored.pool.module.training
