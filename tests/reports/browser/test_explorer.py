"""The report of a real run, opened, searched, stepped through by keyboard, and checked for accessibility."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest

from troupe.cli import train
from troupe.reports.report import write_report
from troupe.runs.run import RunReader

pytestmark = pytest.mark.browser
Open = Callable[..., Any]
Check = Callable[[Any], None]
TINY = (
    "experiment=sokoban_specialized loop.iterations=3 loop.tasks_per_iteration=3 loop.eval_every=1 "
    "loop.validation_tasks=4 loop.test_tasks=4 env.horizon=2 algorithm.sampler.k=4 diagnostics.trees.every=1"
).split()
COUNT = "document.getElementById('episode-count').textContent"
SEARCHED = f"!{COUNT}.includes('searching')"
OPEN_SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"'
ACTIVE_SVG = f'{OPEN_SVG} onload="document.title=1"><script>document.title=1</script><circle r="3" onclick="1"/></svg>'
LINKED_SVG = f'{OPEN_SVG}><image href="https://x/y.png"/><circle r="3" fill="url(https://x)" style="fill:red"/></svg>'
HOSTILE = '</script><img src=x onerror="document.title=1"><b>bold</b> \u202e {{ 7 }} \x00'


@pytest.fixture(scope="module")
def run(composed: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run's directory, with its report."""
    path = tmp_path_factory.mktemp("runs") / "run"
    train.train(train.build(composed(*TINY, f"run_dir={path}")))
    return write_report(path).parent


def wait_for(page: Any, expression: str) -> None:
    """Until ``expression`` is true.  Playwright's own function evaluates strings, which the page forbids."""
    for _ in range(500):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never true: {expression}")


def test_every_episode_is_listed_and_the_first_tree_is_drawn(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    trees = RunReader(run).tree_records()
    episodes = len(trees) + sum(len(file.episodes) for file in RunReader(run).episode_files.values())
    assert page.locator("#episode-count").inner_text() == f"{episodes} episodes"
    assert page.locator(".map .dot").count() >= 8
    assert page.locator(".candidate").count() == 4
    assert page.locator(".candidate.chosen").count() == 1
    assert page.locator("svg.picture").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_phone_a_finger_finds_every_candidate_of_the_map(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html", width=390, touch=True)
    places = page.locator(".map .place rect")
    boxes = [places.nth(index).bounding_box() for index in range(places.count())]
    assert len(boxes) >= 8 and min(min(box["width"], box["height"]) for box in boxes) >= 24
    before = page.evaluate("location.hash")
    page.locator(".map").scroll_into_view_if_needed()
    rect = places.last.bounding_box()
    page.touchscreen.tap(rect["x"] + 3, rect["y"] + 3)  # beside the dot
    page.wait_for_function("(before) => location.hash !== before", arg=before)


def test_filters_search_and_order(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    trees = RunReader(run).tree_records()
    page.select_option("#by-source", label="training trees")
    assert page.locator("#episode-count").inner_text().startswith(f"{len(trees)} of")
    page.select_option("#by-iteration", label="after 1 iteration")
    assert page.locator("#episode-count").inner_text().startswith("3 of")
    page.fill("#by-words", trees[0]["task_id"])
    wait_for(page, SEARCHED)
    page.select_option("#by-iteration", value="")
    shown = page.locator(".option .task").all_inner_texts()
    assert shown and set(shown) == {trees[0]["task_id"]}
    page.fill("#by-words", "no such words anywhere")
    wait_for(page, f"{COUNT}.startsWith('0 of') && {SEARCHED}")
    page.fill("#by-words", "")
    page.select_option("#by-source", value="")
    page.select_option("#by-order", value="worst")
    returns = [
        float(text.replace("−", "-"))
        for text in re.findall(r"return (\S+)", " ".join(page.locator(".option small").all_inner_texts()))
    ]
    assert returns == sorted(returns)


def test_failures_are_filtered_by_kind(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    total = int(page.locator("#episode-count").inner_text().split()[0])
    kinds = page.locator("#by-fault option").all_inner_texts()
    assert kinds[0] == "any or none" and {"wrong", "blocked"} & {*kinds}
    for kind in kinds[1:]:
        page.select_option("#by-fault", label=kind)
        assert 0 < int(page.locator("#episode-count").inner_text().split()[0]) <= total


def test_words_that_changed_since_the_moment_before(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    moments = page.locator("input[type=range]")
    moments.press("End")
    wait_for(page, "document.querySelector('.mode option[value=words]')")
    page.select_option(".mode", "words")
    assert page.locator(".legend-line").inner_text().startswith("Each message beside that of ")
    said = "[...node.childNodes].map((part) => part.nodeName === 'DEL' ? '' : part.textContent).join('')"
    without = f"nodes => nodes.map((node) => {said})"
    marked = page.locator(".candidate .spoken").evaluate_all(without)  # without what is gone each is the message
    page.select_option(".mode", "plain")
    assert page.locator(".candidate .spoken").all_inner_texts() == marked
    moments.press("Home")
    wait_for(page, "!document.querySelector('.mode option[value=words]')")


def test_after_j_arrows_choose_and_enter_says_what_does_not_go_on(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    page.select_option("#by-source", label="training trees")
    page.keyboard.press("Tab")
    page.locator("body").click(position={"x": 2, "y": 2})
    page.keyboard.press("j")
    wait_for(page, "document.activeElement.id === 'stage'")
    for key, end in (("ArrowLeft", "0"), ("ArrowRight", "1")):
        for _ in range(3 if end == "0" else 1):
            page.keyboard.press(key)
        wait_for(page, f"location.hash.endsWith('/{end}')")
    for number in range(4):
        card = page.locator(".candidate").nth(number)
        card.click(position={"x": 30, "y": 8})
        if not card.locator(".went-on").count():
            card.press("Enter")
            assert card.locator(".ends").inner_text() == "it did not go on: nothing follows"
            break
    assert page.locator(".map .ring").count() == 1 and page.locator(".map .on").count() >= 1


def figures(page: Any, name: str) -> list[float]:
    """The numbers after ``name``, or before it, in the list's rows."""
    texts = page.locator(".option .figures").all_inner_texts()
    found = [re.findall(rf"{name} ([^ ·]+)|([^ ·]+) {name}", text)[0] for text in texts]
    return [float("".join(pair).replace("−", "-").replace(",", "")) for pair in found]


def test_an_agents_own_reward_and_length_are_shown_and_bounded(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    page.select_option("#by-source", label="training trees")
    assert page.locator(".prompt summary").inner_text().startswith("Prompt as the model read it, ")
    teams = figures(page, "tokens")
    page.select_option("#by-agent", label="tool")
    page.select_option("#by-order", value="best")
    rewards, lengths = figures(page, "reward"), figures(page, "tokens")
    assert rewards == sorted(rewards, reverse=True) and sum(lengths) < sum(teams)
    page.select_option("#by-order", value="longest")
    lengths = figures(page, "tokens")
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[-1]
    page.get_by_role("spinbutton", name="Tokens, at least").fill(f"{lengths[0]:g}")
    assert {*figures(page, "tokens")} == {lengths[0]}
    assert page.locator("#episode-count").inner_text().startswith(f"{lengths.count(lengths[0])} of")
    page.get_by_role("spinbutton", name="Tokens, at least").fill("")
    page.get_by_role("spinbutton", name="Return, at most").fill(f"{min(rewards):.3g}")
    kept = figures(page, "reward")
    assert all(reward <= min(rewards) + 1e-3 for reward in kept)
    page.keyboard.press("Shift+Tab")  # to the other bound
    page.keyboard.type("1e9")
    wait_for(page, f"{COUNT}.startsWith('0 of')")


def test_order_by_outcome_and_by_agent(
    run_dir: Path, episode: Callable[..., Any], lines: Callable[..., None], open_page: Open
) -> None:
    """In the order of agents, the worst episodes of the agent that earned least in them come first."""
    for file in (run_dir / "episodes").iterdir():
        file.unlink()

    def played(task: str, success: bool, *rewards: float | None) -> dict[str, Any]:
        row: dict[str, Any] = episode(task, success)
        pairs = zip(row["messages"], rewards, strict=True)
        return row | {"messages": [message | {"local": reward} for message, reward in pairs]}

    rows = [
        played("a", False, 0.5, 0.1),
        played("b", True, 0.2, 0.4),
        played("c", False, 0.9, 0.0),
        played("d", True, 0.1, 0.3),
        played("e", False, None, None),
    ]
    lines(run_dir / "episodes" / "test_00000.jsonl", rows)
    page = open_page(write_report(run_dir))

    def order(title: str) -> str:
        page.select_option("#by-order", label=title)
        return "".join(page.locator(".option .task").all_inner_texts())

    assert order("solved first") == "bdace"
    assert order("not solved first") == "acebd"
    assert order("agent that earned least") == "dbcae"
    earned = [text.partition(" · ")[0] for text in page.locator(".option .figures").all_inner_texts()]
    assert earned == ["tool 1.1", "tool 1.2", "plan 1", "plan 1.1", "return 1"]


def test_what_a_sibling_led_to(
    run_dir: Path, tree: Callable[..., Any], lines: Callable[..., None], open_page: Open
) -> None:
    """The candidate that went on says what came then, another one what would have come of it, where that is known."""
    kept = tree("t", 0)
    tool, plan = (node["candidates"] for node in kept["nodes"])
    tool[0]["next"] = {"done": True, "success": False, "picture": 1}
    plan[0]["next"] = {"done": True, "success": True, "picture": 1}
    plan[1]["next"] = {"done": False, "success": False, "picture": 0}
    plan.append({**plan[1], "next": {"done": True, "success": True, "picture": 0}})
    plan.append({key: value for key, value in plan[1].items() if key != "next"})
    kept["pictures"].append({"text": "#*\n@ "})
    lines(run_dir / "episodes" / "train_00000.jsonl", [kept])
    page = open_page(write_report(run_dir), "#/training%20trees/0/t/0/0/0")

    def followed() -> list[str]:
        cards = page.locator(".candidate").all()
        return [" ".join(card.locator(".followed p").all_inner_texts()) for card in cards]

    assert followed() == ["What if: ended, not solved", "Then: the episode went on"]
    assert page.get_by_role("button", name="Copy replay command").count() == 0  # its outcome is known
    after = "The world after the message: #* / @ "
    assert page.locator(".followed [role=img]").evaluate_all("all => all.map((one) => one.ariaLabel)") == [after]
    assert page.locator(".followed .failed").inner_text() == "ended, not solved"
    page.get_by_role("button", name="plan answers").click()
    assert page.locator(".place h4").inner_text() == "Turn 1 · plan"
    assert followed() == [
        "Then: solved · 1 turn, return 1",
        "What if: not over: the team went on from another candidate",
        "What if: solved",
        "",
    ]


def later_evaluation(run_dir: Path, request: str) -> Path:
    """An evaluation of the ``run_dir`` with the keys of ``request``; where its episodes belong."""
    folder = run_dir / "evaluations" / "later"
    (folder / "episodes").mkdir(parents=True)
    (folder / "summary.json").write_text("{}")
    (folder / "config.yaml").write_text(f"request: {{{request}}}\n")
    return folder / "episodes" / "greedy.jsonl"


def test_a_later_evaluation_says_its_weights(
    run_dir: Path, episode: Callable[..., Any], lines: Callable[..., None], open_page: Open
) -> None:
    lines(later_evaluation(run_dir, "checkpoint: last"), [episode("z", True)])
    page = open_page(write_report(run_dir), "#/later%3A%20greedy/later/z/0/0/0")
    assert "later: greedy, last weights" in page.locator(".episode-head .facts").inner_text()
    assert "last weights" in page.locator(".option[aria-selected=true] small").first.inner_text()


def test_others_in_place_of_the_team_are_named(
    run_dir: Path, episode: Callable[..., Any], lines: Callable[..., None], open_page: Open
) -> None:
    """Their episodes are no moments of the run's own training; those of a tree are drawn apart from played ones."""
    lines(later_evaluation(run_dir, "checkpoint: last, swap: true"), [episode("a", True)])
    page = open_page(write_report(run_dir), "#/later%3A%20greedy/later/a/0/0/0")
    who = "the two agents with each other's policies"
    assert who in page.locator(".episode-head .facts").inner_text()
    assert page.locator(".option[aria-selected=true] small").first.inner_text().startswith(who)
    most = page.locator(".slider input").get_attribute("max")
    page.select_option("#by-source", label="test episodes")
    page.keyboard.press("j")  # the list has just been chosen from
    wait_for(page, "location.hash.startsWith('#/test%20episodes')")
    assert int(page.locator(".slider input").get_attribute("max")) == int(most) - 1


def test_a_link_that_leads_nowhere_says_so(run: Path, open_page: Open) -> None:
    task, note = RunReader(run).tree_records(0)[0]["task_id"], "document.getElementById('link-note').textContent"
    page = open_page(run / "report.html", f"#/training%20trees/77/{task}/0/0/0")
    assert page.locator("#link-note").inner_text() == "The link names an episode that this page does not have."
    assert page.locator("#stage").bounding_box()["x"] > page.locator(".finder").bounding_box()["x"]  # beside the list
    page.keyboard.press("j")
    wait_for(page, f"{note} === ''")
    for place in ("99/0", "0/99", "x/0"):
        page.evaluate(f"location.hash = '#/training%20trees/0/{task}/0/{place}'")
        wait_for(page, f"{note}.startsWith('The link names a message that this episode does not have')")
        page.evaluate(f"location.hash = '#/training%20trees/0/{task}/0/0/1'")
        wait_for(page, f"{note} === ''")
    page.evaluate("location.hash = '#/training%20trees/0/nothing/0/0/0'")
    wait_for(page, f"{note}.startsWith('The link names an episode')")


def test_a_search_opens_and_marks_what_it_finds(
    run_dir: Path, tree: Callable[..., Any], lines: Callable[..., None], open_page: Open
) -> None:
    kept = tree("t", 0)
    kept["nodes"][1]["candidates"][1]["text"] = "Not (this) way"
    lines(run_dir / "episodes" / "train_00000.jsonl", [tree("s", 0), kept])
    page = open_page(write_report(run_dir))
    page.fill("#by-words", "(THIS)")
    wait_for(page, "document.querySelector('mark')?.textContent === '(this)'")
    assert page.evaluate("location.hash") == "#/training%20trees/0/t/0/1/1"
    page.fill("#by-words", "nothing has these words")
    wait_for(page, f"{COUNT}.startsWith('0 of') && {SEARCHED}")
    assert page.locator("#episode-list").inner_text() == "No episode matches."
    page.fill("#by-words", "")
    wait_for(page, "document.querySelectorAll('mark, .no-match').length === 0")


def test_a_tree_opens_at_its_largest_advantage(
    run_dir: Path, tree: Callable[..., Any], lines: Callable[..., None], open_page: Open
) -> None:
    kept = tree("t", 0)
    kept["nodes"][1]["candidates"][1]["advantage"] = -3.0
    lines(run_dir / "episodes" / "train_00000.jsonl", [kept])
    page = open_page(write_report(run_dir), width=390)
    assert page.evaluate("location.hash") == "#/training%20trees/0/t/0/1/0"
    box, dot = (page.locator(each).bounding_box() for each in (".map-box", ".dot.chosen"))
    assert box["x"] < dot["x"] < box["x"] + box["width"]


def test_a_drawing_of_words_is_text(
    run_dir: Path, tree: Callable[..., Any], lines: Callable[..., None], open_page: Open
) -> None:
    words = "a question of more than forty letters, and its answer"
    drawing = f'{OPEN_SVG}><rect width="2" height="9"/><text x="3">{words}</text></svg>'
    lines(run_dir / "episodes" / "train_00000.jsonl", [tree("t", 0, pictures=[{"svg": drawing, "text": words}])])
    page = open_page(write_report(run_dir))
    assert page.locator(".seen pre.drawn").inner_text() == words and page.locator("svg.drawing").count() == 0


def test_a_link_is_copied(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    page.locator(".candidate").nth(2).click()
    page.click("text=Copy link")
    wait_for(page, "document.querySelector('.links small')?.textContent === 'link copied'")
    page.focus("#by-words")
    page.keyboard.press("Control+V")
    pasted = page.input_value("#by-words")
    assert pasted == page.url and pasted.endswith("/2")


def test_a_sibling_is_played_on_by_a_command(run: Path, open_page: Open) -> None:
    """Where nobody played what a sibling would have led to, the page has the command for it, and it works."""
    tree = RunReader(run).tree_records(2)[0]
    other = next(c for c, candidate in enumerate(tree["nodes"][0]["candidates"]) if not candidate["continued"])
    page = open_page(run / "report.html", f"#/training%20trees/2/{tree['task_id']}/0/0/{other}")
    button = page.locator(".candidate").nth(other).get_by_role("button", name="Copy replay command")
    assert "The weights after 2 iterations are not kept" in button.get_attribute("title")
    button.click()
    wait_for(page, "document.getElementById('stage-voice').textContent.startsWith('copied')")
    page.focus("#by-words")
    page.keyboard.press("Control+V")
    command = page.input_value("#by-words").split()
    assert command[:3] == ["troupe", "replay", "run=."]
    assert command[3:] == [f"episode=train_00002/{tree['task_id']}", "node=0", f"candidate={other + 1}"]
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=run,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0 and "forced" in result.stdout, result.stderr


def test_what_is_said_is_found(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    said = next(
        c["text"]
        for tree in RunReader(run).tree_records()
        for node in tree["nodes"]
        for c in node["candidates"]
        if len(c["text"]) > 8
    )
    page.fill("#by-words", said)
    wait_for(
        page,
        f"document.querySelectorAll('.option').length > 0 && {SEARCHED}",
    )


def test_the_keyboard_alone(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    address = page.evaluate("location.hash")
    page.keyboard.press("j")
    wait_for(page, f"location.hash !== {json.dumps(address)}")
    page.keyboard.press("k")
    wait_for(page, f"location.hash.startsWith({json.dumps(address.rsplit('/', 2)[0])})")
    page.evaluate(f"location.hash = {json.dumps(address.rsplit('/', 2)[0] + '/0/0')}")
    wait_for(page, "document.querySelector('.place h4 b').textContent === 'tool'")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "by-words"
    page.focus(".map-box")
    page.keyboard.press("ArrowDown")
    wait_for(page, "document.querySelector('.place h4 b').textContent === 'plan'")
    page.keyboard.press("Home")
    chosen = "[...document.querySelectorAll('.candidate')].findIndex((card) => card.classList.contains('chosen'))"
    before = page.evaluate(chosen)
    page.keyboard.press("ArrowLeft" if before else "ArrowRight")
    assert page.evaluate(chosen) == (before - 1 if before else before + 1)
    assert page.evaluate("document.activeElement.className") == "map-box"
    page.keyboard.press("ArrowUp")
    wait_for(page, "document.querySelector('.place h4 b').textContent === 'tool'")
    assert "tool, candidate" in page.locator("#stage-voice").inner_text()
    page.keyboard.press("Enter")
    wait_for(page, "document.querySelector('.place h4 b').textContent === 'plan'")
    page.focus("#episode-list")
    page.keyboard.press("End")
    last = page.get_attribute(".option", "aria-setsize")
    page.wait_for_selector(f".option[aria-selected=true][aria-posinset='{last}']")
    chosen_id = page.get_attribute(".option[aria-selected=true]", "id")
    assert page.get_attribute("#episode-list", "aria-activedescendant") == chosen_id


def test_the_samples_of_a_task(
    run_dir: Path, tree: Callable[..., Any], lines: Callable[..., None], open_page: Open
) -> None:
    """Of a chain sampler: K episodes of each task."""
    lines(run_dir / "episodes" / "train_00000.jsonl", [tree("a", 0, said=f"said {k}", sample=k) for k in range(3)])
    page = open_page(write_report(run_dir))
    assert page.locator(".samples button").count() == 3
    page.click(".samples button >> nth=2")
    wait_for(page, "document.querySelector('.samples button[aria-pressed=true]').textContent === '3'")
    assert page.locator(".candidate .spoken").first.inner_text() == "said 2"


def test_a_link_leads_to_its_node(run: Path, open_page: Open) -> None:
    tree = next(each for each in RunReader(run).tree_records(2) if len(each["nodes"]) > 1)
    address = f"#/{'training%20trees'}/2/{tree['task_id']}/0/1/2"
    page = open_page(run / "report.html", address)
    assert page.locator(".episode-head h3").inner_text() == tree["task_id"]
    assert page.locator(".place h4").inner_text() == f"Turn 1 · {tree['nodes'][1]['agent']}"
    assert page.locator(".candidate.chosen .number").inner_text() == "3"
    assert page.locator(".candidate.chosen .spoken").inner_text().strip() == (
        tree["nodes"][1]["candidates"][2]["text"].strip() or "(nothing)"
    )


def test_one_task_is_watched_over_training(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html", f"#/training%20trees/0/{RunReader(run).tree_records(0)[-1]['task_id']}/0/0/0")
    slider = page.locator(".slider input")
    assert page.locator(".moment-dots .moment.tree").count() == 3
    assert page.locator(".moments-key").inner_text().startswith("training tree")
    assert int(slider.get_attribute("max")) >= 5  # three trees, and as many validations
    slider.focus()
    for _ in range(2):
        before = page.locator(".moments output").inner_text()
        page.keyboard.press("ArrowRight")
        wait_for(page, f"document.querySelector('.moments output').textContent !== {json.dumps(before)}")
        assert page.evaluate("document.activeElement.type") == "range"  # it keeps the focus for the next step


def test_tokens_have_colours_on_demand(run: Path, open_page: Open) -> None:
    page = open_page(run / "report.html")
    assert page.locator(".token").count() == 0
    plain = page.locator(".spoken").all_inner_texts()
    for mode in ("advantage", "surprise", "mismatch", "change"):
        page.select_option(".mode", value=mode)
        assert page.locator(".token").count() >= 4
    words = [" ".join(text.replace("<eos>", "").split()) for text in page.locator(".spoken").all_inner_texts()]
    assert words == [" ".join(text.split()) for text in plain]
    page.locator(".token").first.hover()
    assert "sampled with p" in page.locator(".token").first.get_attribute("title")


def test_what_is_known_of_a_token_by_key_and_by_touch(run: Path, open_page: Open) -> None:
    """A title needs a mouse: the same stands below the message, and is spoken."""
    tree = RunReader(run).tree_records(2)[0]
    candidate = tree["nodes"][0]["candidates"][0]
    page = open_page(run / "report.html", f"#/training%20trees/2/{tree['task_id']}/0/0/0")
    page.focus(".map-box")
    page.keyboard.press(".")  # nothing is coloured yet
    assert page.locator(".token-line").count() == 0
    page.select_option(".mode", value="mismatch")
    assert page.locator(".token-line").count() == len(tree["nodes"][0]["candidates"])
    ratios = {now - then for now, then in zip(candidate["learner_logprobs"], candidate["logprobs"], strict=True)}
    assert ("mean" if len(ratios) > 1 else "each token 0") in page.locator(".token-line").first.inner_text()
    page.focus(".map-box")
    for _ in range(2):
        page.keyboard.press(".")
    line = page.locator(".token-line").first.inner_text()
    assert f"token 2 of {len(candidate['tokens'])}, id {candidate['token_ids'][1]}" in line
    assert "importance ratio: 1" in line and "sampled with p" in line
    assert "importance ratio: 1" in page.locator("#stage-voice").inner_text()
    page.keyboard.press(",")
    assert "token 1 of" in page.locator(".token-line").first.inner_text()
    page.locator(".candidate").nth(1).locator(".token").first.click()
    assert page.locator(".candidate.chosen .number").inner_text() == "2"
    assert "token 1 of" in page.locator(".token-line").nth(1).inner_text()
    assert page.locator(".token.picked").count() == 1


def test_the_page_opens_with_a_task_that_is_watched_over_training(run: Path, open_page: Open) -> None:
    watched = [
        t
        for t in RunReader(run).tree_records()
        if t["watched"] and any(c["advantage"] for n in t["nodes"] for c in n["candidates"])
    ]
    page = open_page(run / "report.html")
    assert not watched or "never learnt from" in page.locator(".episode-head .facts").inner_text()
    assert not watched or page.locator(".slider input").count() == 1


def test_cross_play_and_evaluations_are_sections(run_dir: Path, open_page: Open, accessible: Check) -> None:
    score = {"success": 0.25, "success_ci95": [0.1, 0.5], "turns": 3.5}
    for name, keys in (("own", {}), ("guest", {"agents": {"plan": "runs/x@last"}})):
        folder = run_dir / "evaluations" / name
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps({"conditions": {"sampled": score, "greedy": score}}))
        (folder / "config.yaml").write_text(json.dumps({"request": {"checkpoint": "last"} | keys}))
    page = open_page(write_report(run_dir), width=390)
    assert page.locator(".later h2").all_inner_texts() == ["Cross-play 1 evaluation", "Evaluations 1 evaluation"]
    cross = page.locator(".later").first
    assert cross.locator("tbody tr").count() == 2 and "plan from runs/x@last" in cross.inner_text()
    assert "25.0 %" in cross.inner_text() and "last weights" in cross.inner_text()
    accessible(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_serious_finding_of_axe(run: Path, open_page: Open, accessible: Check, width: int, scheme: str) -> None:
    page = open_page(run / "report.html", width=width, scheme=scheme)
    page.select_option(".mode", value="change")
    # As strongly coloured as tokens can be: they must be readable there, too.
    page.evaluate("document.querySelectorAll('.token').forEach((one) => one.style.setProperty('--m', 1))")
    page.evaluate("document.querySelectorAll('.folds > details').forEach((fold) => { fold.open = true; })")
    accessible(page)


def test_hostile_text_stays_text(
    run_dir: Path, tree: Callable[..., Any], episode: Callable[..., Any], lines: Callable[..., None], open_page: Open
) -> None:
    hostile = tree(
        HOSTILE,
        0,
        said=HOSTILE,
        pictures=[{"svg": ACTIVE_SVG, "text": HOSTILE}, {"svg": LINKED_SVG, "text": "linked"}],
    )
    for node in hostile["nodes"]:
        node["candidates"][0]["next"] = {"done": False, "success": False, "picture": 1}
        node |= {"prompt": HOSTILE, "agent": "tool" if node["id"] else HOSTILE, "session": HOSTILE}
    hostile["edges"][0]["members"] = {HOSTILE: [0, 1]}
    lines(run_dir / "episodes" / "train_00000.jsonl", [hostile])
    lines(run_dir / "episodes" / "test_00003.jsonl", [episode(HOSTILE, True, said=HOSTILE)])
    page = open_page(write_report(run_dir))
    title = page.title()
    page.select_option("#by-source", label="training trees")
    page.click(".option")
    shown = HOSTILE.replace("\x00", "␀")
    wait_for(page, f"document.querySelector('.prompt pre').textContent === {json.dumps(shown)}")
    assert page.locator(".candidate .spoken").first.evaluate("(pre) => pre.textContent") == shown
    assert f"session {shown}" in page.locator("#stage .place").first.evaluate("(place) => place.textContent")
    assert (
        page.locator(
            "#stage img, #stage script, #stage b b, #stage a, #stage [onload], #stage [onclick], #stage [fill^=url]"
        ).count()
        == 0
    )
    assert page.locator(".seen svg.drawing").count() == 0 and page.locator(".seen .drawn").count() == 1
    drawn = page.locator(".followed svg.drawing").first
    assert drawn.evaluate("(svg) => [...svg.children].map((child) => child.outerHTML)") == ['<circle r="3"></circle>']
    page.fill("#by-words", "onerror=")
    wait_for(page, SEARCHED)
    assert page.locator(".option").count() == 1
    assert page.title() == title


def test_a_file_cut_in_the_middle(run_dir: Path, tree: Callable[..., Any], open_page: Open) -> None:
    line = json.dumps(tree("whole", 0))
    (run_dir / "episodes" / "train_00000.jsonl").write_text(f"{line}\n{line[:400]}")
    page = open_page(write_report(run_dir))
    assert "train_00000.jsonl, line 2, is not a whole JSON object" in page.locator("aside").inner_text()
    assert page.locator(".candidate").count() == 2


@pytest.mark.parametrize("outcome", [{"success": "?"}, {"success": True, "turns": None, "team_return": "x"}])
def test_an_outcome_that_is_no_numbers(
    run_dir: Path, tree: Callable[..., Any], lines: Callable[..., None], open_page: Open, outcome: dict[str, Any]
) -> None:
    strange = tree("strange", 0)
    strange["edges"][-1]["outcome"] = outcome
    strange["nodes"][0]["candidates"][0] |= {"advantage": "x", "reward": 1.0}
    lines(run_dir / "episodes" / "train_00000.jsonl", [strange])
    page = open_page(write_report(run_dir), "#/training%20trees/0/strange/0/1/0")
    assert page.locator(".episode-head h3").inner_text() == "strange"
    assert "? turns" in page.locator(".followed").first.inner_text()


def test_an_episode_that_cannot_be_drawn_says_so(
    run_dir: Path, tree: Callable[..., Any], lines: Callable[..., None], chromium: Any
) -> None:
    """The page shows it in place of the last one, and goes on with the next."""
    lines(run_dir / "episodes" / "train_00000.jsonl", [tree("a", 0)])
    file = write_report(run_dir)
    text = file.read_text()
    chunk = text.partition('id="chunk-0">')[2].partition("<")[0]
    file.write_text(text.replace(chunk, chunk[: len(chunk) // 8 * 4]))
    page = chromium.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("#stage .empty")
    assert "This episode cannot be shown" in page.locator("#stage").inner_text()
    page.close()


def test_a_run_without_episodes(run_dir: Path, open_page: Open) -> None:
    for file in (run_dir / "episodes").iterdir():
        file.unlink()
    page = open_page(write_report(run_dir), ready=False)
    assert "episodes/ holds no episodes" in page.locator("aside").inner_text()
    assert page.locator("#explorer").count() == 0


def test_ten_thousand_episodes(
    run_dir: Path,
    tree: Callable[..., Any],
    episode: Callable[..., Any],
    lines: Callable[..., None],
    open_page: Open,
    show_episode: Callable[[Any, int], float],
) -> None:
    """It opens in less than 2 s, and shows an episode in less than 0.2 s: medians, since the machine may be busy."""
    words, random = "walls 1,3 1,4 3,2 4,4 box 3,1 goal 1,1 last start ", Random(0)
    messages = episode("t", True)["messages"]
    for iteration in range(20):
        rows = [
            {"task_id": f"task-{n}", "success": n % 3 > 0, "turns": 6, "tokens": 90, "pictures": [["@ .", "###"]] * 7}
            | {
                "messages": [
                    m | {"turn": t, "saw": f"{words}{n * t}", "said": f"{random.getrandbits(200):x}"}
                    for t in range(6)
                    for m in messages
                ]
            }
            for n in range(500)
        ]
        lines(run_dir / "episodes" / f"validation_{iteration:05d}.jsonl", rows)
    lines(run_dir / "episodes" / "train_00000.jsonl", [tree(f"tree-{n}", 0) for n in range(10)])
    file = write_report(run_dir)
    page = open_page(file)
    timing = page.evaluate("performance.getEntriesByName('explorer-ready')[0].startTime")
    times = []
    for n in (0, 4999, 10_009, 7000, 2500):
        page.evaluate("(n) => { const box = document.getElementById('episode-list'); box.scrollTop = n * 66; }", n)
        page.wait_for_selector(f".option[aria-posinset='{n + 1}']")
        times.append(show_episode(page, n + 1))
    figures = f"open in {timing / 1e3:.2f} s, an episode in {min(times) / 1e3:.3f} to {max(times) / 1e3:.3f} s"
    print(f"\n10,010 episodes, {file.stat().st_size / 1e6:.1f} MB: {figures}")
    assert timing < 2000
    assert median(times) < 200
