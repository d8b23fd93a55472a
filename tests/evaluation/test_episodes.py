"""Episodes with fixed actors."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.base import TeamEnv
from troupe.envs.drawing import Drawing, Panel, draw_panels
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.evaluation.assignment import SILENCE
from troupe.evaluation.episodes import (
    DRAWN,
    Actor,
    EchoActor,
    EpisodeResult,
    HumanActor,
    PolicyActor,
    evaluate,
    play,
)
from troupe.experience import Message, Sampling, Task
from troupe.reports.explorer import episode_tree
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.scripted import Script, ScriptedEngine
from troupe.setup.evaluation_actors import ActorFactory

SOLVED = "box 2,2 R 2,3 R 2,4"


def actor(script: Script, words: PreTrainedTokenizerFast) -> tuple[PolicyActor, ScriptedEngine]:
    engine = ScriptedEngine(script, words)
    return PolicyActor(PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))), engine


def says(text: str, words: PreTrainedTokenizerFast) -> Actor:
    return actor(lambda prompt, row, seed: text, words)[0]


class Drawn(Sokoban):
    """Without rows of characters."""

    def picture(self) -> tuple[str, ...]:
        return ()

    def draw(self) -> Drawing:
        return draw_panels("Sokoban", [Panel("board", "\n".join(super().picture()))])


async def test_a_world_that_only_draws_itself_has_its_drawings(words: PreTrainedTokenizerFast, board: Task) -> None:
    actors = {"tool": says(SOLVED, words), "plan": says("R", words)}
    result = await play(Drawn(), board, actors, seed=0)
    assert len(result.pictures) == 3
    assert sum(message["tokens"] for message in result.messages) == result.tokens > 0
    first, *_, last = result.pictures
    assert isinstance(first, dict) and first["svg"].startswith("<svg") and "[" not in first["text"]
    assert isinstance(last, dict) and last != first
    (kept,) = episode_tree(json.loads(json.dumps(asdict(result))))["pictures"][:1]  # what a page shows
    assert kept == first
    assert (await play(Drawn(), board, actors, 0, drawings=False)).pictures == []
    many = await evaluate(Drawn(), [board] * (DRAWN + 1), actors, 0)
    assert [bool(each.pictures) for each in many] == [True] * DRAWN + [False]


async def test_an_episode_by_hand(words: PreTrainedTokenizerFast, board: Task) -> None:
    world = Sokoban()
    before = world.state_key()
    result = await play(world, board, {"tool": says(SOLVED, words), "plan": says("R", words)}, seed=0)
    assert (result.task_id, result.success, result.turns) == ("board", True, 2)
    assert [(m["turn"], m["agent"], m["said"]) for m in result.messages] == [
        (0, "tool", SOLVED),
        (0, "plan", "R"),
        (1, "tool", SOLVED),
        (1, "plan", "R"),
    ]
    # Four messages of 6, 1, 6, 1 words and their ends.
    assert (result.tokens, result.env_steps) == (7 + 2 + 7 + 2, 4)
    assert result.prompt_tokens > result.tokens
    assert result.messages[0]["saw"] == "walls box 2,2 goal 2,4 last start"
    assert result.messages[1]["saw"].endswith(f"proposal {SOLVED} check goal")
    assert [picture[2] for picture in result.pictures] == ["#@$ .#", "# @$.#", "#  @*#"]
    assert [m["team"] for m in result.messages] == [1, 0, 0, 1]
    assert [m["local"] for m in result.messages] == pytest.approx([0.1, 0.05, 0, 0.05])
    # Every message carries the world's numbers.  The second proposal names a box that has moved on.
    assert [m["blocked"] for m in result.messages] == [False, False, True, False]
    assert world.state_key() == before  # the prototype was not played


async def test_silent_agents_change_nothing(words: PreTrainedTokenizerFast, board: Task) -> None:
    silent = ActorFactory({}).actor(SILENCE, "own")
    result = await play(Sokoban(), board, {"tool": says(SOLVED, words), "plan": silent}, seed=0)
    assert (result.success, result.turns, len(result.messages)) == (False, 4, 8)
    assert {m["said"] for m in result.messages if m["agent"] == "plan"} == {""}
    assert not any(m["malformed"] for m in result.messages)
    alone = await play(Sokoban(), board, {"tool": silent, "plan": says("R R", words)}, seed=0)
    assert (alone.success, alone.turns) == (True, 1)
    assert alone.messages[1]["saw"].endswith("proposal none check ok")


async def test_echo_executes_the_last_message_of_the_other(words: PreTrainedTokenizerFast, board: Task) -> None:
    result = await play(Sokoban(), board, {"tool": says("R", words), "plan": EchoActor(of="tool")}, seed=0)
    assert [m["said"] for m in result.messages] == ["R"] * 4
    assert (result.success, result.turns) == (True, 2)


async def test_echo_of_an_agent_without_a_message_is_empty(words: PreTrainedTokenizerFast, board: Task) -> None:
    result = await play(Sokoban(), board, {"tool": EchoActor(of="plan"), "plan": says("L", words)}, seed=0)
    assert [m["said"] for m in result.messages[:3]] == ["", "L", "L"]


async def test_every_message_is_one_request_with_its_own_seed(words: PreTrainedTokenizerFast, board: Task) -> None:
    mind, engine = actor(lambda prompt, row, seed: "", words)
    for seed in (0, 0, 1):
        await play(Sokoban(), board, {"tool": mind, "plan": mind}, seed)
    assert all(request.n == 1 for request in engine.requests)
    first, again, other = (engine.requests[i : i + 8] for i in (0, 8, 16))
    assert first == again
    assert len({request.seed for request in first + other}) == 16


async def test_evaluation_plays_each_task_once_in_order(words: PreTrainedTokenizerFast) -> None:
    world = PlanPath()
    tasks = world.tasks("test", 5, 0)
    mind, _ = actor(lambda prompt, row, seed: "UDLR"[seed % 4], words)
    results = await evaluate(world, tasks, {"tool": mind, "plan": mind}, seed=3)
    assert [result.task_id for result in results] == [task.task_id for task in tasks]
    ended: list[str] = []
    await evaluate(world, tasks, {"tool": mind, "plan": mind}, 3, lambda result: ended.append(result.task_id))
    assert sorted(ended) == sorted(task.task_id for task in tasks)
    assert results[2] == await play(world, tasks[2], {"tool": mind, "plan": mind}, seed=3)


async def test_a_person_sees_the_prompt_and_writes_the_message(words: PreTrainedTokenizerFast, board: Task) -> None:
    seen = []

    def ask(agent: str, prompt: Sequence[Message]) -> str:
        seen.append((agent, prompt[-1]["content"]))
        return "R R"

    result = await play(Sokoban(), board, {"tool": says(SOLVED, words), "plan": HumanActor(ask)}, seed=0)
    assert result.success and seen == [("plan", result.messages[1]["saw"])]


async def test_every_step_is_shown_as_it_happens(words: PreTrainedTokenizerFast, board: Task) -> None:
    steps: list[tuple[int, int, int, bool]] = []

    def on_step(env: TeamEnv, result: EpisodeResult) -> None:
        steps.append((env.turn, len(result.messages), len(result.pictures), result.success))

    await play(Sokoban(), board, {"tool": says(SOLVED, words), "plan": says("R", words)}, 0, on_step)
    assert steps == [(0, 0, 1, False), (0, 1, 1, False), (1, 2, 2, False), (1, 3, 2, False), (2, 4, 3, True)]
