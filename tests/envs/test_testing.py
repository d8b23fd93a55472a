"""check_world passes a sound world and names the rule that an unsound one breaks."""

import copy
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Self

import pytest

from troupe.envs.base import Skill, StepResult, TeamEnv
from troupe.envs.drawing import SVG, Drawing
from troupe.envs.kuhn import Kuhn
from troupe.envs.testing import check_world
from troupe.experience import Message, Split, Task


class Duet(TeamEnv):
    """Two agents at once: each must say its number, which is random each turn; twice right is success."""

    def __init__(self) -> None:
        self.agents, self.horizon, self.turn = ("high", "low"), 3, 0
        self.right, self.numbers, self.rng, self.over = 0, {"high": 0, "low": 0}, Random(0), True

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        rng = Random(f"{split}/{seed}")
        digit = {"train": 0, "validation": 1, "test": 2}[split]
        numbers = [10 * number + digit for number in rng.sample(range(10_000), count)]
        return [Task(f"duet-{number}", split, {"number": number}) for number in numbers]

    def reset(self, task: Task) -> None:
        self.turn, self.right, self.over, self.rng = 0, 0, False, Random(task.data["number"])
        self.roll()

    def roll(self) -> None:
        self.numbers = {agent: self.rng.randrange(100, 1000) for agent in self.agents}

    def next_agents(self) -> tuple[str, ...]:
        return () if self.over else self.agents

    def observe(self, agent: str) -> list[Message]:
        return [{"role": "user", "content": f"say {self.numbers[agent]}"}]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        if self.over or set(actions) != set(self.agents):
            raise ValueError(f"expected {self.next_agents()}, got {tuple(actions)}")
        return self.judge({agent: actions[agent].strip() == str(self.numbers[agent]) for agent in self.agents})

    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        self.turn += 1
        self.right += all(fits.values())
        self.over = self.right == 2 or self.turn >= self.horizon
        self.roll()
        return StepResult(dict(fits), float(all(fits.values())), self.over, self.right == 2)

    def fork(self) -> Self:
        return copy.deepcopy(self)

    def state_key(self) -> Hashable:
        return (self.turn, self.right, self.over, tuple(self.numbers.items()), self.rng.getstate())

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        return str(self.numbers[agent])


async def test_a_sound_world_passes() -> None:
    await check_world(Duet(), tasks=2)


class NoAgentsAtOnce(Duet):
    def next_agents(self) -> Any:
        return list(super().next_agents())


class StrangerActs(Duet):
    def next_agents(self) -> tuple[str, ...]:
        return () if self.over else ("high", "guest")

    def observe(self, agent: str) -> list[Message]:
        return [{"role": "user", "content": "?"}]


class TellsNothing(Duet):
    def observe(self, agent: str) -> list[Message]:
        return []


class TellsNoContent(Duet):
    def observe(self, agent: str) -> list[Message]:
        return [{"role": "user"}]


class ObservingDraws(Duet):
    def observe(self, agent: str) -> list[Message]:
        self.roll()
        return super().observe(agent)


class ObservingCounts(Duet):
    looks = 0

    def observe(self, agent: str) -> list[Message]:
        self.looks += 1
        return super().observe(agent)

    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        result = super().judge(fits)
        return replace(result, team=result.team / (1 + (self.looks == 0)))


class DrawingRolls(Duet):
    def draw(self) -> Drawing | None:
        self.roll()
        return None


class DrawsRows(Duet):
    def draw(self) -> Any:
        return ("#.#",)


class DrawsScripts(Duet):
    def draw(self) -> Drawing:
        return Drawing(f'<svg xmlns="{SVG}" viewBox="0 0 1 1"><script>1</script></svg>', "")


class DrawsNoMarkup(Duet):
    def draw(self) -> Drawing:
        return Drawing(f'<svg xmlns="{SVG}" viewBox="0 0 1 1"/>', "[/red]")


class AnybodyMaySpeak(Duet):
    async def step(self, actions: Mapping[str, str]) -> StepResult:
        return await super().step({agent: actions.get(agent, "") for agent in self.agents})


class RefusesTooLate(Duet):
    async def step(self, actions: Mapping[str, str]) -> StepResult:
        self.roll()
        return await super().step(actions)


class RewardsNobody(Duet):
    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        return replace(super().judge(fits), local={})


class RewardsTooMuch(Duet):
    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        return replace(super().judge(fits), team=2.0)


class RewardsNan(Duet):
    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        return replace(super().judge(fits), local=dict.fromkeys(self.agents, float("nan")))


class CountsWords(Duet):
    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        return replace(super().judge(fits), info={"verdict": "fine"})  # type: ignore[dict-item]


class NeverDone(Duet):
    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        result = super().judge(fits)
        self.over = False
        return replace(result, done=False, success=False)


class SaysDoneTooSoon(Duet):
    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        return replace(super().judge(fits), done=True)


class SkipsTurns(Duet):
    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        self.turn += 1
        return super().judge(fits)


class FailsOnGarbage(Duet):
    async def step(self, actions: Mapping[str, str]) -> StepResult:
        for text in actions.values():
            text.encode()
        return await super().step(actions)


class PaysForGarbage(Duet):
    async def step(self, actions: Mapping[str, str]) -> StepResult:
        result = await super().step(actions)
        return replace(result, team=1.0) if "success" in "".join(actions.values()) else result


class TryingCosts(Duet):
    async def step(self, actions: Mapping[str, str]) -> StepResult:
        result = await super().step(actions)
        return replace(result, team=result.team - 0.5 * any(actions.values()) + 0.5)


NOISE = Random(0)


class OutsideNoise(Duet):
    def roll(self) -> None:
        self.numbers = {agent: NOISE.randrange(100, 1000) for agent in self.agents}


class SharedNoise(Duet):
    def fork(self) -> Self:
        fork = copy.copy(self)
        fork.numbers = dict(self.numbers)
        return fork


class FreshNoise(Duet):
    def fork(self) -> Self:
        fork = copy.deepcopy(self)
        fork.rng = Random(1)
        return fork

    def state_key(self) -> Hashable:
        return (self.turn, self.right, self.over, tuple(self.numbers.items()))


class SharedState(Duet):
    def roll(self) -> None:
        self.numbers.update({agent: self.rng.randrange(100, 1000) for agent in self.agents})

    def fork(self) -> Self:
        fork = copy.copy(self)
        fork.rng = copy.copy(self.rng)
        return fork


class BadKey(Duet):
    def state_key(self) -> Hashable:
        return (self.turn, self.right, self.over)


class UnhashableKey(Duet):
    def state_key(self) -> Hashable:
        return (self.numbers,)


class DirtyReset(Duet):
    def reset(self, task: Task) -> None:
        right = self.right
        super().reset(task)
        self.right = min(right, 1)


class MarksTask(Duet):
    def reset(self, task: Task) -> None:
        super().reset(task)
        task.data.update(played=True)  # type: ignore[attr-defined]


class CannotPlay(Duet):
    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        return "no idea"


class ForgetsSeed(Duet):
    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return super().tasks(split, count, 0)


class AlwaysNewTasks(Duet):
    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return super().tasks(split, count, NOISE.getrandbits(32))


class TooFewTasks(Duet):
    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return super().tasks(split, count, seed)[1:]


class SameTaskTwice(Duet):
    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return [super(SameTaskTwice, self).tasks(split, 1, seed)[0] for _ in range(count)]


class WrongLabels(Duet):
    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return [replace(task, split="train") for task in super().tasks(split, count, seed)]


class SplitsOverlap(Duet):
    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return [replace(task, split=split) for task in super().tasks("train", count, seed)]


@dataclass(frozen=True)
class NotATask:
    task_id: str
    split: Split


class HandsOutOthers(Duet):
    def tasks(self, split: Split, count: int, seed: int) -> Any:
        return [NotATask(task.task_id, split) for task in super().tasks(split, count, seed)]


class GarbageBeatsTheTeam(Kuhn):
    """Silence of the opponent forfeits; whatever else it says that is no action, the team loses."""

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        result = await super().step(actions)
        if actions.get("opponent") and result.info["forfeit"]:
            return replace(result, team=-1.0, success=False)
        return result


async def test_the_side_of_opponents_may_not_earn_by_garbage_either() -> None:
    await check_world(Kuhn(), tasks=2, team=(-1.0, 1.0), solved=0.0)
    with pytest.raises(AssertionError, match=r"(earns|costs) the opponent more than silence"):
        await check_world(GarbageBeatsTheTeam(), tasks=12, team=(-1.0, 1.0), solved=0.0)


@pytest.mark.parametrize(
    ("world", "rule"),
    [
        (NoAgentsAtOnce, "not a tuple"),
        (StrangerActs, "not all among agents"),
        (TellsNothing, "the prompt of high is empty"),
        (TellsNoContent, "is no message with role and content"),
        (ObservingDraws, "observing changes"),
        (ObservingCounts, "not observed"),
        (DrawingRolls, "drawing changes the state"),
        (DrawsRows, "draw gives a tuple"),
        (DrawsScripts, "element script is not allowed"),
        (DrawsNoMarkup, "no markup of rich"),
        (AnybodyMaySpeak, "should act"),
        (RefusesTooLate, "a refused step"),
        (RewardsNobody, "local must hold the rewards of the agents that acted"),
        (RewardsTooMuch, r"reward of the team is 2\.0"),
        (RewardsNan, "reward of high must be a finite number, got nan"),
        (CountsWords, "info: verdict must be a finite number"),
        (NeverDone, "goes on at its horizon"),
        (SaysDoneTooSoon, "done is True"),
        (SkipsTurns, "turn goes from 0 to 2"),
        (FailsOnGarbage, "crashes it: UnicodeEncodeError"),
        (PaysForGarbage, "earns the team more than silence"),
        (TryingCosts, "costs the team more than silence"),
        (OutsideNoise, "looks? different|state_key"),
        (SharedNoise, "another way|changes|different"),
        (FreshNoise, "noise copied|state_key"),
        (SharedState, "changes|differs|different|another"),
        (BadKey, "state_key .* is that of another state"),
        (UnhashableKey, "not hashable"),
        (DirtyReset, "reset leaves|another way|state_key"),
        (MarksTask, "changes its data"),
        (CannotPlay, "the oracle solves 0%"),
        (ForgetsSeed, "seeds 0 and 1 give the same train tasks"),
        (AlwaysNewTasks, "the same seed gives other train tasks"),
        (TooFewTasks, "must return 2 tasks, got 1"),
        (SameTaskTwice, "two tasks have the task_id"),
        (WrongLabels, "must be of split validation, got 'train'"),
        (SplitsOverlap, "is in two splits"),
        (HandsOutOthers, "it must return tasks, got"),
    ],
)
async def test_an_unsound_world_fails_with_the_rule_that_it_breaks(world: type[TeamEnv], rule: str) -> None:
    with pytest.raises(AssertionError, match=rule) as error:
        await check_world(world(), tasks=2)
    assert world.__name__ in str(error.value)


async def test_an_oracle_can_be_passed() -> None:
    def answer(env: TeamEnv, agent: str, rng: Random) -> str:
        return env.observe(agent)[0]["content"].removeprefix("say ")

    await check_world(CannotPlay(), tasks=1, oracle=answer, solved=1.0)
