"""Text games of PettingZoo as worlds."""

import asyncio
import random
import re
import sys
import threading
import types
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("pettingzoo", reason="needs the extra [pettingzoo]")

import yaml
from gymnasium.spaces import Discrete

from troupe.envs.base import TeamEnv
from troupe.envs.couplet.world import Couplet
from troupe.envs.pettingzoo.aec import TeamAEC
from troupe.envs.pettingzoo.world import PettingZooWorld
from troupe.envs.testing import GARBAGE, check_world
from troupe.errors import ConfigError
from troupe.experience import Sampling, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.tree import TreeSampler
from troupe.rollout.scripted import ScriptedEngine
from troupe.setup.instantiation import instantiated

PAGE = (Path(__file__).parents[3] / "docs" / "worlds" / "pettingzoo.md").read_text(encoding="utf-8")
SETTINGS: dict[str, Any] = {"horizon": 2, "reward_bounds": (0, 1), "solved": 1}


def block(name: str, language: str) -> str:
    """A part of the page."""
    (text,) = re.findall(rf"<!-- {name} -->\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    return text


_module: dict[str, Any] = {"__name__": "my_package"}
exec(block("a game", "python"), _module)
Password: Any = _module["Password"]


def oracle(env: TeamEnv, agent: str, rng: random.Random) -> str:
    return env.observe(agent)[-1]["content"].split()[-1]


async def test_the_game_on_the_page_keeps_the_contract() -> None:
    world = PettingZooWorld(game=Password(), **SETTINGS)
    await check_world(world, oracle=oracle, solved=1.0, tasks=2, garbage=GARBAGE[::4])


async def test_the_yaml_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("my_package")
    package.Password = Password  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_package", package)
    node = yaml.safe_load(block("its yaml", "yaml"))
    assert node.pop("_world_")["agents"] == ["knower", "guesser"]
    world = instantiated("env", node)
    assert isinstance(world, PettingZooWorld) and world.agents == ("knower", "guesser")
    world.reset(world.tasks("train", 1, 0)[0])
    system, user = world.observe("knower")
    assert system == {"role": "system", "content": "Describe the colour without naming it."}
    assert user["role"] == "user" and user["content"].startswith("the colour is ")


def test_the_loop_on_the_page() -> None:
    module: dict[str, Any] = {}
    exec(block("a world for PettingZoo", "python"), module)
    assert module["env"].agents == []


async def test_a_world_that_goes_there_and_back_keeps_the_contract() -> None:
    world = PettingZooWorld(
        game=TeamAEC(Couplet(), split="train", max_length=500), horizon=2, reward_bounds=(0, 3), solved=1.0
    )
    assert (world.name, world.agents) == ("couplet", ("first", "second"))
    await check_world(world, team=(0, 3), tasks=2, garbage=GARBAGE[::4])
    world._game.close()


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ({"knower": float("nan"), "guesser": 0.0}, "env.game: the reward of knower must be a finite number, got nan"),
        ({"knower": None, "guesser": 0.0}, "env.game: the reward of knower must be a finite number, got None"),
        ({"knower": 0.0}, "env.game: the rewards of .* are those of knower, not of knower, guesser"),
        ({"knower": 0.0, "guesser": 0.0, "judge": 1.0}, "those of knower, guesser, judge, not of knower, guesser"),
    ],
)
async def test_rewards_that_are_none(rewards: dict[str, Any], message: str) -> None:
    class Odd(Password):  # type: ignore[misc]
        def step(self, action: Any) -> None:
            super().step(action)
            self.rewards = rewards

    world = PettingZooWorld(game=Password(), **SETTINGS)
    world._game = Odd()
    world.reset(world.tasks("train", 1, 0)[0])
    with pytest.raises((TypeError, ValueError), match=message):
        await world.step({"knower": "blue"})


async def test_rewards_by_hand() -> None:
    world = PettingZooWorld(game=Password(), **SETTINGS)
    (task,) = world.tasks("train", 1, 0)
    world.reset(task)
    turns, teams = [], []
    for _ in range(4):
        (agent,) = world.next_agents()
        said = oracle(world, agent, random.Random()) if len(teams) < 3 else "pink"
        result = await world.step({agent: said})
        turns.append(world.turn)
        teams.append(result.team)
    assert turns == [0, 1, 1, 2] and teams == [0, 0.5, 0, 0]  # the second guess is wrong
    assert result.done and not result.success and result.local == {"guesser": 0.0}


async def test_an_action_outside_of_its_space_is_replaced_and_counted() -> None:
    world = PettingZooWorld(game=Password(), **SETTINGS, fallback="none")
    world.reset(world.tasks("train", 1, 0)[0])
    result = await world.step({"knower": "é"})
    assert result.info == {"replaced": 1.0} and world.observe("guesser")[0]["content"] == "the hint is none"
    assert (await world.step({"guesser": "red"})).info == {"replaced": 0.0}


async def test_the_horizon_ends_a_game() -> None:
    world = PettingZooWorld(game=Password(rounds=5), **SETTINGS)
    world.reset(world.tasks("train", 1, 0)[0])
    for agent in ("knower", "guesser") * 2:
        result = await world.step({agent: "red"})
    assert result.done and world.next_agents() == ()


def test_a_sampler_plays_it(words: Any) -> None:
    world = PettingZooWorld(game=Password(), **SETTINGS)
    engine = ScriptedEngine(lambda prompt, row, seed: "R", words)
    client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=9))
    client.__dict__["encode"] = lambda *_: (1,)  # its words are not in this vocabulary
    tasks = world.tasks("train", 3, 0)
    results = asyncio.run(TreeSampler(k=2).collect(world, tasks, dict.fromkeys(world.agents, client), 0))
    assert [len(episode.nodes) for (episode,) in results] == [4, 4, 4]


def test_splits_are_ranges_of_seeds() -> None:
    ranges = {"train": (0, 5), "validation": (5, 7), "test": (7, 9)}
    world = PettingZooWorld(game=Password(), **SETTINGS, seeds=ranges)
    for split, (low, high) in ranges.items():
        tasks = world.tasks(split, high - low, 3)
        assert sorted(task.data["seed"] for task in tasks) == list(range(low, high))
        with pytest.raises(ValueError, match=f"env.seeds.{split} has {high - low} seeds, not {high - low + 1}"):
            world.tasks(split, high - low + 1, 3)


class Locked(Password):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Shared(Password):
    def __deepcopy__(self, memo: Any) -> "Shared":
        return self


class Noisy(Password):
    """Draws from the process's generator."""

    def step(self, action: str) -> None:
        super().step(action)
        self.colour = random.choice("abcdefghijklmnopqrstuvwxyz") * random.randint(1, 1000)


class Sharing(Password):
    """Copies have their rounds in common."""

    hints: ClassVar[list[str]] = []

    def step(self, action: str) -> None:
        super().step(action)
        self.hints.append(action)

    def observe(self, agent: str) -> str:
        return f"{super().observe(agent)} {len(self.hints)}"


class Numbers(Password):
    def action_space(self, agent: str) -> Discrete:
        return Discrete(3)


class Pixels(Password):
    def observe(self, agent: str) -> int:
        return 7


@pytest.mark.parametrize(
    ("game", "settings", "message"),
    [
        (Locked, {}, r"env\.game: password cannot be copied.*cannot pickle '_thread\.lock' object"),
        (Shared, {}, r"env\.game: password changes when a copy of it is played"),
        (Noisy, {}, r"env\.game: two copies of password go different ways"),
        (Sharing, {}, r"env\.game: (password changes|two copies of password go different ways)"),
        (Numbers, {}, r"env\.game: the action space of knower in password is Discrete\(3\), expected gymnasium"),
        (Pixels, {}, r"env\.game: password shows knower a int, expected a text or chat messages"),
        (dict, {}, r"env\.game must be an AEC environment of PettingZoo, got dict"),
        (Password, {"horizon": 0}, r"env\.horizon must be at least 1, got 0"),
        (Password, {"reward_bounds": (1, 0)}, r"env\.reward_bounds must be two numbers, the lower first"),
        (Password, {"fallback": "é"}, r"env\.fallback='é' is not in the action space of knower"),
        (Password, {"instructions": {"boss": "x"}}, r"env\.instructions\.boss: the game's agents are knower, guesser"),
        (Password, {"seeds": {"train": (0, 9), "test": (9, 10)}}, r"env\.seeds\.validation must be two whole numbers"),
        (
            Password,
            {"seeds": {"train": (0, 9), "validation": (9, 11), "test": (10, 12)}},
            r"env\.seeds\.validation and env\.seeds\.test overlap",
        ),
    ],
)
def test_what_cannot_be_a_world_is_refused(game: Callable[[], Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PettingZooWorld(game=game(), **SETTINGS | settings)


async def test_a_reward_out_of_bounds_is_an_error() -> None:
    world = PettingZooWorld(game=Password(rounds=1), horizon=1, reward_bounds=(0, 0.5), solved=1)
    world.reset(Task("x", "train", {"seed": 0}))
    await world.step({"knower": "hm"})
    message = r"env\.reward_bounds=\[0, 0\.5\]: in task password-0 of password, turn 0 earned 1\.0; "
    with pytest.raises(ConfigError, match=message):
        await world.step({"guesser": oracle_colour(world)})


def oracle_colour(world: PettingZooWorld) -> str:
    return deepcopy(world).observe("knower")[0]["content"].split()[-1]
