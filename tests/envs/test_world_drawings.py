"""What the drawings of worlds of words show, of episodes by hand; the answer only at the end."""

from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.text import Text

from troupe.envs.base import TeamEnv
from troupe.envs.code import Code, MicroCode
from troupe.envs.code.micro import Program
from troupe.envs.code.problem import Check, Problem
from troupe.envs.code_collab import CodeCollab, MicroCollab
from troupe.envs.couplet.world import Couplet, Half
from troupe.envs.drawing import COLOURS, SVG, check_svg
from troupe.envs.math.arithmetic import Arithmetic
from troupe.envs.math.ensemble import Ensemble
from troupe.envs.search import FactSearch, QuestionSearch
from troupe.envs.search.index import Index, Passage
from troupe.envs.signalling.world import Signalling
from troupe.envs.writing import GeneratedPosts, Writing
from troupe.experience import Task
from troupe.sandbox import LocalSandbox

STORY = {"question": "bob:= 17 plus ann ; ann:= 34 ; ask bob", "answer": "51"}
TONES = {page: tone for tone, (page, _) in COLOURS.items()}
NASTY = '</text><script>alert("1")</script> [red]x[/red] [/] ]]> &amp; \x1b[31m \ud800 \\[ \u202e <answer>[b]</answer>'
TOTAL = Problem("total", "Sum it.", (Check("[[1, 2]]", "3"), Check("[[]]", "0")), function="total")
HALVES = {
    "first": Half(("river", "stone"), ("moon", "night", "rain")),
    "second": Half(("garden", "tower"), ("day", "spoon", "plain")),
}


def begin(world: TeamEnv, **data: Any) -> Any:
    world.reset(Task("by-hand", "test", data))
    return world


def seen(world: TeamEnv) -> str:
    """The drawing's lines, the same in both forms; checked for pages."""
    drawing = world.draw()
    assert drawing is not None
    check_svg(drawing.svg)
    texts = [
        (each.text or "").replace("\N{NO-BREAK SPACE}", " ")
        for each in ElementTree.fromstring(drawing.svg).iter(f"{{{SVG}}}text")
    ]
    lines = [line.removeprefix("┃ ") for line in Text.from_markup(drawing.text).plain.split("\n")]
    assert texts == [line for line in lines if line]
    return "\n".join(lines)


def tones(world: TeamEnv) -> list[str]:
    drawing = world.draw()
    assert drawing is not None
    return [TONES[bar.attrib["fill"]] for bar in ElementTree.fromstring(drawing.svg).iter(f"{{{SVG}}}rect")]


async def test_code_collaboration(programs: LocalSandbox) -> None:
    world = begin(MicroCollab(programs, horizon=2), steps=(("+=", "3"), ("*=", "4"), ("-=", "2")))
    assert seen(world) == "task\nx += 3 ; x *= 4 ; x -= 2"
    aux = "def aux ( x ) : x += 3 ; return x"
    await world.step({"aux": aux, "main": "def main ( x ) : x = aux ( x ) ; x -= 2 ; return x"})
    shown = seen(world)
    assert f"\naux\n{aux}\nmain\n" in shown and "1.5 of 4 points" in shown and "tests 0 of 5 passed" in shown
    assert "failed: main(11) is 54, but it gave 12" in shown and tones(world)[-1] == "partly"
    await world.step({"aux": aux, "main": "def main ( x ) : x = aux ( x ) ; x *= 4 ; x -= 2 ; return x"})
    assert "4 of 4 points" in seen(world) and "failed" not in seen(world) and tones(world)[-1] == "good"


async def test_code_collaboration_in_sequence(programs: LocalSandbox) -> None:
    world = begin(MicroCollab(programs, order="sequential"), steps=(("+=", "3"), ("*=", "4"), ("-=", "2")))
    await world.step({"aux": "what?"})
    assert seen(world).endswith("aux, not judged\nnone could be read")


async def test_writing() -> None:
    world = begin(Writing(), article="anchor bridge candle desert feather garden")
    await world.step({"concise": "the anchor bridge", "detailed": "then the anchor bridge candle of"})
    assert seen(world).split("\n")[:-2] == [
        *("article", "anchor bridge candle desert feather garden"),
        *("concise", "the anchor bridge", "detailed", "then the anchor bridge candle of"),
        "2.76 of 3 points",
    ]
    assert "structure 0.5, length 1" in seen(world) and tones(world) == ["neutral"] * 3 + ["good"]
    draft = begin(Writing(order="sequential"), article="anchor bridge candle desert feather garden")
    await draft.step({"concise": "the anchor"})
    assert seen(draft).endswith("concise, of this turn\nthe anchor")


async def test_search() -> None:
    world = QuestionSearch(index="none", train=[], horizon=2, passages=1)
    world.index = Index.of([Passage("Babbage", "He was born in London."), Passage("Ada", "A countess.")])
    begin(world, question="Where was Babbage born?", answers=["London", "London, England"], supports=["babbage"])
    await world.step({"searcher": "<search>Ada countess</search>"})
    await world.step({"reasoner": "<ask>Babbage born</ask>"})
    assert seen(world).split("\n")[2:] == [
        *("query of turn 1", "Ada countess", "Ada", "A countess.", "asked again", "Babbage born")
    ]
    await world.step({"searcher": "<search>Babbage born</search>"})
    assert tones(world)[-1] == "good" and "London, England" not in seen(world)
    await world.step({"reasoner": "<answer>London town</answer>"})
    assert seen(world).endswith("answer\nLondon town\naccepted\nLondon\nLondon, England")
    assert tones(world)[-2] == "partly"


@pytest.mark.parametrize(("answer", "tone"), [("say 5 1", "good"), ("say 5 2", "bad")])
async def test_mathematics(programs: LocalSandbox, answer: str, tone: str) -> None:
    world = begin(Arithmetic(sandbox=programs), **STORY)
    await world.step({"tool": "( bob:= 17 + ( ann:= 34 ) )"})
    assert seen(world).split("\n")[2:] == ["tool", "( bob:= 17 + ( ann:= 34 ) )", "its output", "5 1"]
    await world.step({"reasoner": answer})
    words = "right: the answer is" if tone == "good" else "wrong: the right answer is"
    assert seen(world).endswith(f"reasoner\n{answer}\n{words}\n51") and tones(world)[-1] == tone


async def test_mathematics_alone(programs: LocalSandbox) -> None:
    world = begin(Arithmetic(sandbox=programs, team="solo", horizon=3), **STORY)
    await world.step({"solo": "what?"})
    await world.step({"solo": "17 +"})
    await world.step({"solo": "say 5 1"})
    assert seen(world).split("\n")[2:] == [
        *("solo", "no program could be read", "solo", "17 +", "its output", "error", "solo", "say 5 1"),
        *("right: the answer is", "51"),
    ]
    assert tones(world) == ["neutral", "bad", "neutral", "bad", "neutral", "good"]


@pytest.mark.parametrize("decision", ["judge", "vote"])
async def test_a_team_of_many(programs: LocalSandbox, decision: Any) -> None:
    world = begin(Ensemble(pair=Arithmetic(sandbox=programs, horizon=1), size=5, decision=decision), **STORY)
    assert tones(world) == ["neutral"]
    last = {"judge": "say 5 1", "reasoner_3": "say 5 1"}
    texts = {"tool_1": "17 + 34", "tool_2": "?", "reasoner_1": "say 5 1", "reasoner_2": "hm"} | last
    while acting := world.next_agents():
        assert "the answer is" not in seen(world)
        await world.step({agent: texts[agent] for agent in acting})
    assert seen(world).split("\n")[2:10] == [
        *("tool_1", "17 + 34", "its output", "5 1", "tool_2", "no program could be read"),
        *("reasoner_1", "51"),
    ]
    third = "judge\nsay 5 1" if decision == "judge" else "reasoner_3\n51"
    assert seen(world).endswith(f"reasoner_2\nnone could be read\n{third}\nright: the answer is\n51")
    assert tones(world)[-1] == "good"


async def test_code(programs: LocalSandbox) -> None:
    world = begin(MicroCode(programs, horizon=1), program=Program(("b", "c", "a"), ("*", "-"), True))
    assert seen(world) == "problem\n( b ? c ) ? a"
    await world.step({"tester": "1 2 3 is 4 ; 2 3 1 is 5"})
    await world.step({"coder": "( b * c ) - a"})
    assert seen(world).split("\n") == [
        *("problem", "( b ? c ) ? a", "( b times c ) minus a", "program", "( b * c ) - a"),
        *("test 1", "1 2 3 -> 4", "it gave -1", "test 2", "2 3 1 -> 5", "hidden tests", "100% passed"),
    ]
    assert tones(world) == ["neutral", "neutral", "bad", "good", "good"]


async def test_couplet() -> None:
    world = begin(Couplet(), **HALVES)
    await world.step({"first": "the river under stone moon", "second": "a garden with tower day"})
    assert seen(world).split("\n")[6:] == [
        *("first", "the river under stone moon", "second", "a garden with tower day"),
        *("score 0.667", "subjects 1, length 1, rhyme 0"),
    ]
    assert seen(world).startswith("first's part\nsubjects river stone\nrhymes moon night rain\n")
    assert tones(world)[-1] == "partly"


async def test_signalling() -> None:
    world = begin(Signalling(length=4), target=("red", "blue", "red", "white"))
    await world.step({"sender": "ba ne ba tu"})
    assert seen(world) == "colours\n4, which the sender alone sees\nmessage of this turn\nba ne ba tu"
    await world.step({"receiver": "red blue red black"})
    assert seen(world).split("\n")[2:] == ["message", "ba ne ba tu", "guess, 75% right", "red blue red black"]
    await world.step({"sender": "ba ne ba tu"})
    await world.step({"receiver": "red blue red white"})
    assert seen(world).split("\n")[:2] == ["colours", "red blue red white"] and tones(world)[-1] == "good"


WORLDS: Mapping[str, Callable[[LocalSandbox], tuple[TeamEnv, dict[str, Any]]]] = {
    "code_collab": lambda sandbox: (CodeCollab(sandbox, None, horizon=2), {"problem": TOTAL}),  # type: ignore[arg-type]
    "code": lambda sandbox: (Code(sandbox, None, horizon=2), {"problem": TOTAL}),  # type: ignore[arg-type]
    "writing": lambda sandbox: (Writing(kind="tldr", train=[GeneratedPosts()]), {"article": NASTY}),
    "search": lambda sandbox: (FactSearch(), FactSearch().tasks("train", 1, 0)[0].data),
    "math": lambda sandbox: (Arithmetic(sandbox=sandbox, horizon=2), {"question": NASTY, "answer": "1"}),
    "couplet": lambda sandbox: (Couplet(), HALVES),
    "signalling": lambda sandbox: (Signalling(length=1), {"target": ("red",)}),
}


@pytest.mark.parametrize("name", WORLDS)
async def test_texts_of_models_are_no_markup(programs: LocalSandbox, name: str) -> None:
    made, data = WORLDS[name](programs)
    world = begin(made, **data)
    program = f"```python\ndef total(xs):\n    return '''{NASTY}'''\n```"
    for text in (program, NASTY, f"```python\ndef aux():\n    return '''{NASTY}'''\n```", f"say 1 {NASTY}"):
        if acting := world.next_agents():
            await world.step(dict.fromkeys(acting, text))
        assert seen(world)
