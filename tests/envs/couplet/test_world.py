"""Couplet: rewards, turns and prompts, conventions of demonstrators, tasks, refusals."""

from itertools import product
from random import Random
from typing import Any, get_args

import pytest

from troupe.envs.base import Skill
from troupe.envs.couplet.world import FIRST, SECOND, SUBJECTS, Couplet, Half, _pairs, read_line, vocabulary
from troupe.envs.judging import METRIC
from troupe.experience import Split, Task

HALVES = {
    FIRST: Half(("river", "stone"), ("moon", "night", "rain")),
    SECOND: Half(("garden", "tower"), ("day", "spoon", "plain")),
}
FITTING = {FIRST: "the river under stone moon", SECOND: "a garden with tower spoon"}


def begin(**settings: Any) -> Couplet:
    world = Couplet(**settings)
    world.reset(Task("by-hand", "test", HALVES))
    return world


def prompt_of(world: Couplet, agent: str) -> str:
    return world.observe(agent)[-1]["content"]


async def success(world: Couplet, task: Task, rng: Random, skill: Skill) -> bool:
    env, solved = world.fork(), False
    env.reset(task)
    while acting := env.next_agents():
        solved = (await env.step({agent: env.demonstration(agent, rng, skill=skill) for agent in acting})).success
    return solved


# ---- rewards --------------------------------------------------------------------------------------------------------


async def test_a_fitting_couplet_is_a_success_and_ends_the_episode() -> None:
    result = await begin(horizon=3).step(FITTING)
    assert (result.team, result.local, result.done, result.success) == (1, {FIRST: 0, SECOND: 0}, True, True)
    assert result.info == {"subjects": 1, "length": 1, "rhyme": 1, "empty_or_malformed": 0, METRIC: 0}


async def test_a_turn_earns_what_it_betters() -> None:
    """Scores 2/3, 1/3, 1: it earns 2/3, nothing, 1/3."""
    world, rewards = begin(horizon=3), []
    for text in ("a garden with tower plain", "garden tower plain", "a garden with tower spoon"):
        rewards.append((await world.step({**FITTING, SECOND: text})).team)
    assert rewards == [pytest.approx(2 / 3), 0, pytest.approx(1 / 3)]


# ---- turns and views ------------------------------------------------------------------------------------------------


async def test_both_speak_at_once_and_see_both_lines_afterwards() -> None:
    world = begin()
    assert world.next_agents() == (FIRST, SECOND)
    assert [message["content"] for message in world.observe(FIRST)] == [
        "first couplet",
        "subjects river stone rhymes moon night rain mine none theirs none",
    ]
    assert prompt_of(world, SECOND) == "subjects garden tower rhymes day spoon plain mine none theirs none"
    result = await world.step({FIRST: "the river moon", SECOND: "Tower day"})
    assert (world.turn, result.done, result.info["empty_or_malformed"]) == (1, False, 0.5)
    assert prompt_of(world, FIRST).endswith("mine the river moon theirs malformed")
    assert prompt_of(world, SECOND).endswith("mine malformed theirs the river moon")
    assert (await world.step(dict.fromkeys(world.agents, ""))).done and world.next_agents() == ()


async def test_one_turn() -> None:
    assert (await begin(horizon=1).step({**FITTING, SECOND: ""})).done


# ---- conventions ----------------------------------------------------------------------------------------------------


def test_no_convention_rhymes_in_more_than_ten_of_sixteen() -> None:
    """Every way to choose a family by what one lacks (3^4 a poet): of the 16 pairs of what they lack, at most 10."""
    own = [[family for family in range(4) if family != lacking] for lacking in range(4)]
    ways = list(product(*own))
    most = max(sum(a == b for a, b in product(mine, theirs)) for mine, theirs in product(ways, ways))
    assert most == 10


@pytest.mark.parametrize(
    ("horizon", "skill", "low", "high"),
    [(1, "expert", 0.56, 0.69), (2, "expert", 1.0, 1.0), (1, "novice", 0.04, 0.12), (2, "novice", 0.27, 0.41)],
)
async def test_success_of_demonstrators(horizon: int, skill: Skill, low: float, high: float) -> None:
    """The experts' convention solves 10/16 in one turn, and everything in two; good lines without one solve little."""
    world, rng = Couplet(horizon=horizon), Random(0)
    wins = [await success(world, task, rng, skill) for task in world.tasks("train", 400, 0)]
    assert low <= sum(wins) / len(wins) <= high


@pytest.mark.parametrize("horizon", [1, 2])
async def test_with_every_rhyme_one_turn_is_enough(horizon: int) -> None:
    world, rng = Couplet(rhymes=4, horizon=horizon), Random(0)
    for task in world.tasks("validation", 50, 0):
        assert await success(world, task, rng, "expert")


@pytest.mark.parametrize("skill", get_args(Skill))
async def test_demonstrators_write_lines(skill: Skill) -> None:
    world, rng, words = Couplet(horizon=3), Random(0), set(vocabulary())
    for task in world.tasks("train", 50, 0):
        world.reset(task)
        while acting := world.next_agents():
            actions = {agent: world.demonstration(agent, rng, skill=skill) for agent in acting}
            for agent, text in actions.items():
                assert read_line(text, 6)
                assert set(" ".join(message["content"] for message in world.observe(agent)).split()) <= words
            await world.step(actions)


# ---- tasks ----------------------------------------------------------------------------------------------------------


def test_no_poet_of_a_held_out_task_has_subjects_that_were_seen_in_training() -> None:
    """Splits are disjoint by each poet's pair of subjects, and so by the couplet."""
    pairs: dict[str, set[frozenset[str]]] = {}
    for split in get_args(Split):
        tasks = [task for seed in (0, 1) for task in Couplet().tasks(split, 400, seed)]
        pairs[split] = {frozenset(half.subjects) for task in tasks for half in task.data.values()}
        assert pairs[split] <= {frozenset(pair) for pair in _pairs(split)}
    assert not pairs["train"] & (pairs["validation"] | pairs["test"])
    assert not pairs["validation"] & pairs["test"]
    assert sum(len(_pairs(split)) for split in get_args(Split)) == len(SUBJECTS) * (len(SUBJECTS) - 1) // 2


def test_tasks_are_sound() -> None:
    for rhymes in (3, 4):
        for task in Couplet(rhymes=rhymes).tasks("train", 200, 0):
            first, second = task.data[FIRST], task.data[SECOND]
            assert len({*first.subjects, *second.subjects}) == 4
            assert len({*first.rhymes, *second.rhymes}) == 2 * rhymes  # no word is given to both
            assert len(first.families) == len(second.families) == rhymes
            assert first.families.keys() & second.families.keys()


def test_a_task_is_the_same_whoever_writes_which_line() -> None:
    """Its id is decided by the two halves, in whatever order they and their words stand."""
    ids: dict[frozenset[Any], str] = {}
    for seed in range(3):
        for task in Couplet().tasks("test", 300, seed):
            key = frozenset((frozenset(half.subjects), frozenset(half.rhymes)) for half in task.data.values())
            assert ids.setdefault(key, task.task_id) == task.task_id
    assert len(set(ids.values())) == len(ids)


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"horizon": 0}, "env.horizon"),
        ({"rhymes": 2}, "env.rhymes"),
        ({"rhymes": 5}, "env.rhymes"),
        ({"max_words": 5}, "env.max_words"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, int], key: str) -> None:
    with pytest.raises(ValueError, match=key):
        Couplet(**settings)


def test_unknown_splits_and_agents_are_refused() -> None:
    with pytest.raises(ValueError, match="splits train, validation, test, not dev"):
        Couplet().tasks("dev", 1, seed=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="agents first, second, not third"):
        begin().observe("third")


@pytest.mark.parametrize("actions", [{}, {FIRST: ""}, {"third": ""}, {**FITTING, "third": ""}])
async def test_both_must_speak_and_nobody_else(actions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="couplet expects a message of first and second"):
        await begin().step(actions)


async def test_nobody_may_speak_after_the_end_or_before_the_start() -> None:
    over = begin()
    await over.step(FITTING)
    for world in (over, Couplet()):
        with pytest.raises(ValueError, match="over or not begun"):
            await world.step(FITTING)
