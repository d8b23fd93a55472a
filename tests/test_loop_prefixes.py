"""Prefixes that the engine keeps over turns, in the loop: none of an evaluation is left in the next iteration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from troupe.cli import train
from troupe.experience import Episode
from troupe.loop import TrainLoop
from troupe.rollout.engines.torch import prefixes

SMALL = [
    "experiment=plan_path_specialized",
    "engine.prefix_cache_gib=0.1",
    "env.history=true",
    "env.horizon=2",
    "algorithm.sampler.k=2",
    "loop.iterations=2",
    "loop.tasks_per_iteration=2",
    "loop.eval_every=1",
    "loop.validation_tasks=2",
    "loop.test_tasks=2",
    "diagnostics=off",
]
Sampled = dict[tuple[str, int], list[tuple[float, ...]]]


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> Sampled:
    """By run and iteration, the log-probabilities of all candidates."""
    inner, logprobs = TrainLoop.collect, {}

    async def collect(self: TrainLoop) -> list[Episode]:
        episodes = await inner(self)
        spoken = [candidate.completion.logprobs for each in episodes for _, candidate in each.candidates()]
        logprobs[self.directory.path.name, self.progress.iteration] = spoken
        return episodes

    monkeypatch.setattr(TrainLoop, "collect", collect)
    return logprobs


@pytest.mark.slow
def test_a_resumed_run_draws_what_an_uninterrupted_one_draws_to_the_bit(
    composed: Callable[..., DictConfig], sampled: Sampled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its engines begin without the prefixes of the validation, of the same weights, that the other has played."""
    monkeypatch.setattr(prefixes, "LEAST_SHARE", 0.0)  # so that a few words in common are a prefix
    train.train(train.build(composed(*SMALL, f"run_dir={tmp_path / 'one'}")))
    loop = train.build(composed(*SMALL, f"run_dir={tmp_path / 'two'}"))
    inner = loop.collect

    async def collect() -> list[Episode]:
        if loop.progress.iteration == 1:
            raise KeyboardInterrupt
        return await inner()

    loop.collect = collect  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train.train(loop)
    train.train(train.build(composed(f"resume={tmp_path / 'two'}")))
    for iteration in range(2):
        assert len(sampled["one", iteration]) > 10
        assert sampled["two", iteration] == sampled["one", iteration]
