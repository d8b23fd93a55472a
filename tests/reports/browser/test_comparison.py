"""The page about several runs, opened, switched by keyboard, and checked for accessibility."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from troupe.cli.report import gather
from troupe.reports.comparison import write_comparison

pytestmark = pytest.mark.browser
Open = Callable[..., Any]
Check = Callable[[Any], None]
AGENTS = ("tool", "plan")


@pytest.fixture
def runs_page(tmp_path: Path, disk: Any) -> Path:
    """Nine settings of three seeds; of one run the summary is cut."""
    folders, random = [], Random(0)
    for k in range(2, 11):
        for seed in range(3):
            wins = min(10, k + seed)
            path = disk.run(tmp_path / f"k{k}-{seed}", disk.config(seed, k), disk.scores(seed, wins, wins))
            rows = [
                {
                    "iteration": i,
                    "eval/success": min(1.0, i * k / 50 + random.random() / 5),
                    "rollout/completions": 9 * k,
                }
                | {f"rollout/{agent}/reward": random.random() for agent in AGENTS}
                | {"train/tool/learning_rate": 0.001}
                for i in range(1, 11)
            ]
            (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            folders.append(path)
    (folders[0] / "summary.json").write_text('{"eval/success": 0.')
    return write_comparison(gather(folders), tmp_path / "runs.html")


def test_keys_that_not_all_settings_have_are_folded(runs_page: Path, disk: Any, open_page: Open) -> None:
    config = disk.config(0, 20)
    config["algorithm"]["sampler"]["own_key"] = 7
    disk.run(runs_page.parent / "more", config, disk.scores(0, 5, 5))
    page = open_page(write_comparison(gather([runs_page.parent]), runs_page), ready=False, width=390)
    fold = page.locator("details.partial")
    assert "algorithm.sampler.own_key" in fold.inner_html() and not fold.locator("table").is_visible()
    cell = page.locator("table.config td").first  # on a phone each value stands below its key, with its setting's name
    assert cell.is_visible() and cell.get_attribute("data-name") == "k=10"
    assert cell.bounding_box()["y"] > page.locator("table.config tbody th").first.bounding_box()["y"] + 10
    fold.locator("summary").focus()
    page.keyboard.press("Enter")
    assert fold.locator("table").is_visible()


def test_settings_are_shown_and_hidden_by_keyboard(runs_page: Path, open_page: Open) -> None:
    page = open_page(runs_page, ready=False)
    buttons = page.locator("#settings button")
    assert buttons.count() == 9 and page.locator("aside li").count() == 1
    lines = page.locator(".plot g.s1")
    assert lines.first.is_visible() and page.locator(".forest .s1").is_visible()
    buttons.nth(1).focus()
    page.keyboard.press("Enter")
    assert buttons.nth(1).get_attribute("aria-pressed") == "false"
    assert not lines.first.is_visible() and not page.locator(".forest .s1").is_visible()
    assert page.locator("table.config .s1:visible").count() == 0
    page.keyboard.press("Space")
    assert lines.first.is_visible()
    buttons.nth(8).click(modifiers=["Shift"])  # this one alone
    assert page.locator(".forest .one:visible").count() == 1 and page.locator(".forest .s8").is_visible()
    buttons.nth(8).click(modifiers=["Shift"])
    assert page.locator(".forest .one:visible").count() == 9
    assert page.locator(".plot g.dashed").first.is_visible()
    assert page.get_by_text(" less ", exact=False).count() >= 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_serious_finding_of_axe(
    runs_page: Path, open_page: Open, accessible: Check, width: int, scheme: str
) -> None:
    page = open_page(runs_page, width=width, scheme=scheme, ready=False)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    accessible(page)
