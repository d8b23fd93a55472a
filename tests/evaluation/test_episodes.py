"""Episodes with given actors, and the numbers that sum them up."""

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.evaluation.episodes import (
    Actor,
    Echo,
    PolicyActor,
    Result,
    Silence,
    evaluate,
    play,
    summarise,
    summarise_samples,
)
from troupe.evaluation.statistics import wilson
from troupe.experience import Sampling, Task
from troupe.rollout.engines.scripted import Script, ScriptedEngine
from troupe.rollout.policy_client import PolicyClient

SOLVED = "box 2,2 R 2,3 R 2,4"


def actor(script: Script, words: PreTrainedTokenizerFast) -> tuple[PolicyActor, ScriptedEngine]:
    engine = ScriptedEngine(script, words)
    return PolicyActor(PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))), engine


def says(text: str, words: PreTrainedTokenizerFast) -> Actor:
    return actor(lambda prompt, row, seed: text, words)[0]


# ---- episodes -------------------------------------------------------------------------------------------------------


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


async def test_silence_leaves_the_world_as_it_is(words: PreTrainedTokenizerFast, board: Task) -> None:
    result = await play(Sokoban(), board, {"tool": says(SOLVED, words), "plan": Silence()}, seed=0)
    assert (result.success, result.turns, len(result.messages)) == (False, 4, 8)
    assert {m["said"] for m in result.messages if m["agent"] == "plan"} == {""}
    assert not any(m["malformed"] for m in result.messages)
    alone = await play(Sokoban(), board, {"tool": Silence(), "plan": says("R R", words)}, seed=0)
    assert (alone.success, alone.turns) == (True, 1)
    assert alone.messages[1]["saw"].endswith("proposal none check ok")


async def test_echo_carries_out_what_it_heard(words: PreTrainedTokenizerFast, board: Task) -> None:
    result = await play(Sokoban(), board, {"tool": says("R", words), "plan": Echo(of="tool")}, seed=0)
    assert [m["said"] for m in result.messages] == ["R"] * 4
    assert (result.success, result.turns) == (True, 2)


async def test_echo_of_one_who_has_not_spoken_is_silent(words: PreTrainedTokenizerFast, board: Task) -> None:
    result = await play(Sokoban(), board, {"tool": Echo(of="plan"), "plan": says("L", words)}, seed=0)
    assert [m["said"] for m in result.messages[:3]] == ["", "L", "L"]


async def test_a_policy_is_asked_once_a_message_with_a_seed_of_its_own(
    words: PreTrainedTokenizerFast, board: Task
) -> None:
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
    heard: list[str] = []
    await evaluate(world, tasks, {"tool": mind, "plan": mind}, 3, lambda result: heard.append(result.task_id))
    assert sorted(heard) == sorted(task.task_id for task in tasks)
    assert results[2] == await play(world, tasks[2], {"tool": mind, "plan": mind}, seed=3)


# ---- numbers --------------------------------------------------------------------------------------------------------


def message(agent: str, team: float, local: float, **info: float) -> dict[str, object]:
    return {"turn": 0, "agent": agent, "saw": "", "said": "", "team": team, "local": local, **info}


def test_a_summary_by_hand() -> None:
    results = [
        Result("a", True, 1, [message("tool", 1, 0.1, malformed=0, blocked=0), message("plan", 1, 0.1, malformed=0)]),
        Result("b", False, 4, [message("tool", 0, 0.0, malformed=1, blocked=1), message("plan", 0, 0.05, malformed=1)]),
        Result("c", True, 2, [message("tool", 0, 0.3, malformed=0, blocked=1), message("plan", 1, 0.0, malformed=0)]),
        Result("d", True, 3, [message("tool", 1, 0.0, malformed=0, blocked=0)], 10, 20, 7),
    ]
    summary = summarise(results)
    low, high = summary.pop("success_ci95")
    assert summary == {
        "success": 0.75,
        "turns": 2.5,
        "episodes": 4,
        "tokens": 10,
        "prompt_tokens": 20,
        "env_steps": 7,
        "tool/reward": pytest.approx((1.1 + 0 + 0.3 + 1) / 4),
        "tool/malformed": 0.25,
        "tool/blocked": 0.5,
        "plan/reward": pytest.approx((1.1 + 0.05 + 1) / 3),
        "plan/malformed": pytest.approx(1 / 3),
    }
    assert (low, high) == wilson(3, 4)


def test_a_summary_of_samples_by_hand() -> None:
    wins = {"a": (1, 1, 0, 1), "b": (0, 0, 0, 0), "c": (1, 0, 0, 0), "d": (1, 1, 1, 1)}
    samples = [[Result(task, bool(row[i]), 2 * i, []) for task, row in wins.items()] for i in range(4)]
    summary = summarise_samples(samples)
    assert (summary["success"], summary["success_ci95"]) == (0.75, list(wilson(3, 4)))
    assert (summary["tasks"], summary["samples"], summary["episodes"], summary["turns"]) == (4, 4, 16, 3)
    assert summary["avg@4"] == (0.75 + 0 + 0.25 + 1) / 4
    # Of 6 pairs: a fails in none, b in all, c in the 3 without its success.
    assert summary["pass@2"] == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert summary["pass@4"] == 0.75
    for name in ("avg@4", "pass@2", "pass@4"):
        low, high = summary[f"{name}_ci95"]
        assert 0 <= low < summary[name] < high <= 1
    assert {key for key in summary if "@" in key and "ci95" not in key} == {"avg@4", "pass@2", "pass@4"}


def test_one_sample_has_no_pass_at_k_and_three_have_two_and_three() -> None:
    task = [Result("a", True, 1)]
    assert not [key for key in summarise_samples([task]) if "@" in key]
    three = summarise_samples([task] * 3)
    assert [key for key in three if "@" in key and "ci95" not in key] == ["avg@3", "pass@2", "pass@3"]


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [  # Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # By hand, z = 1.95996: (8 + z^2 / 2 -+ z sqrt(8 * 2 / 10 + z^2 / 4)) / (10 + z^2)
        #   = (9.92073 -+ 1.95996 * 1.60011) / 13.84146
        (8, 10, 0.4902, 0.9433),
    ],
)
def test_wilsons_interval(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
