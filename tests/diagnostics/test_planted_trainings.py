"""Whole trainings at laptop scale with a planted pathology, at full strength and at half: the right alarm is raised.

Full strength and half of it: the tool agent is silenced in every task, in every second one; a role has ten times its
tokens, five times; the engine never gets new weights, only every third time; the rewards of all agents are constant,
of one; the temperature is halved six times, three times.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from troupe.cli import train
from troupe.envs.base import StepResult
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Sample
from troupe.loop import TrainLoop

pytestmark = pytest.mark.slow

SMALL = [
    *("loop.tasks_per_iteration=16", "loop.test_tasks=1", "diagnostics.every=3"),
    *("env.min_moves=6", "env.inner_walls=6"),  # not solved within a few iterations
]
ITERATIONS = 10
Step = Callable[[Sokoban, Mapping[str, str]], Any]


@pytest.fixture
def loop(composed: Callable[..., DictConfig], tmp_path: Path) -> Callable[..., TrainLoop]:
    return lambda *overrides: train.build(composed(*overrides, *SMALL, f"run_dir={tmp_path / 'run'}"))


def raised(loop: TrainLoop, before: Callable[[int], None] = lambda iteration: None) -> set[tuple[str, str]]:
    """(Alarm, agent or policy) after all iterations; ``before`` is called before each."""

    async def run() -> None:
        await loop.world.open()
        for iteration in range(ITERATIONS):
            before(iteration)
            await loop.run_iteration()
            loop.progress.row = {}
        await loop.team.close()
        await loop.world.close()

    asyncio.run(run())
    return {(each["alarm"], each["name"]) for each in loop.diagnostics.records(loop.progress.alarms)}


@pytest.mark.parametrize("experiment", ["sokoban_specialized", "sokoban_shared"])
def test_a_healthy_training_raises_none(loop: Callable[..., TrainLoop], experiment: str) -> None:
    assert raised(loop(f"experiment={experiment}")) == set()


@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_a_frozen_lazy_agent(loop: Callable[..., TrainLoop], monkeypatch: pytest.MonkeyPatch, strength: float) -> None:
    """At half strength it is not told from an agent whose messages matter little: see docs/diagnostics.md."""
    step: Step = Sokoban.step

    async def silenced(world: Sokoban, actions: Mapping[str, str]) -> StepResult:
        odd = sum(world.goals) % 2
        lazy = "tool" in actions and (strength == 1 or odd)
        return await step(world, {"tool": ""} if lazy else actions)

    monkeypatch.setattr(Sokoban, "step", silenced)
    found = raised(loop("experiment=sokoban_specialized", "policy@policies.tool=[laptop,frozen]"))
    assert (("lazy_agent", "tool") in found) == (strength == 1)
    assert ("lazy_agent", "plan") not in found


@pytest.mark.parametrize("times", [10, 5])
def test_a_role_with_many_times_the_tokens(loop: Callable[..., TrainLoop], times: int) -> None:
    slow = "policies.shared.optimizer.lr=1e-6"
    built = loop("experiment=sokoban_shared", "algorithm.objective.normalisation=token_mean", slow)
    route = built.router.route

    def longer(sample: Sample) -> Sample:
        count = times if sample.agent == "plan" else 1
        return replace(sample, token_ids=sample.token_ids * count, behaviour_logprobs=sample.behaviour_logprobs * count)

    def routed(*arguments: Any) -> dict[str, list[list[Sample]]]:
        return {name: [[longer(s) for s in group] for group in groups] for name, groups in route(*arguments).items()}

    built.router.route = routed
    found = raised(built)
    assert ("role_dominance", "plan") in found and ("role_dominance", "tool") not in found


@pytest.mark.parametrize("every", [ITERATIONS, 3])
def test_stale_engine_weights(loop: Callable[..., TrainLoop], every: int) -> None:
    built = loop("experiment=sokoban_specialized")
    load, calls = built.team.load_weights, []

    async def rarely() -> dict[str, float]:
        calls.append(1)
        return await load() if len(calls) % every == 0 else {}

    built.team.load_weights = rarely
    assert {("mismatch", "tool"), ("mismatch", "plan")} <= raised(built)


@pytest.mark.parametrize("agents", [("tool", "plan"), ("tool",)])
def test_a_constant_reward(
    loop: Callable[..., TrainLoop], monkeypatch: pytest.MonkeyPatch, agents: tuple[str, ...]
) -> None:
    step: Step = Sokoban.step

    async def constant(world: Sokoban, actions: Mapping[str, str]) -> StepResult:
        result = await step(world, actions)
        if set(actions) <= set(agents):
            return replace(result, team=0.0, local=dict.fromkeys(result.local, 0.0))
        return result

    monkeypatch.setattr(Sokoban, "step", constant)
    found = raised(loop("experiment=sokoban_specialized"))
    assert {("nothing_learnt", agent) for agent in agents} == {each for each in found if each[0] == "nothing_learnt"}


@pytest.mark.parametrize("halvings", [6, 3])
def test_a_collapsing_temperature(loop: Callable[..., TrainLoop], halvings: int) -> None:
    """Of engine and learner alike, of policies that learn slowly."""
    slow = [f"policies.{agent}.optimizer.lr=1e-6" for agent in ("tool", "plan")]
    built = loop("experiment=sokoban_specialized", *slow)

    def before(iteration: int) -> None:
        temperature = 2.0 ** -min(max(0, iteration - 3), halvings)
        for agent, client in built.team.training.items():
            built.team.training[agent] = replace(client, sampling=replace(client.sampling, temperature=temperature))
        for name, policy in built.team.policies.items():
            configs = policy.pool.module.module.policies
            configs[name] = replace(configs[name], temperature=temperature)

    found = raised(built, before)
    assert {("entropy_collapse", "tool"), ("entropy_collapse", "plan")} & found
    assert not [alarm for alarm, _ in found if alarm == "mismatch"]
