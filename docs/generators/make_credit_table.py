"""Write the table of biases of ``algorithms.md``: each algorithm's expected gradient against the true one.

``make docs`` writes it, between two marks; ``tests/test_documentation.py`` checks that it was
written.  The game, and how the expectation is computed, are in ``src/enumeration``; an algorithm's sampler, credit rule
and objective are those of its yaml.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import sqrt
from pathlib import Path

from hydra import compose, initialize_config_module
from hydra.utils import instantiate
from marked_section import with_section

from troupe.algorithms.credit.gae import ActorCritic
from troupe.enumeration.game import EASE, Game
from troupe.enumeration.gradients import Gradient, Update, true_gradient, true_values
from troupe.enumeration.outcomes import Draw, outcomes
from troupe.experience import Task, Topology
from troupe.rollout.samplers.base import Sampler
from troupe.setup.composition import choices

PAGE = Path(__file__).parent.parent / "algorithms.md"
BEGIN, END = "<!-- bias, written by `make docs`: begin -->\n", "<!-- bias: end -->\n"
AT_ONCE = ("joint", "replay", "forest")
"""The topologies with which both agents of the game act at once, which keeps the outcomes few."""
DRAWS = ("at_grpo_shuffled", "magrpo_shuffled")
"""The algorithms whose credit rule draws, so that outcomes of the sampler alone are not all."""
VARIANTS = {
    "rloo": ["credit.weight=message"],
    "gigpo": ["credit.anchor=prompt"],
    "magrpo": ["credit.weight=message"],
    "c3": ["credit.weight=episode", "objective.normalisation=sequence_sum"],
    "grpo": ["credit.weight=episode", "objective.normalisation=sequence_sum", "credit.normalise=false"],
    "counterfactual": ["credit.weight=episode", "objective.normalisation=sequence_sum"],
    "tree_grpo": [
        "credit.value=team_return",
        "credit.baseline=none",
        "credit.normalise=false",
        "objective.normalisation=sequence_sum",
    ],
    "grpo_ma": [
        "credit.value=team_return",
        "credit.baseline=leave_one_out",
        "credit.normalise=false",
        "objective.normalisation=sequence_sum",
    ],
}
"""By algorithm, other settings of it that the table has, too."""
IN_THE_GAME = {
    "tree_grpo": ["sampler.expansions=1"],
    "grpo_ma": ["sampler.expansions=1"],
    "forest_groups": ["sampler.expansions=1"],
    "counterfactual": ["sampler.removal=no"],
}
"""By algorithm, what keeps its outcomes few, or is a text that the game knows."""
PERFECT = "critic=perfect"
"""In a row: the critic's values are the true ones; else they are all 0, those of a new critic."""
CRITICS = {
    name: [
        ["credit.normalise=false", "credit.gae_lambda=1"],
        ["credit.normalise=false", "credit.gae_lambda=0"],
        ["credit.normalise=false", PERFECT],
        ["credit.normalise=false", "credit.gae_lambda=0", PERFECT],
    ]
    for name in ("iac", "maac")
}
"""By actor-critic, the settings that the table has beside its yaml's."""
MAX_TOKENS = 2
EXACT = 1e-9
"""The largest deviation from one constant, relative, of what the table calls a constant."""


@cache
def update(row: str) -> tuple[Sampler, Update]:
    """The sampler of a row's algorithm with K = 2, and its update of two specialised policies."""
    name, *settings = [word for word in row.split() if word != PERFECT]
    words = ["sampler.k=2", *IN_THE_GAME.get(name, []), *settings]
    with initialize_config_module("troupe.configs", version_base="1.3"):
        overrides = ["+scale.std_floor=1e-6", *(f"algorithm.{word}" for word in words)]
        cfg = compose(f"algorithm/{name}", overrides=overrides).algorithm
    team = {agent: agent for agent in Game.agents}
    objective = instantiate(cfg.objective).sized(MAX_TOKENS)
    credit = instantiate(cfg.credit)
    assert PERFECT not in row or isinstance(credit, ActorCritic)
    tasks = [Task(task_id, "train", {}) for task_id in EASE] if PERFECT in row else []
    values = {prompt: value for task in tasks for prompt, value in true_values(Game(), task).items()}
    return instantiate(cfg.sampler), Update(credit, objective, team, values=values)


@cache
def game(topology: Topology) -> Game:
    return Game(at_once=topology in AT_ONCE)


@cache
def all_outcomes(topology: Topology, removal: str | None, task_id: str) -> list[Draw]:
    """Of a sampler as its algorithms have it; other options in which they differ have no effect here."""
    samplers = (sampler for sampler, _ in map(update, rows()))
    sampler = next(sampler for sampler in samplers if (sampler.topology, removal_of(sampler)) == (topology, removal))
    return outcomes(sampler, game(topology), Task(task_id, "train", {}))


def removal_of(sampler: Sampler) -> str | None:
    """The text that a replay puts in the place of messages; None where no message is removed."""
    return getattr(sampler, "removal", None)


@cache
def gradients(name: str) -> dict[str, tuple[Gradient, Gradient]]:
    """(Expected, true) gradient, by task: of iterations of one task."""
    sampler, algorithm = update(name)
    found = {}
    for task_id in EASE:
        true = true_gradient(game(sampler.topology), Task(task_id, "train", {}))
        expected = algorithm.expected([all_outcomes(sampler.topology, removal_of(sampler), task_id)])
        found[task_id] = ({prompt: expected.get(prompt, 0.0) for prompt in true}, true)
    return found


def ratio(pairs: Iterable[tuple[float, float]]) -> float:
    """Of (expected, true) components: the length of the expected gradient along the true one, over the latter's."""
    pairs = list(pairs)
    return sum(e * t for e, t in pairs) / sum(t * t for _, t in pairs)


def cosine(pairs: Iterable[tuple[float, float]]) -> float:
    pairs = list(pairs)
    norms = sqrt(sum(e * e for e, _ in pairs) * sum(t * t for _, t in pairs))
    return sum(e * t for e, t in pairs) / norms


def components(name: str, *, task: str = "", turn: int | None = None, agent: str = "") -> list[tuple[float, float]]:
    """The (expected, true) components of the prompts of some of the tasks, turns and agents."""
    return [
        (expected[prompt], true[prompt])
        for task_id, (expected, true) in gradients(name).items()
        for prompt in true
        if task in ("", task_id) and turn in (None, turn_of(prompt)) and agent in ("", prompt.split()[1])
    ]


def turn_of(prompt: str) -> int:
    """A prompt is the task, the agent, and the actions before, if any."""
    return int(len("".join(prompt.split()[2:])) >= 2)


def constant(name: str) -> bool:
    """Whether the expected gradient is the true one times one number."""
    ratios = [expected / true for expected, true in components(name)]
    return max(ratios) - min(ratios) <= EXACT * abs(ratios[0])


def rows() -> list[str]:
    """The names of the rows: an algorithm, and the settings in which it differs from its yaml."""
    names = [name for name in choices("algorithm") if name not in DRAWS]
    variants = [*VARIANTS.items(), *((name, settings) for name, rows in CRITICS.items() for settings in rows)]
    return names + [" ".join([name, *settings]) for name, settings in variants]


def line(name: str) -> str:
    ratios = [ratio(components(name, task=task, turn=turn)) for task in EASE for turn in (0, 1)]
    agents = [ratio(components(name, agent=agent)) for agent in Game.agents]
    algorithm, *settings = name.split()
    title = ", ".join([f"`{algorithm}`", *(f"`{word}`" for word in settings)])
    verdict = "unbiased up to a constant" if constant(name) else "biased"
    cells = [f"{value:.2f}" for value in (*ratios, *agents, cosine(components(name)))]
    return f"| {title} | {' | '.join(cells)} | {verdict} |"


def section() -> str:
    """The table; the algorithms nearest to the true direction first."""
    places = [f"{task}, turn {turn}" for task in EASE for turn in (0, 1)]
    head = ["algorithm", *places, *(f"`{agent}`" for agent in Game.agents), "cosine", "expected gradient"]
    names = sorted(rows(), key=lambda name: (-round(cosine(components(name)), 2), name))
    return "\n".join([f"| {' | '.join(head)} |", "| --- " * len(head) + "|", *map(line, names)]) + "\n"


def page() -> str:
    """The page's text, with the table anew."""
    return with_section(PAGE.read_text(encoding="utf-8"), BEGIN, END, section())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
