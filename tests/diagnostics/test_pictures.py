"""A tree played once more: pictures before and after each message, and what siblings would have led to."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from troupe.diagnostics.pictures import pictures
from troupe.enumeration.game import Game
from troupe.envs.base import StepResult, WorldFailure
from troupe.envs.drawing import Drawing
from troupe.experience import Episode
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.tree import TreeSampler

Play = Callable[..., Any]


class Plain(Game):
    """The game, with a prompt that the base model's words can write."""

    def observe(self, agent: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": agent}]


class Drawn(Plain):
    """Its picture is what was done."""

    def picture(self) -> tuple[str, ...]:
        return (self.actions or "start",)


def script(prompt: str, row: int, seed: int) -> str:
    return ("no", "yes please")[row % 2]


async def one(play: Play, world: Game, sampler: Any) -> Episode:
    return (await play(script, world, sampler, 1))[0]


@pytest.mark.parametrize(
    "sampler",
    [TreeSampler(k=2), ChainSampler(k=2), JointSampler(k=2, growth="full"), JointSampler(k=2, pairing="cross")],
    ids=["tree", "chain", "joint", "cross"],
)
@pytest.mark.parametrize("at_once", [False, True], ids=["in_turn", "at_once"])
async def test_every_prompt_and_candidate_has_its_pictures(play: Play, sampler: Any, at_once: bool) -> None:
    world = Drawn(at_once=at_once)
    episode = await one(play, world, sampler)
    drawn = await pictures(world, episode.task, episode)
    assert drawn.problem == ""
    assert drawn.before[0] == {"text": "start"}
    assert set(drawn.before) == set(range(len(episode.nodes)))
    assert set(drawn.after) == {(n, c) for n, node in enumerate(episode.nodes) for c in range(len(node.candidates))}
    for edge in episode.edges:
        if edge.outcome is not None and len({c for _, c in edge.members.values()}) == 1:
            followed = [drawn.after[place] for place in edge.members.values()]
            assert all((each["done"], each["success"]) == (True, edge.outcome.success) for each in followed)


async def test_siblings_say_what_they_would_have_led_to(play: Play) -> None:
    episode = await one(play, Drawn(), TreeSampler(k=2))
    drawn = await pictures(Drawn(), episode.task, episode)
    plan = next(i for i, node in enumerate(episode.nodes) if node.agent == "plan")
    for c, candidate in enumerate(episode.nodes[plan].candidates):
        followed = drawn.after[plan, c]
        assert followed["success"] == (candidate.team == 1.0)
        assert followed["picture"] != drawn.before[plan]


async def test_an_svg_is_kept_where_there_are_no_rows(play: Play) -> None:
    class Svg(Plain):
        def draw(self) -> Drawing | None:
            return Drawing("<svg/>", f"turn {self.turn}")

    episode = await one(play, Svg(), TreeSampler(k=2))
    drawn = await pictures(Svg(), episode.task, episode)
    assert drawn.before[0] == {"svg": "<svg/>", "text": "turn 0"}


async def test_a_world_that_answers_otherwise_is_named(play: Play) -> None:
    class Noisy(Drawn):
        async def step(self, actions: Mapping[str, str]) -> StepResult:
            result = await super().step(actions)
            return StepResult({agent: 0.25 for agent in actions}, result.team, result.done, result.success)

    episode = await one(play, Drawn(), TreeSampler(k=2))
    drawn = await pictures(Noisy(), episode.task, episode)
    assert drawn.problem == "played once more, the world gave tool 0.25 instead of 0"
    assert drawn.before == {} and drawn.after == {}


async def test_a_fault_of_the_world_ends_the_pictures_alone(play: Play) -> None:
    class Broken(Drawn):
        async def step(self, actions: Mapping[str, str]) -> StepResult:
            raise WorldFailure("no answer")

    episode = await one(play, Drawn(), TreeSampler(k=2))
    drawn = await pictures(Broken(), episode.task, episode)
    assert drawn.problem == "the world failed while its pictures were drawn: task easy: no answer"
    assert drawn.before == {0: {"text": "start"}}


async def test_a_mistake_in_a_worlds_drawing_ends_the_pictures_alone(play: Play) -> None:
    class Undrawable(Drawn):
        def picture(self) -> tuple[str, ...]:
            return {}["no such key"]

    episode = await one(play, Drawn(), TreeSampler(k=2))
    drawn = await pictures(Undrawable(), episode.task, episode)
    assert "Undrawable.picture raised KeyError: 'no such key' (task easy, turn 0; " in drawn.problem
    assert not drawn.before and not drawn.after
