"""What grouping by agent and turn is worth, exactly: `python bench/grouping_law.py > docs/results/grouping_law.md`.

In the game of two agents and two turns (`src/enumeration/game.py`), the planner's rewards have an offset, in units of
the standard deviation of a reward given its prompt: rewards of two roles on different scales.  For four groupings of
AT-GRPO's K candidates all outcomes of a task are listed, with the gradient that Troupe's own credit, router and
objective make of each.  From them: eta, the share of a group's variance that its prompts explain, Var(E[r | prompt]) /
Var(r); and the gradient's signal-to-noise ratio, |E g|^2 / (E |g|^2 - |E g|^2).  The law says that grouping by agent
and turn multiplies that of a coarser grouping by 1 / (1 - eta).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, pvariance
from typing import NamedTuple

from hydra import compose, initialize_config_module
from hydra.utils import instantiate

from troupe.algorithms.credit.base import CreditRule
from troupe.enumeration.game import EASE, Game
from troupe.enumeration.gradients import Gradient, Update, true_gradient
from troupe.enumeration.outcomes import Draw, outcomes
from troupe.envs.base import StepResult
from troupe.experience import Task
from troupe.rollout.samplers.sampler import Sampler

GROUPINGS = {
    "agent and turn": "at_grpo",
    "agent": "at_grpo_agent_only",
    "turn": "at_grpo_turn_only",
    "neither": "at_grpo_flat",
}
OFFSETS = (0.0, 0.5, 1.0, 2.0, 4.0)
K = 4
TOLERANCE = 1.25
"""Fixed before the first run: the law holds where gain and prediction differ by no more than this factor, in every
task, offset and coarser grouping."""


class Row(NamedTuple):
    """``eta``; what the ``law`` says; the ``gain`` that is, and that ``given`` the prompts; a cosine with the truth."""

    offset: float
    grouping: str
    eta: float
    law: float
    gain: float
    given: float
    cosine: float


class OffsetGame(Game):
    """A :class:`Game` in which every message of the planner earns ``offset`` more."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.offset = offset

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        result = await super().step(actions)
        local = {agent: value + self.offset * (agent == "plan") for agent, value in result.local.items()}
        return StepResult(local, result.team, result.done, result.success)


def algorithm(name: str, normalise: bool) -> tuple[Sampler, Update]:
    words = [f"algorithm.sampler.k={K}", f"algorithm.credit.normalise={normalise}"]
    with initialize_config_module("troupe.configs", version_base="1.3"):
        overrides = ["+scale.std_floor=1e-6", "+scale.team_reward=own", *words]
        cfg = compose(f"algorithm/{name}", overrides=overrides).algorithm
    objective = instantiate(cfg.objective).sized(2)
    team = {agent: agent for agent in Game.agents}
    return instantiate(cfg.sampler, **cfg.reward), Update(instantiate(cfg.credit), objective, team)


def moments(draws: Sequence[Draw]) -> dict[Hashable, tuple[float, float]]:
    """By prompt, the mean and the variance of a candidate's reward."""
    sums: dict[Hashable, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for chance, episodes in draws:
        for episode in episodes:
            for node, candidate in episode.candidates():
                for power, total in enumerate(sums[node.prompt_ids]):
                    sums[node.prompt_ids][power] = total + chance * candidate.reward**power
    return {prompt: (one / n, max(0.0, two / n - (one / n) ** 2)) for prompt, (n, one, two) in sums.items()}


def explained(draws: Sequence[Draw], credit: CreditRule) -> float:
    """eta, see above, within the groups that a rollout has."""
    known = moments(draws)
    between = within = 0.0
    for chance, episodes in draws:
        groups: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
        for episode in episodes:
            for node, _ in episode.candidates():
                groups[credit.key(node)].append(known[node.prompt_ids])
        for group in groups.values():
            between += chance * len(group) * pvariance([mean for mean, _ in group])
            within += chance * sum(variance for _, variance in group)
    return between / (between + within)


def ratios(update: Update, draws: Sequence[Draw]) -> tuple[float, float, Gradient]:
    """The gradient's signal-to-noise ratio; the same without the noise of which prompts there are, which no grouping
    takes away; and its expectation.  Over iterations of one task.
    """
    mean: dict[str, float] = defaultdict(float)
    given: dict[Hashable, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    chances: dict[Hashable, float] = defaultdict(float)
    square = 0.0
    for chance, episodes in draws:
        prompts = frozenset(node.prompt_ids for episode in episodes for node in episode.nodes)
        chances[prompts] += chance
        for prompt, value in update.expected([[(1.0, episodes)]]).items():
            mean[prompt] += chance * value
            given[prompts][prompt] += chance * value
            square += chance * value**2
    signal = sum(value**2 for value in mean.values())
    kept = sum(value**2 / chances[prompts] for prompts, values in given.items() for value in values.values())
    return signal / (square - signal), signal / (square - kept), mean


def cosine(one: Gradient, other: Gradient) -> float:
    dot = sum(value * other.get(prompt, 0.0) for prompt, value in one.items())
    return dot / sqrt(sum(v * v for v in one.values()) * sum(v * v for v in other.values()))


def rows(normalise: bool) -> list[Row]:
    found = []
    algorithms = {title: algorithm(name, normalise) for title, name in GROUPINGS.items()}
    for task_id in EASE:
        task = Task(task_id, "train", {})
        sampler, finest = algorithms["agent and turn"]
        true = true_gradient(Game(), task)
        unit = sqrt(fmean(variance for _, variance in moments(outcomes(sampler, Game(), task)).values()))
        for offset in OFFSETS:
            draws = outcomes(sampler, OffsetGame(offset * unit), task)
            best, best_given, _ = ratios(finest, draws)
            for title, (_, update) in algorithms.items():
                eta = explained(draws, update.credit)
                whole, given, mean = ratios(update, draws)
                gains = best / whole, best_given / given
                found.append(Row(offset, title, eta, 1 / (1 - eta), *gains, cosine(mean, true)))
    return found


def table(found: Sequence[Row]) -> str:
    """Means over the tasks."""
    head = "offset | grouping | eta | 1 / (1 - eta) | gain | gain, prompts given | cosine with the true gradient"
    lines = [f"| {head} |", "| --- " * 7 + "|"]
    for offset in OFFSETS:
        for title in GROUPINGS:
            some = [row[2:] for row in found if row[:2] == (offset, title)]
            means = map(fmean, zip(*some, strict=True))
            lines.append(f"| {offset:g} | {title} | {' | '.join(f'{mean:.2f}' for mean in means)} |")
    return "\n".join(lines)


def off(found: Sequence[Row]) -> float:
    """The largest factor between gain and law."""
    return max(max(row.gain / row.law, row.law / row.gain) for row in found)


def main() -> None:
    from grouping_coder import trained_section  # which imports this

    sampled = Path(__file__).parents[1] / "docs" / "results" / "grouping_trained.jsonl"
    plain, normalised = rows(False), rows(True)
    end = [row for row in plain if row[:2] == (OFFSETS[-1], "neither")]
    law, gain, eta = (fmean(numbers) for numbers in zip(*((r.law, r.gain, r.eta) for r in end), strict=True))
    print(
        f"""\
# What grouping by agent and turn is worth, exactly

**In a game that is enumerated the law gives the order and the direction, not the size; the gain of
a [trained team](#a-trained-team-by-sampled-gradients) is smaller than it says.**
In the game, where two roles' rewards are
on one scale, groups of one agent and turn gain nothing over one group per task. With an offset of {OFFSETS[-1]:g}
standard deviations (eta {eta:.2f}) the gradient's signal-to-noise ratio is {gain:.1f} times as high; 1 / (1 - eta) says
{law:.1f}. The threshold, fixed before the first run, was that both differ by no more than a factor of {TOLERANCE:g};
they differ by up to {off(plain):.1f}, with normalised advantages {off(normalised):.1f}. Part of the noise is which
prompts there are, and no grouping takes it away; the other part, with the prompts given, falls by more than the law
says at high offsets.

`python bench/grouping_law.py > docs/results/grouping_law.md` enumerates the game of two agents and two turns
(`src/enumeration/game.py`), K = {K}; means over its two tasks. *Gain*: the ratio of AT-GRPO over that of the row's
grouping. The offset, in standard deviations of a reward given its prompt, is the planner's for every message; the
grouping alone varies. A message's reward is its own outcome (`reward.team=own`). After the first run eta was restricted
to the prompts that meet in one group; before, it counted those of other rollouts, too.

## Advantages: reward less the group's mean

{table(plain)}

## The same, divided by the group's standard deviation

{table(normalised)}

## A trained team, by sampled gradients

{trained_section(sampled)}"""
    )


if __name__ == "__main__":
    main()
