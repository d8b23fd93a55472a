"""Generated posts: how many, how long, what no two splits share, and the world that is made of them."""

from collections import Counter
from itertools import combinations, product
from random import Random
from typing import Any, get_args

import pytest

from troupe.envs.testing import check_world
from troupe.envs.writing import GeneratedPosts, Writing
from troupe.envs.writing.articles import PEOPLE, TROUBLES, post
from troupe.envs.writing.prompts import EXAMPLES
from troupe.envs.writing.reward import STYLES, score, vocabulary
from troupe.experience import Split

POSTS = [article.text for article in GeneratedPosts().items(Counter())]


def begin(**settings: Any) -> Writing:
    world = Writing(kind="tldr", train=[GeneratedPosts()], **settings)
    world.reset(world.tasks("train", 1, 0)[0])
    return world


def situation(text: str) -> str:
    """The first sentence of a post."""
    return text.partition(". ")[0]


def test_there_is_one_post_per_situation() -> None:
    assert len(POSTS) == len(set(POSTS)) == 1200 == len(PEOPLE) * len(TROUBLES)
    assert {situation(text) for text in POSTS} == {f"My {who} {what}" for who, what in product(PEOPLE, TROUBLES)}


def test_posts_are_short_and_whole() -> None:
    """Without blanks that do not belong there."""
    for text in POSTS:
        assert 36 <= len(text.split()) <= 51 and text == " ".join(text.split()) and text[-1] in ".?"
    assert [article.text for article in GeneratedPosts().items(Counter())] == POSTS
    assert post("niece", TROUBLES[0]).text.startswith("My niece borrowed my car last week")


def test_no_two_splits_share_a_situation() -> None:
    world = Writing(kind="tldr", train=[GeneratedPosts()])
    seen = {
        split: {situation(article.text) for article in items.values()} for split, items in world.splits.items.items()
    }
    assert not any(seen[a] & seen[b] for a, b in combinations(get_args(Split), 2))
    assert (len(seen["train"]), len(seen["validation"]), len(seen["test"])) == (961, 109, 130)


def test_held_out_posts_have_no_new_words() -> None:
    """A limit of the generator, as its documentation says: situations are held out, not words."""
    items = Writing(kind="tldr", train=[GeneratedPosts()]).splits.items
    words = {split: frozenset().union(*(vocabulary(a.text) for a in part.values())) for split, part in items.items()}
    assert words["test"] | words["validation"] <= words["train"] and len(words["train"]) < 400


def test_a_worked_example_comes_before_the_post() -> None:
    """To each agent its own text, and none that is among the posts; the example has all points of a success."""
    ((article, short, long),) = EXAMPLES["tldr"]
    points = score(short, long, STYLES["tldr"]).points
    assert article not in POSTS and points == pytest.approx(2.84)  # of five purposes, three within other words
    for team, answers in (("pair", (short, long)), ("solo", (f"{short}\n\n{long}",))):
        world = begin(team=team, examples=1, mark="\n\n")
        for agent, answer in zip(world.agents, answers, strict=True):
            messages = world.observe(agent)
            assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
            system, question, example, post_shown = messages
            assert question["content"] == f"Post:\n{article}" and example["content"] == answer
            assert post_shown["content"].removeprefix("Post:\n") in POSTS
            assert [system, post_shown] == begin(team=team, mark="\n\n").observe(agent)


@pytest.mark.parametrize("team", ["pair", "solo"])
@pytest.mark.parametrize("horizon", [1, 2])
async def test_the_contract(team: Any, horizon: int) -> None:
    await check_world(begin(team=team, horizon=horizon, examples=1, mark="\n\n"), tasks=1, team=(0, 3), local=(0, 0))


async def test_garbage_is_judged_not_raised() -> None:
    """Texts of any signs: points between 0 and 3, and no error of a judge."""
    rng, world = Random(0), begin()
    signs = "aA9 \n\t.,;:!?'’\"-_[]{}()<|>\\/$%\x00\ud800\u202e\u0301é漢🙂"
    for task in world.tasks("train", 300, 1):
        world.reset(task)
        texts = ["".join(rng.choices(signs, k=rng.randint(0, 300))) for _ in world.agents]
        result = await world.step(dict(zip(world.agents, texts, strict=True)))
        assert 0 <= result.team <= 3 and result.info["judge_errors"] == 0


async def test_good_summaries_are_a_success() -> None:
    world = begin()
    world.reset(next(task for task in world.tasks("train", 961, 0) if "lost the only key" in task.data["article"]))
    result = await world.step(
        {
            "concise": "Somebody lost the only key to my garden shed.",
            "detailed": "Somebody close to me lost the only key to my garden shed; I talked about it, but no good "
            "answer came, so what should be done now?",
        }
    )
    assert result.success and result.team >= 2.76
