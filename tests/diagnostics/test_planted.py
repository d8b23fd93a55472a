"""Planted pathologies raise the right alarm, and no other, and their absence raises none: in process, with scripted
agents, episodes with real credit, and a tiny model.  A role with
many times the tokens is in ``tests/models/test_gradient_shares.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.diagnostics.extra_episodes import PROBE, influence
from troupe.diagnostics.messages import message_metrics
from troupe.envs.base import StepResult
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Episode, Task
from troupe.rollout.samplers.tree import TreeSampler

from .conftest import Play, Raised, candidate, node

ITERATIONS = 6


def random_words(prompt: str, row: int, seed: int) -> str:
    """Two moves: boards are now and then solved, and proposals now and then right."""
    rng = Random(f"{prompt} {row} {seed}")
    words = ["R R", "U", "L", "D R"] if prompt.startswith("plan") else ["box 2,2 R 2,3 R 2,4", "", "box 2,2 U 1,2"]
    return rng.choice(words)


def silent_tool(prompt: str, row: int, seed: int) -> str:
    return "" if prompt.startswith("tool") else random_words(prompt, row, seed)


def measured(episodes: Sequence[Episode]) -> dict[str, float]:
    rule = AtGrpo()
    rule(episodes)
    return {f"diagnostics/{name}": value for name, value in message_metrics(episodes, rule.key).items()}


@pytest.fixture
def boards(board: Task) -> list[Task]:
    return [replace(board, task_id=f"board-{i}") for i in range(8)]


class Constant(Sokoban):
    """A world that earns nothing, whatever is said; boards are solved as ever."""

    async def step(self, actions: Any) -> StepResult:
        result = await super().step(actions)
        return replace(result, team=0.0, local=dict.fromkeys(result.local, 0.0))


async def alarms_of(
    play: Play, raised: Raised, script: Any, world: Sokoban, boards: list[Task]
) -> list[tuple[str, str]]:
    rows = []
    for i in range(ITERATIONS):
        tasks = [replace(task, task_id=f"{task.task_id}-{i}") for task in boards]
        rows.append(measured(await play(script, world, TreeSampler(k=4), tasks)))
    return sorted((alarm.alarm, alarm.name) for alarm in raised(rows))


async def test_agents_that_speak_at_random_raise_no_alarm(play: Play, raised: Raised, boards: list[Task]) -> None:
    assert await alarms_of(play, raised, random_words, Sokoban(horizon=2), boards) == []


async def test_a_frozen_agent_is_lazy_and_gives_nothing_to_learn(
    play: Play, raised: Raised, boards: list[Task]
) -> None:
    found = await alarms_of(play, raised, silent_tool, Sokoban(horizon=2), boards)
    assert found == [("lazy_agent", "tool"), ("nothing_learnt", "tool")]


async def test_a_constant_reward_teaches_nobody(play: Play, raised: Raised, boards: list[Task]) -> None:
    found = await alarms_of(play, raised, random_words, Constant(horizon=2), boards)
    assert {(alarm, name) for alarm, name in found if alarm == "nothing_learnt"} == {
        ("nothing_learnt", "plan"),
        ("nothing_learnt", "tool"),
    }


async def test_an_agent_whom_nobody_heeds_has_no_influence(play: Play, raised: Raised, boards: list[Task]) -> None:
    """Its messages differ, and are judged differently, but no episode ends otherwise: only the probe can tell."""
    rows = []
    for i in range(8):
        tasks = [replace(task, task_id=f"{task.task_id}-{i}") for task in boards]
        ignoring: Callable[..., str] = lambda prompt, row, seed: (  # noqa: E731
            random_words(prompt, row, seed) if prompt.startswith("tool") else random_words("plan", row, seed)
        )
        found = influence(await play(ignoring, Sokoban(horizon=2), PROBE, tasks))
        rows.append({f"diagnostics/{name}": value for name, value in found.items()})
    (alarm,) = raised(rows)
    assert (alarm.alarm, alarm.name, alarm.value) == ("lazy_agent", "tool", 0)


# ---- a collapsing temperature ----------------------------------------------------------------------------------------


def entropy_at(temperature: float, logits: torch.Tensor, draws: int = 400) -> float:
    """The metric over so many tokens, drawn from ``logits`` at ``temperature``."""
    scores = torch.log_softmax(logits / temperature, dim=-1)
    tokens = torch.multinomial(scores.exp(), draws, replacement=True, generator=torch.Generator().manual_seed(0))
    drawn = [candidate(nats=-scores[token].item(), tokens=1) for token in tokens.tolist()]
    return message_metrics([Episode(Task("t", "train", {}), [node("plan", 0, *drawn)], [])], lambda n: 0)[
        "plan/entropy_nats"
    ]


def test_the_entropy_is_that_of_the_distribution_within_its_error() -> None:
    logits = torch.randn(30, generator=torch.Generator().manual_seed(1)) * 2
    scores = torch.log_softmax(logits, dim=-1)
    assert entropy_at(1.0, logits, 4000) == pytest.approx(-(scores.exp() * scores).sum().item(), rel=0.05)


@pytest.mark.parametrize(("halvings", "expected"), [(0, []), (3, ["entropy_collapse"]), (6, ["entropy_collapse"])])
def test_a_temperature_that_is_halved_again_and_again(raised: Raised, halvings: int, expected: list[str]) -> None:
    """Six times, and half as often."""
    logits = torch.randn(30, generator=torch.Generator().manual_seed(1)) * 2
    temperatures = [1.0] * 5 + [2.0**-i for i in range(halvings + 1)] + [2.0**-halvings] * 5
    rows = [{"diagnostics/plan/entropy_nats": entropy_at(t, logits)} for t in temperatures]
    assert [alarm.alarm for alarm in raised(rows)] == expected
    assert raised([row | {"rollout/success": 0.95} for row in rows]) == [], "a solved world may be certain"
