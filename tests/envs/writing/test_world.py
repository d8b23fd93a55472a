"""Writing: turns and views, one agent alone, rewards, demonstrators, data sets, refusals."""

import json
from pathlib import Path
from random import Random
from typing import Any, get_args

import pytest

from troupe.envs.base import Skill
from troupe.envs.datasets import DataError
from troupe.envs.writing import ArticleSource, GeneratedPosts, Writing
from troupe.envs.writing.articles import small_words
from troupe.experience import Split, Task

WORDS = "anchor bridge candle desert feather garden"
FITTING = {"concise": "the anchor bridge", "detailed": "then the anchor bridge candle of"}
POST = "SUBREDDIT: r/cats\n\nTITLE: My cat {n}\n\nPOST: It sleeps on my old keyboard all day.\n\nTL;DR:"


def begin(**settings: Any) -> Writing:
    world = Writing(**settings)
    world.reset(Task("by-hand", "test", {"article": WORDS}))
    return world


def tables(folder: Path, kind: str, rows: int = 60) -> dict[str, list[ArticleSource]]:
    """Files of the schema of trl-lib/tldr and OpenMLRL/arXiv_abstract."""
    cells = {
        "tldr": lambda n: {"prompt": POST.format(n=n), "completion": " It sleeps."},
        "arxiv": lambda n: {"article_id": f"{n}", "abstract_text": f"We study cats, part {n}.", "token_count": 5},
    }[kind]
    (folder / "train.jsonl").write_text("\n".join(json.dumps(cells(n)) for n in range(rows)))
    (folder / "test.jsonl").write_text("\n".join(json.dumps(cells(n)) for n in range(rows - 5, rows + 5)))
    return {split: [ArticleSource(kind, str(folder / f"{split}.jsonl"))] for split in ("train", "test")}


# ---- turns, views, rewards ------------------------------------------------------------------------------------------


async def test_two_fitting_lines_are_a_success() -> None:
    world = begin()
    assert world.next_agents() == ("concise", "detailed")
    assert [message["content"] for message in world.observe("detailed")] == [
        "detailed writing",
        f"article {WORDS} mine none theirs none",
    ]
    result = await world.step(FITTING)
    assert (result.team, result.local) == (pytest.approx(2.76), {"concise": 0, "detailed": 0})
    assert (result.done, result.success) == (True, True)
    assert result.info["structure"] + result.info["length"] + result.info["words"] == 2


async def test_a_second_turn_sees_both_texts_and_earns_what_it_betters() -> None:
    world = begin(horizon=2)
    first = await world.step({"concise": "the anchor bridge", "detailed": "anchor bridge garden"})
    assert not first.done
    assert world.observe("concise")[-1]["content"].endswith("mine the anchor bridge theirs anchor bridge garden")
    second = await world.step(FITTING)
    assert first.team + second.team == pytest.approx(2.76) and second.success
    world = begin(horizon=2)
    await world.step({"concise": "the anchor moonlight", "detailed": ""})
    assert world.observe("detailed")[-1]["content"].endswith("mine malformed theirs malformed")


async def test_what_is_not_about_the_article_may_count_less() -> None:
    """None of the other lines' content words is the article's; half of them are here."""
    elsewhere = {agent: text.replace("anchor", "river").replace("bridge", "stone") for agent, text in FITTING.items()}
    elsewhere["detailed"] = elsewhere["detailed"].replace("candle", "tower")
    for share, expected in ((0.0, 2.76), (0.5, 1.38), (1.0, 0.0)):
        assert (await begin(on_topic=share).step(elsewhere)).team == pytest.approx(expected)
        assert (await begin(on_topic=share).step(FITTING)).team == pytest.approx(2.76)


async def test_one_agent_alone_writes_both_texts() -> None:
    world = begin(team="solo")
    assert world.next_agents() == ("solo",)
    assert (await world.step({"solo": f"{FITTING['concise']} | {FITTING['detailed']}"})).success
    for text in (" ".join(FITTING.values()), "|".join([*FITTING.values(), "a"])):  # none or two marks
        assert (await begin(team="solo").step({"solo": text})).team == 0


SUMMARIES = "The cat sleeps on my old keyboard all day."
DETAILED = "My warm grey cat sleeps on this old keyboard every single day, although nobody here really wants that."


@pytest.mark.parametrize(
    ("mark", "words", "written"),
    [(None, "Write [PARAGRAPH_SPLIT] between", "[PARAGRAPH_SPLIT]"), ("\n\n", "Leave an empty line between", "\n\n")],
)
async def test_what_stands_between_two_summaries_of_one_agent(
    tmp_path: Path, mark: str | None, words: str, written: str
) -> None:
    world = Writing(kind="tldr", team="solo", mark=mark, **tables(tmp_path, "tldr"))
    for text, earns in (
        (f"{SUMMARIES}{written}{DETAILED}", True),
        (f"\n\n{SUMMARIES} {written} {DETAILED}\n", True),  # blanks around both do not count
        (f"{SUMMARIES}{written}{DETAILED}{written}{SUMMARIES}", False),
        (f"{SUMMARIES} {DETAILED}", False),
    ):
        world.reset(world.tasks("train", 1, 0)[0])
        assert words in world.observe("solo")[0]["content"]
        assert ((await world.step({"solo": text})).team > 2) is earns


def test_sentences_have_no_demonstrators(tmp_path: Path) -> None:
    assert begin().has_demonstrations
    assert not Writing(kind="tldr", **tables(tmp_path, "tldr")).has_demonstrations


# ---- reward hacking -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("skill", get_args(Skill))
@pytest.mark.parametrize("team", ["pair", "solo"])
async def test_demonstrators(skill: Skill, team: Any) -> None:
    world, rng, words, points = Writing(team=team, on_topic=1.0, horizon=2), Random(0), set(small_words()), []
    for task in world.tasks("train", 60, 0):
        world.reset(task)
        while acting := world.next_agents():
            actions = {agent: world.demonstration(agent, rng, skill=skill) for agent in acting}
            for agent in acting:
                seen = " ".join(message["content"] for message in world.observe(agent))
                assert {*seen.split(), *actions[agent].split()} <= words
            points.append((await world.step(actions)).team)
    mean = sum(points) / 60
    assert {"expert": mean == pytest.approx(2.76), "novice": 0.3 < mean < 1.5, "flawed": mean == 0}[skill]


# ---- data sets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tldr", "arxiv"])
async def test_articles_of_tables(tmp_path: Path, kind: Any) -> None:
    world = Writing(kind=kind, **tables(tmp_path, kind), horizon=2)
    seen = {split: {task.data["article"] for task in world.splits.tasks(split, 3, 0)} for split in get_args(Split)}
    assert all(len(articles) == 3 for articles in seen.values())
    keys = {split: set(items) for split, items in world.splits.items.items()}
    assert not keys["train"] & (keys["test"] | keys["validation"]) and not keys["test"] & keys["validation"]
    assert world.splits.counts["train_also_in_test"] + world.splits.counts["validation_also_in_test"] == 5
    assert all("TL;DR" not in article for articles in seen.values() for article in articles)
    (task,) = world.tasks("test", 1, 0)
    world.reset(task)
    system, user = world.observe(world.agents[1])
    assert task.data["article"] in user["content"] and "Your partner writes" in system["content"]
    await world.step(dict.fromkeys(world.agents, "Some text of mine."))
    assert (
        "Your partner's text of the turn before:\nSome text of mine." in world.observe(world.agents[0])[-1]["content"]
    )


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"prompt": "a"}\n{"prompt": null}\n')
    with pytest.raises(
        DataError, match=r"env\.train: .*train\.jsonl, row 1, column prompt: expected str, got NoneType"
    ):
        _ = Writing(kind="tldr", train=[ArticleSource("tldr", str(tmp_path / "train.jsonl"))]).splits


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "poem"}, "env.kind=poem is unknown; known are tldr, arxiv, lines"),
        ({"kind": "tldr"}, "env.train: kind=tldr needs a table"),
        ({"horizon": 0}, "env.horizon"),
        ({"on_topic": 1.5}, "env.on_topic"),
        ({"team": "trio"}, "env.team must be pair or solo, got trio"),
        ({"max_chars": 0}, "env.max_chars"),
        ({"examples": 1}, r"env.examples must be in \[0, 0\] for kind=lines, got 1"),
        (
            {"kind": "tldr", "train": [GeneratedPosts()], "examples": 2},
            r"env.examples must be in \[0, 1\] for kind=tldr",
        ),
        ({"mark": "|"}, "env.mark must be words or two line breaks, and null for kind=lines"),
        ({"kind": "tldr", "train": [GeneratedPosts()], "mark": "\n"}, "env.mark must be words"),
        ({"kind": "tldr", "train": [GeneratedPosts()], "mark": ""}, "env.mark must be words"),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Writing(**settings)


def test_an_unknown_kind_of_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kind=csv of x\.csv is unknown; known are tldr, arxiv"):
        ArticleSource("csv", "x.csv")
