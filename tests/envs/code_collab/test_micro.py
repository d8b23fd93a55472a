"""Three steps at laptop scale: tasks, prompts, demonstrators, the contract."""

from collections.abc import Callable
from random import Random
from typing import Any, get_args

import pytest

from troupe.envs.base import Skill
from troupe.envs.code_collab import MicroCollab
from troupe.envs.code_collab.micro import INPUTS, MODES, compute, vocabulary
from troupe.envs.testing import check_world
from troupe.experience import Split
from troupe.sandbox import LocalSandbox

Begin = Callable[..., MicroCollab]

AUX, MAIN = "def aux ( x ) : x += 3 ; x *= 4 ; return x", "def main ( x ) : x = aux ( x ) ; x -= 2 ; return x"
FIRST = "def aux ( x ) : x += 3 ; return x"
AFTER_FIRST = "def main ( x ) : x = aux ( x ) ; x *= 4 ; x -= 2 ; return x"
ALONE = "def main ( x ) : x += 3 ; x *= 4 ; x -= 2 ; return x"


@pytest.mark.parametrize(
    ("aux", "main", "points"),
    [
        (AUX, MAIN, 4),
        (FIRST, AFTER_FIRST, 4),
        ("def aux ( x ) : x -= 2 ; return x", "def main ( x ) : x += 3 ; x *= 4 ; x = aux ( x ) ; return x", 4),
        (FIRST, MAIN, 1.5),  # they do not agree
        (AUX, ALONE, 2.5),  # main alone
        (AUX, "def main ( x ) : aux ( x ) ; x += 3 ; x *= 4 ; x -= 2 ; return x", 2.5),  # a useless call
        (AUX.replace("return", "x -= 2 ; return"), "def main ( x ) : x = aux ( x ) ; return x", 3),  # a wrapper
        (AUX.replace("return", "x -= 2 ; return"), "def main ( x ) : return aux ( x )", 3),
        ("", MAIN, 1.1),
        (AUX, "", 0.4),
        (AUX, "def main ( x ) : x = aux ( x ; return x", 1.0),
        (f"{AUX} y", MAIN, 0.6 + 0.5),  # a word outside of the lexicon
        (AUX, "def main ( x ) : return main ( x )", 1.5),  # endless recursion
    ],
)
async def test_points(micro: Begin, aux: str, main: str, points: float) -> None:
    world = micro()
    result = await world.step({"aux": aux, "main": main})
    assert result.team == pytest.approx(points)
    assert result.success == (result.info["tests"] == 1)


async def test_prompts(micro: Begin) -> None:
    world = micro(horizon=3, feedback="level_passed")
    task = "task += 3 *= 4 -= 2 mine"
    assert [message["content"] for message in world.observe("main")] == ["main code_collab", f"{task} none"]
    await world.step({"aux": FIRST, "main": "? ?"})
    assert world.observe("aux")[-1]["content"] == f"{task} {FIRST} syntax none passed none used none"
    assert world.observe("main")[-1]["content"] == f"{task} malformed syntax none passed none used none"
    await world.step({"aux": FIRST, "main": MAIN})
    assert world.observe("main")[-1]["content"] == f"{task} {MAIN} syntax all passed none used all"
    world = micro(horizon=2, feedback="passed", turn_reward="points")
    await world.step({"aux": AUX, "main": MAIN})
    assert world.observe("aux")[-1]["content"] == f"{task} {AUX} passed all"
    world = micro(horizon=2, team="solo")
    await world.step({"solo": f"{FIRST} | {MAIN}"})
    assert world.observe("solo")[-1]["content"] == f"{task} {FIRST} | {MAIN}"


async def test_one_agent_alone_writes_both(micro: Begin) -> None:
    assert (await micro(team="solo").step({"solo": f"{AUX} | {MAIN}"})).team == 4
    for text in (f"{AUX} {MAIN}", f"{AUX} | {MAIN} |"):
        assert (await micro(team="solo").step({"solo": text})).team == 0


def test_tasks_are_split_by_their_function(sandbox: LocalSandbox) -> None:
    world, functions = MicroCollab(sandbox), {}
    for split in get_args(Split):
        for task in world.tasks(split, 200, 0):
            values = [[compute(task.data["steps"][:n], x) for x in INPUTS] for n in range(4)]
            assert len({tuple(row) for row in values}) == 4  # no step undoes others
            assert functions.setdefault(tuple(values[-1]), split) == split


@pytest.mark.parametrize("skill", get_args(Skill))
@pytest.mark.parametrize("team", ["pair", "solo"])
async def test_demonstrators(sandbox: LocalSandbox, skill: Skill, team: Any) -> None:
    world, rng, words, complete = MicroCollab(sandbox, team=team), Random(0), set(vocabulary()), 0.0
    for task in world.tasks("train", 20 if skill == "novice" else 5, 0):
        world.reset(task)
        actions = {agent: world.demonstration(agent, rng, skill=skill) for agent in world.next_agents()}
        for agent, text in actions.items():
            seen = " ".join(message["content"] for message in world.observe(agent))
            assert {*seen.split(), *text.split()} <= words
        complete += (await world.step(actions)).info["complete"]
    assert {"expert": complete == 5, "novice": 1 <= complete <= 12, "flawed": complete == 0}[skill]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_the_contract_with_feedback(sandbox: LocalSandbox, mode: Any) -> None:
    await check_world(MicroCollab(sandbox, horizon=2, feedback=mode), tasks=1, team=(0, 4), local=(0, 0))


@pytest.mark.parametrize(
    ("aux", "edits"),
    [
        (AUX, (AUX, MAIN)),
        (FIRST, (FIRST, AFTER_FIRST)),
        (
            "def aux ( x ) : x -= 2 ; return x",
            ("def aux ( x ) : x -= 2 ; return x", "def main ( x ) : x += 3 ; x *= 4 ; x = aux ( x ) ; return x"),
        ),
        (AUX.replace("return", "x -= 2 ; return"), (AUX, MAIN)),  # main would be a wrapper
        ("def aux ( x ) : x += 9 ; return x", (AUX, MAIN)),
        ("no function", (AUX, MAIN)),
    ],
)
async def test_an_expert_makes_a_program_right_and_leaves_what_is_right(
    micro: Begin, aux: str, edits: tuple[str, str]
) -> None:
    world = micro(horizon=2, feedback="expert")
    await world.step({"aux": aux, "main": "def main ( x ) : return x"})
    own = aux if aux.startswith("def") else "malformed"
    assert world.observe("aux")[-1]["content"] == f"task += 3 *= 4 -= 2 mine {own} | {edits[0]}"
    assert world.observe("main")[-1]["content"].endswith(f"return x | {edits[1]}")
    result = await world.step({"aux": edits[0], "main": edits[1]})
    assert result.success and result.info["points"] == 4


async def test_an_expert_tells_one_agent_both_functions(micro: Begin) -> None:
    world = micro(horizon=2, team="solo", feedback="expert")
    assert "|" not in world.observe("solo")[-1]["content"]
    await world.step({"solo": f"{FIRST} | {MAIN}"})
    assert world.observe("solo")[-1]["content"].endswith(f"x -= 2 ; return x | {FIRST} | {AFTER_FIRST}")


def test_feedback_in_sentences_is_for_problems(sandbox: LocalSandbox) -> None:
    with pytest.raises(
        ValueError, match=r"env\.feedback=level_feedback is for published problems; .* level_passed, expert$"
    ):
        MicroCollab(sandbox, feedback="level_feedback")
    with pytest.raises(ValueError, match=r"env\.feedback=shout is unknown"):
        MicroCollab(sandbox, feedback="shout")  # type: ignore[arg-type]
