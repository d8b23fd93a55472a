"""A report with as many training trees as a run may keep: it opens, shows, colours and searches them in time."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest

from troupe.reports.report import write_report

pytestmark = pytest.mark.browser
Open = Callable[..., Any]
FILES, TREES, CANDIDATES, TOKENS = 30, 100, 4, 15
"""Files, trees per file, candidates per prompt and tokens per candidate: together nearly the 64 MB of a run."""
LONG = 1500
"""Tokens of each candidate of one more tree."""
BOARD = "######\n#    #\n# @$ #\n### .#\n#  # #\n######"
COLOUR = """async (mode) => {
    const start = performance.now(), select = document.querySelector('.mode');
    select.value = mode;
    select.dispatchEvent(new Event('change'));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - start;
}"""


def kept_tree(random: Random, name: str, iteration: int, tokens: int = TOKENS, turns: int = 2) -> dict[str, Any]:
    """A tree of ``turns`` turns of two agents, as a run keeps it, of which no two are alike."""

    def values() -> list[float]:
        return [round(-random.expovariate(2.0), 6) for _ in range(tokens)]

    def candidate(number: int, on: bool) -> dict[str, Any]:
        words = [f" {random.getrandbits(14):x}" for _ in range(tokens)]
        reward = random.random()
        return {
            **{"text": "".join(words).strip(), "finish_reason": "stop", "version": iteration, "tokens": words},
            **{"token_ids": [random.randrange(30_000) for _ in words], "logprobs": values()},
            **{"learner_logprobs": values(), "updated_logprobs": values()},
            **{"local": reward, "team": 0.0, "reward": reward, "overlong": 0.0, "baseline": 0.5},
            **{"advantage": reward - 0.5, "continued": on, "info": {"malformed": False, "moves": number}},
            "next": {"success": False, "done": False, "picture": number % 2},
        }

    nodes = [
        {"id": i, "parent": i - 1 if i else None, "agent": ("tool", "plan")[i % 2], "turn": i // 2, "depth": i}
        | {"reach": 1.0, "prompt": f"sokoban {name} {random.getrandbits(64):x} <answer>", "prompt_tokens": 12}
        | {"picture": 0, "candidates": [candidate(c, c == 1) for c in range(CANDIDATES)]}
        for i in range(2 * turns)
    ]
    edges: list[dict[str, Any]] = [{"members": {n["agent"]: [n["id"], 1]}, "child": n["id"] + 1} for n in nodes]
    won = random.random() < 0.5
    end = {"success": won, "turns": turns, "team_return": float(won), "mixed_return": float(won)}
    edges[-1] = {"members": edges[-1]["members"], "outcome": end}
    about = {"tree_format": 1, "iteration": iteration, "watched": False, "task_id": name, "world": "sokoban"}
    about |= {"split": "train", "sample": 0, "best_of_k": True, "env_steps": 16, "policies": {"tool": "t", "plan": "p"}}
    pictures = [{"text": BOARD}, {"text": BOARD[::-1]}]
    return about | {"nodes": nodes, "edges": edges, "pictures": pictures}


END_THEN_HOME = """async () => {
    const opened = new Promise((done) => {
        const read = Response.prototype.text;
        Response.prototype.text = async function () {
            const text = await read.call(this);
            setTimeout(done);  // after whatever follows from this text at once
            return text;
        };
    });
    const box = document.getElementById("episode-list");
    for (const key of ["End", "Home"]) box.dispatchEvent(new KeyboardEvent("keydown", { key }));
    await opened;
}"""
"""Choose the last of the list, then the first; until the chunk of the last one is opened."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, disk: Any) -> Path:
    """A run's report with 3,001 trees."""
    path = disk.run(tmp_path_factory.mktemp("many") / "run", disk.config(0, 4), disk.scores(0, 5, 5))
    folder, random = path / "episodes", Random(0)
    folder.mkdir(exist_ok=True)
    for iteration in range(FILES):
        trees = [kept_tree(random, f"task-{iteration}-{n}", iteration) for n in range(TREES)]
        if not iteration:
            trees[0] = kept_tree(random, "long", 0, LONG, turns=1)
        text = "".join(json.dumps(tree) + "\n" for tree in trees)
        (folder / f"train_{iteration:05d}.jsonl").write_text(text)
    start = time.perf_counter()
    report = write_report(path)
    print(f"\nwritten in {time.perf_counter() - start:.1f} s")
    return report


def test_thousands_of_training_trees(many: Path, open_page: Open, show_episode: Callable[[Any, int], float]) -> None:
    """It opens in less than 2 s, shows and colours a tree in less than 0.2 s, and is no larger than its files.

    Times are medians, since the machine may be busy.
    """
    files = sum(file.stat().st_size for file in (many.parent / "episodes").iterdir())
    assert 40e6 < files < 64e6
    assert many.stat().st_size < files / 2
    page = open_page(many)
    opened = page.evaluate("performance.getEntriesByName('explorer-ready')[0].startTime")
    page.select_option("#by-source", label="training trees")
    assert page.locator("#episode-count").inner_text().startswith(f"{FILES * TREES:,} of")
    shown, coloured = [], []
    for n in (2, 1499, 2999, 2300, 700):
        page.evaluate("(n) => { document.getElementById('episode-list').scrollTop = n * 66; }", n)
        page.wait_for_selector(f".option[aria-posinset='{n + 1}']")
        shown.append(show_episode(page, n + 1))
        coloured += [page.evaluate(COLOUR, mode) for mode in ("mismatch", "plain")]
        assert page.locator(".candidate").count() == CANDIDATES
    print(
        f"\n{FILES * TREES:,} trees, {files / 1e6:.0f} MB of files, a page of {many.stat().st_size / 1e6:.1f} MB: ",
        end="",
    )
    print(f"open in {opened / 1e3:.2f} s, a tree in {max(shown) / 1e3:.3f} s, coloured in {max(coloured) / 1e3:.3f} s")
    assert opened < 2000
    assert median(shown) < 200
    assert median(coloured) < 200


def test_what_is_said_is_found_among_thousands(many: Path, open_page: Open) -> None:
    """All chunks are opened for it; the page stays of use meanwhile, and only the last search counts."""
    page = open_page(many)
    trees = [json.loads(line) for line in (many.parent / "episodes" / "train_00017.jsonl").read_text().splitlines()]
    page.fill("#by-words", "in none of them")
    page.fill("#by-words", f"sokoban task-17-42 {trees[42]['nodes'][0]['prompt'].split()[2]}")
    assert "searching" in page.locator("#episode-count").inner_text()
    before = page.evaluate("location.hash")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    start = page.evaluate("performance.now()")
    while "searching" in page.locator("#episode-count").inner_text():
        page.wait_for_timeout(20)
    print(f"\nsearched in {(page.evaluate('performance.now()') - start) / 1e3:.2f} s")
    assert page.locator(".option .task").all_inner_texts() == ["task-17-42"]
    page.keyboard.press("j")
    page.wait_for_function("(before) => location.hash !== before", arg=before)
    assert page.locator(".option[aria-selected=true]").count() == 1


def test_the_address_is_of_the_episode_chosen_last(many: Path, open_page: Open) -> None:
    """Though the one chosen just before it is shown later, since its chunk was not opened yet."""
    page = open_page(many)
    page.select_option("#by-source", label="training trees")
    first = page.evaluate("location.hash")
    page.keyboard.press("j")
    page.wait_for_function("(before) => location.hash !== before", arg=first)
    page.evaluate(END_THEN_HOME)
    assert page.evaluate("location.hash") == first
    assert page.locator(".option[aria-selected=true]").get_attribute("aria-posinset") == "1"


def test_long_candidates_are_coloured_in_time(many: Path, open_page: Open) -> None:
    page = open_page(many, "#/training%20trees/0/long/0/0/1")
    times = [page.evaluate(COLOUR, mode) for mode in ("mismatch", "advantage", "change")]
    assert page.locator(".token").count() == CANDIDATES * LONG
    print(f"\n{CANDIDATES * LONG:,} tokens coloured in {max(times) / 1e3:.3f} s")
    assert median(times) < 1000
