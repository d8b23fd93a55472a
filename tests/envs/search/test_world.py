"""Search: turns and views, rewards, one agent alone, demonstrators, refusals, the contract over an index."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest

from troupe.envs.base import Skill
from troupe.envs.search import FactSearch, QuestionSearch
from troupe.envs.search.fact_search import parse_question, value_of, words
from troupe.envs.search.index import AbsentIndexError
from troupe.envs.search.sources import SearchQuestion
from troupe.envs.testing import check_world
from troupe.envs.tool_calls import UNREADABLE, ToolFormat

from .conftest import HOPS, PLAIN, Fixed

Questions = Callable[..., QuestionSearch]
Facts = Callable[..., FactSearch]


# ---- published questions --------------------------------------------------------------------------------------------


async def test_two_searches_and_an_answer(questions: Questions) -> None:
    world = questions()
    first = await world.step({"searcher": "I look for her. <search>Lovelace engine</search>"})
    assert (first.team, first.local, first.info["shown"]) == (0.5, {"searcher": pytest.approx(0.6)}, 1)
    asked = await world.step({"reasoner": "Not yet. <ask>birthplace of Charles Babbage</ask>"})
    assert not asked.done and world.turn == 1
    system, user = world.observe("searcher")
    assert "search agent" in system["content"]
    assert user["content"].startswith(f"Question: {HOPS.text}\n\nSearch 1: Lovelace engine\n[1] Ada Lovelace: Ada")
    assert user["content"].endswith("The reasoner asks: birthplace of Charles Babbage")
    await world.step({"searcher": "<search>Babbage born</search>"})
    assert "<ask>" in world.observe("reasoner")[0]["content"]
    last = await world.step({"reasoner": "He was born there. <answer>the London.</answer>"})
    assert (last.team, last.done, last.success, last.local) == (1, True, True, {"reasoner": 1})
    assert last.info["exact_match"] == last.info["f1"] == 1


async def test_evidence_by_title_and_by_answer(questions: Questions) -> None:
    one = questions(passages=1)
    for query, team in (("Lovelace daughter", 0.5), ("Babbage born", 0.5), ("Thames", 0.0)):
        assert (await one.step({"searcher": f"<search>{query}</search>"})).team == team
        await one.step({"reasoner": "<ask>more</ask>"})
    plain = questions(PLAIN)
    result = await plain.step({"searcher": "<search>lord byron died</search>"})
    assert (result.team, result.local) == (1, {"searcher": 1})


async def test_f1_as_the_reward(questions: Questions) -> None:
    for metric, team in (("f1", 2 / 3), ("exact_match", 0.0)):
        world = questions(metric=metric)
        await world.step({"searcher": ""})
        result = await world.step({"reasoner": "<answer>London town</answer>"})
        assert result.team == pytest.approx(team) and result.done and not result.success
        assert result.local["reasoner"] == pytest.approx(0.2 + 0.8 * 2 / 3)


async def test_the_last_turn_needs_an_answer(questions: Questions) -> None:
    world = questions(horizon=1)
    await world.step({"searcher": "no tags"})
    assert "Search 1: none" in world.observe("reasoner")[-1]["content"]
    assert "<ask>" not in world.observe("reasoner")[0]["content"]
    result = await world.step({"reasoner": "<ask>more</ask>"})
    assert result.done and (result.team, result.local) == (0, {"reasoner": 0})


async def test_a_query_that_finds_nothing_is_said(questions: Questions) -> None:
    world = questions()
    result = await world.step({"searcher": "<search>zebra</search>"})
    assert (result.team, result.info["malformed"], result.info["shown"]) == (0, 0, 0)
    assert "Search 1: zebra\nNo passage has a word of it." in world.observe("reasoner")[-1]["content"]


@pytest.mark.parametrize("form", ["hermes", "llama"])
async def test_a_call_is_the_query_of_its_argument(questions: Questions, form: ToolFormat) -> None:
    world, plain = questions(tools=form, horizon=2), questions(horizon=2)
    offer = world.tools("searcher")
    assert offer is not None and plain.tools("searcher") is plain.tools("reasoner") is None
    assert "<search>" not in world.observe("searcher")[0]["content"]
    for query, shown in (
        ("Lovelace engine", "Search 1: Lovelace engine\n[1] Ada Lovelace: Ada"),
        ("zebra", "Search 2: "),
    ):
        called = await world.step({"searcher": offer.write("search", query=query)})
        written = await plain.step({"searcher": f"<search>{query}</search>"})
        assert (called.team, called.local) == (written.team, written.local)
        assert (called.info["tool_calls"], called.info["malformed_calls"]) == (1, 0)
        report = world.tool_result("searcher")
        assert report is not None and report.startswith(shown)
        assert report in world.observe("reasoner")[-1]["content"] == plain.observe("reasoner")[-1]["content"]
        assert world.tool_result("reasoner") is None
        await world.step({"reasoner": "<ask>more</ask>"})
        await plain.step({"reasoner": "<ask>more</ask>"})


async def test_one_agent_calls_or_answers(questions: Questions) -> None:
    world = questions(team="solo", tools="hermes", horizon=3)
    offer = world.tools("solo")
    assert offer is not None
    await world.step({"solo": offer.write("search", query=7)})
    assert world.tool_result("solo") == UNREADABLE
    await world.step({"solo": offer.write("search", query="Babbage born")})
    report = world.tool_result("solo")
    assert report is not None and report.startswith("Search 2: Babbage born\n[1] Charles Babbage")
    result = await world.step({"solo": "<answer>London</answer>"})
    assert result.success and world.tool_result("solo") is None


async def test_one_agent_searches_and_answers(questions: Questions) -> None:
    world = questions(team="solo", horizon=2, passages=1)
    search = await world.step({"solo": "<search>Babbage born</search>"})
    assert (search.team, search.done) == (0.25, False)
    assert world.observe("solo")[-1]["content"].endswith("This is the last message: give the answer.")
    answer = await world.step({"solo": "<answer>London</answer>"})
    assert (answer.team, answer.success) == (0.75, True)


async def test_long_passages_are_cut(questions: Questions) -> None:
    world = questions(shown_chars=10, passages=1)
    await world.step({"searcher": "<search>Thames</search>"})
    assert world.observe("reasoner")[-1]["content"].endswith("[1] London: London lie")


@pytest.mark.parametrize(("team", "tools"), [("pair", "hermes"), ("solo", None)])
async def test_the_contract_over_an_index(team: Any, tools: Any, index_folder: str) -> None:
    asked = [SearchQuestion(f"{PLAIN.text} {n}", PLAIN.answers) for n in range(60)]
    world = QuestionSearch(index=index_folder, train=[Fixed(*asked)], team=team, horizon=2, passages=1, tools=tools)

    def oracle(env: Any, agent: str, rng: Random) -> str:
        searches = agent == "searcher" or (agent == "solo" and env.turn == 0)
        return "<search>byron died</search>" if searches else "<answer>Missolonghi</answer>"

    await check_world(world, tasks=1, oracle=oracle)
    opened = await world.open()
    assert opened["passages"] == 5 and opened["questions/train"] == len(world.splits.items["train"])


def test_no_index_is_said_before_anything_is_read(tmp_path: Path) -> None:
    world = QuestionSearch(index=str(tmp_path / "none"), train=[Fixed()])
    with pytest.raises(AbsentIndexError, match=r"^env\.index=.*none: there is no index; make one with `[^\n]*`$"):
        world.tasks("train", 1, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": 0}, "env.horizon"),
        ({"team": "trio"}, "env.team=trio is unknown"),
        ({"metric": "bleu"}, "env.metric=bleu is unknown; search knows exact_match, f1"),
        ({"passages": 0}, "env.passages must be at least 1"),
        ({"local_share": 2.0}, "env.local_share"),
        ({"query_words": 0}, "env.query_words"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], message: str, index_folder: str) -> None:
    for make in (FactSearch, lambda **given: QuestionSearch(index=index_folder, train=[Fixed()], **given)):
        with pytest.raises(ValueError, match=message):
            make(**settings)
    with pytest.raises(ValueError, match=r"env\.people must be in"):
        FactSearch(people=1)


# ---- facts ----------------------------------------------------------------------------------------------------------


async def test_facts_of_two_hops(facts: Facts) -> None:
    world = facts()
    assert [message["content"] for message in world.observe("searcher")] == ["searcher search", "ask ann boss city"]
    query = await world.step({"searcher": "find ann boss"})
    assert (query.team, query.local) == (0.5, {"searcher": pytest.approx(0.2 * (0.2 + 0.8 / 2))})
    seen = "ask ann boss city find ann boss seen ann boss bob ; cid boss ann ;"
    assert world.observe("reasoner")[-1]["content"] == seen
    await world.step({"reasoner": "again"})
    await world.step({"searcher": "find bob city"})
    assert world.observe("reasoner")[-1]["content"] == f"{seen} find bob city seen bob city oslo ; ann city rome ;"
    answer = await world.step({"reasoner": "say oslo"})
    assert answer.success and (answer.team, answer.local) == (1, {"reasoner": pytest.approx(0.2)})


@pytest.mark.parametrize("text", ["find", "ann boss", "find ann xyz", "find ann boss bob city", "FIND ann boss", "say"])
async def test_a_malformed_query_of_facts(facts: Facts, text: str) -> None:
    world = facts()
    assert (await world.step({"searcher": text})).info["malformed"] == 1
    assert world.observe("reasoner")[-1]["content"] == "ask ann boss city find none seen none"


@pytest.mark.parametrize(
    "text", ["oslo", "say", "say oslo oslo", "say oslo rome", "again again", "say xyz", "again say"]
)
async def test_a_malformed_answer_of_facts(facts: Facts, text: str) -> None:
    world = facts()
    await world.step({"searcher": "find ann boss"})
    result = await world.step({"reasoner": text})
    assert (result.info["malformed"], result.team, result.local) == (1, 0, {"reasoner": 0})


def test_no_question_is_in_two_splits() -> None:
    world = FactSearch()
    asked = {
        split: {task.data["question"] for task in world.tasks(split, 60, 0)}
        for split in ("train", "validation", "test")
    }
    assert not asked["train"] & (asked["validation"] | asked["test"]) and not asked["validation"] & asked["test"]
    (task,) = world.tasks("test", 1, 1)
    values = {fact.title: value_of(fact) for fact in task.data["facts"]}
    question = parse_question(task.data["question"])
    assert task.data["answers"] == (values[question.second(values[question.first])],)
    assert len(values) == len(task.data["facts"]) == 48
    assert all(value != title.split()[0] for title, value in values.items())  # nobody is their own boss


@pytest.mark.parametrize("skill", get_args(Skill))
@pytest.mark.parametrize("team", ["pair", "solo"])
async def test_demonstrators(skill: Skill, team: Any) -> None:
    world, rng, known, successes = FactSearch(team=team), Random(0), set(words()), 0
    for task in world.tasks("train", 60, 0):
        world.reset(task)
        while acting := world.next_agents():
            (agent,) = acting
            text = world.demonstration(agent, rng, skill=skill)
            seen = " ".join(message["content"] for message in world.observe(agent))
            assert {*seen.split(), *text.split()} <= known
            result = await world.step({agent: text})
            assert not result.info["malformed"]
        successes += result.success
    assert {"expert": successes == 60, "novice": successes < 20, "flawed": successes < 20}[skill]
