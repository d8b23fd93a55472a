"""Write the tables of biases of ``algorithms.md``: each algorithm's expected gradient against the true one.

``make docs`` writes them, between marks; ``tests/test_documentation.py`` checks that they were
written.  The games, and how the expectation is computed, are in ``src/enumeration``; an algorithm's sampler, credit
rule and objective are those of its yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cache
from math import sqrt
from pathlib import Path
from typing import get_args

from hydra import compose, initialize_config_module
from hydra.utils import instantiate
from marked_section import with_section

from troupe.algorithms.credit.actor_critic import ActorCritic
from troupe.enumeration.game import EASE, EchoGame, Game
from troupe.enumeration.gradients import Gradient, Update, true_gradient, true_values
from troupe.enumeration.outcomes import Draw, outcomes
from troupe.experience import Task
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.sampler import Sampler
from troupe.rollout.samplers.task_rollout import TeamReward
from troupe.rollout.samplers.tree import TreeSampler
from troupe.setup.composition import choices

PAGE = Path(__file__).parent.parent / "algorithms.md"
BEGIN, END = "<!-- bias, written by `make docs`: begin -->\n", "<!-- bias: end -->\n"
BEGIN_ECHO, END_ECHO = "<!-- early ends, written by `make docs`: begin -->\n", "<!-- early ends: end -->\n"
BEGIN_PAID, END_PAID = "<!-- paid, written by `make docs`: begin -->\n", "<!-- paid: end -->\n"
GAMES = {
    "aligned": Game(),
    "opposed": Game(opposed=True),
    "aligned, early ends": Game(early=True),
    "opposed, early ends": Game(opposed=True, early=True),
}
"""By their intermediate rewards, the games in which AT-GRPO's rewards are compared."""
AT_ONCE = ("joint", "replay", "forest")
"""The topologies with which both agents of :class:`Game` act at once, which keeps the outcomes few."""
DRAWS = ("at_grpo_shuffled", "magrpo_shuffled")
"""The algorithms whose credit rule draws, so that outcomes of the sampler alone are not all."""
VARIANTS = {
    "rloo": ["credit.weight=message"],
    "gigpo": ["credit.anchor=prompt"],
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
SEVERAL = {
    "magrpo": [["credit.weight=message"], ["sampler.stop_above=0.3"]],
    "at_grpo": [[f"reward.team={team}"] for team in get_args(TeamReward)],
} | {
    name: [
        ["credit.normalise=false", "credit.gae_lambda=1"],
        ["credit.normalise=false", "credit.gae_lambda=0"],
        ["credit.normalise=false", PERFECT],
        ["credit.normalise=false", "credit.gae_lambda=0", PERFECT],
    ]
    for name in ("iac", "maac")
}
"""The same of algorithms with more than one such row."""
MAX_TOKENS = 2
EXACT = 1e-9
"""The largest deviation from one constant, relative, of what the table calls a constant."""


@cache
def update(row: str, *, echo: bool = False) -> tuple[Sampler, Game, Update]:
    """The sampler of a row's algorithm with K = 2, its game, and its update of two specialised policies; ``echo``: in
    the game with early ends."""
    name, *settings = [word for word in row.split() if word != PERFECT]
    words = ["sampler.k=2", *IN_THE_GAME.get(name, []), *settings]
    with initialize_config_module("troupe.configs", version_base="1.3"):
        overrides = ["+scale.std_floor=1e-6", "+scale.team_reward=own", *(f"algorithm.{word}" for word in words)]
        cfg = compose(f"algorithm/{name}", overrides=overrides).algorithm
    sampler = instantiate(cfg.sampler, **cfg.get("reward", {}))
    world = EchoGame() if echo else Game(at_once=sampler.topology in AT_ONCE)
    team = {agent: agent for agent in Game.agents}
    objective = instantiate(cfg.objective).sized(MAX_TOKENS)
    credit = instantiate(cfg.credit)
    assert PERFECT not in row or isinstance(credit, ActorCritic)
    tasks = [Task(task_id, "train", {}) for task_id in EASE] if PERFECT in row else []
    values = {prompt: value for task in tasks for prompt, value in true_values(world, task).items()}
    return sampler, world, Update(credit, objective, team, values=values)


def kind(sampler: Sampler) -> tuple[Hashable, ...]:
    """Equal for samplers with the same outcomes: other options in which the algorithms' differ have no effect here."""
    stop_above = sampler.settings.stop_above if isinstance(sampler, JointSampler) else None
    options = (getattr(sampler, "removal", None), getattr(sampler, "branch_at", None), stop_above)
    return (sampler.topology, sampler.mix.team if isinstance(sampler, TreeSampler) else None, *options)


@cache
def all_outcomes(sampled: tuple[Hashable, ...], task_id: str, *, echo: bool) -> list[Draw]:
    """Of the samplers of a :func:`kind`."""
    some = (update(row, echo=echo) for row in rows())
    sampler, world = next((sampler, world) for sampler, world, _ in some if kind(sampler) == sampled)
    return outcomes(sampler, world, Task(task_id, "train", {}))


@cache
def gradients(name: str, *, echo: bool = False) -> dict[str, tuple[Gradient, Gradient]]:
    """(Expected, true) gradient, by task: of iterations of one task."""
    sampler, world, algorithm = update(name, echo=echo)
    found = {}
    for task_id in EASE:
        true = true_gradient(world, Task(task_id, "train", {}))
        expected = algorithm.expected([all_outcomes(kind(sampler), task_id, echo=echo)])
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


def components(
    name: str, *, task: str = "", turn: int | None = None, agent: str = "", echo: bool = False
) -> list[tuple[float, float]]:
    """The (expected, true) components of the prompts of some of the tasks, turns and agents."""
    return [
        (expected[prompt], true[prompt])
        for task_id, (expected, true) in gradients(name, echo=echo).items()
        for prompt in true
        if task in ("", task_id) and turn in (None, turn_of(prompt)) and agent in ("", prompt.split()[1])
    ]


def turn_of(prompt: str) -> int:
    """A prompt is the task, the agent, and the actions before, if any."""
    return int(len("".join(prompt.split()[2:])) >= 2)


def verdict(name: str, *, echo: bool = False) -> str:
    """Whether the expected gradient is the true one times one number."""
    ratios = [expected / true for expected, true in components(name, echo=echo)]
    constant = max(ratios) - min(ratios) <= EXACT * abs(ratios[0])
    return "unbiased up to a constant" if constant else "biased"


def rows() -> list[str]:
    """The names of the rows: an algorithm, and the settings in which it differs from its yaml."""
    names = [name for name in choices("algorithm") if name not in (*DRAWS, "at_grpo")]  # which has rows for its choices
    variants = [*VARIANTS.items(), *((name, settings) for name, rows in SEVERAL.items() for settings in rows)]
    return names + [" ".join([name, *settings]) for name, settings in variants]


def title(name: str) -> str:
    algorithm, *settings = name.split()
    return ", ".join([f"`{algorithm}`", *(f"`{word}`" for word in settings)])


def line(name: str) -> str:
    ratios = [ratio(components(name, task=task, turn=turn)) for task in EASE for turn in (0, 1)]
    agents = [ratio(components(name, agent=agent)) for agent in Game.agents]
    cells = [f"{value:.2f}" for value in (*ratios, *agents, cosine(components(name)))]
    return f"| {title(name)} | {' | '.join(cells)} | {verdict(name)} |"


def echo_line(name: str) -> str:
    pairs = components(name, echo=True)
    ratios = [expected / true for expected, true in pairs]
    cells = [f"{value:.2f}" for value in (cosine(pairs), min(ratios), max(ratios))]
    return f"| {title(name)} | {' | '.join(cells)} | {verdict(name, echo=True)} |"


def table(head: list[str], line: Callable[[str], str], *, echo: bool) -> str:
    """The algorithms nearest to the true direction first."""
    names = sorted(rows(), key=lambda name: (-round(cosine(components(name, echo=echo)), 2), name))
    return "\n".join([f"| {' | '.join(head)} |", "| --- " * len(head) + "|", *map(line, names)]) + "\n"


def section() -> str:
    """The table of :class:`Game`."""
    places = [f"{task}, turn {turn}" for task in EASE for turn in (0, 1)]
    head = ["algorithm", *places, *(f"`{agent}`" for agent in Game.agents), "cosine", "expected gradient"]
    return table(head, line, echo=False)


def echo_section() -> str:
    """The table of :class:`EchoGame`."""
    return table(["algorithm", "cosine", "smallest ratio", "largest ratio", "expected gradient"], echo_line, echo=True)


def paid_section() -> str:
    """Cosines of ``tool``, of ``plan`` and of both, by what AT-GRPO pays, in each game's task ``hard``."""
    task = Task("hard", "train", {})
    lines = [f"| `reward.team` | {' | '.join(GAMES)} |", "| --- " * (1 + len(GAMES)) + "|"]
    for team in get_args(TeamReward):
        sampler, _, algorithm = update(f"at_grpo reward.team={team}")
        cells = []
        for world in GAMES.values():
            true, expected = true_gradient(world, task), algorithm.expected([outcomes(sampler, world, task)])
            of = [[(expected.get(p, 0.0), true[p]) for p in true if agent in p] for agent in (*Game.agents, "")]
            cells.append(", ".join(f"{cosine(pairs):.2f}" for pairs in of))
        lines.append(f"| `{team}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page's text, with the tables anew."""
    text = with_section(PAGE.read_text(encoding="utf-8"), BEGIN, END, section())
    text = with_section(text, BEGIN_ECHO, END_ECHO, echo_section())
    return with_section(text, BEGIN_PAID, END_PAID, paid_section())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
