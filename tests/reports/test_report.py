"""The page, parsed as a browser would."""

import base64
import hashlib
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from troupe.evaluation.statistics import wilson
from troupe.reports.report import write_report
from troupe.reports.values import duration
from troupe.runs.lock import Lock

VOID = {"meta", "rect", "circle", "path", "input", "br", "hr", "img", "link"}
Build = Callable[..., Any]
Rows = list[dict[str, Any]]
HOSTILE = '</pre></script><script>alert(1)</script><img src=x onerror="alert(2)"> {{ 7 * 7 }} & \' " \u202e'


class Page(HTMLParser):
    """A page's elements, and the text below each kind of element; refuses what is not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts[tag][-1] += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [has for name, has in self.elements if name == tag and wanted.items() <= has.items()]


def page(run_dir: Path) -> Page:
    return Page(write_report(run_dir).read_text(encoding="utf-8"))


def change(run_dir: Path, **values: Any) -> None:
    file = run_dir / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize("status", [{}, "done"])
def test_a_status_that_there_is_not_is_unknown(run_dir: Path, status: Any) -> None:
    change(run_dir, status=status)
    assert "status unknown" in page(run_dir).texts["body"][0]


def test_a_whole_report(run_dir: Path) -> None:
    parsed = page(run_dir)
    assert parsed.texts["h1"] == ["sokoban_shared"]
    body = parsed.texts["body"][0]
    for text in ("seed 7", "finished", "25.0 %", "75.0 %", "50.0 % to 87.5 %", "59.2k", "commit abc1234", "20 s"):
        assert text in body
    titles = parsed.texts["h2"]
    for title in ("Success on held-out tasks", "Turns per episode", "Reward per message, in training", "Loss"):
        assert title in titles
    assert "train/POLICY/special" in titles and "Learning rate" not in titles  # what a run has, and only that
    assert parsed.all("section", id="explorer") and not parsed.all("aside")
    assert "name: sokoban_shared" in body and "2.13.0" in body


def test_the_page_needs_nothing_else(run_dir: Path) -> None:
    parsed = page(run_dir)
    (policy,) = (meta for meta in parsed.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert str(policy["content"]).startswith("default-src 'none'")
    digest = base64.b64encode(hashlib.sha256(parsed.texts["script"][-1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in str(policy["content"])
    assert not [tag for tag, _ in parsed.elements if tag in ("link", "img", "iframe", "object", "base", "form")]
    assert not parsed.all("a")
    assert not [attributes for _, attributes in parsed.elements if {"src", "srcset", "action"} & attributes.keys()]
    assert "url(" not in parsed.texts["style"][0] and "@import" not in parsed.texts["style"][0]


def test_hostile_text_stays_text(run_dir: Path, episode: Build, lines: Build, rows: Rows) -> None:
    plain = page(run_dir)
    hostile = episode(HOSTILE, True, said=HOSTILE, pictures=[["<b>#"]])
    for message in hostile["messages"]:
        message |= {"agent": HOSTILE, "saw": HOSTILE, "session": HOSTILE + "/" * 99, HOSTILE: True}
    lines(run_dir / "episodes" / "test_00003.jsonl", [hostile])
    lines(run_dir / "metrics.jsonl", [row | {f"rollout/{HOSTILE}/reward": 1.0} for row in rows])
    (run_dir / "versions.json").write_text(json.dumps({HOSTILE: HOSTILE}))
    (run_dir / "config.yaml").write_text("name: " + json.dumps(HOSTILE))
    change(run_dir, status="failed", error=HOSTILE)
    parsed = page(run_dir)
    assert parsed.texts["script"][-1] == plain.texts["script"][-1]
    assert {tag for tag, _ in parsed.elements} <= {tag for tag, _ in plain.elements} | {"aside", "rect", "text"}
    assert not [name for _, attributes in parsed.elements for name in attributes if name.startswith("on")]
    assert HOSTILE in parsed.texts["h1"][0]
    assert parsed.texts["pre"].count(HOSTILE) == 1  # the error


def test_half_characters_are_written(run_dir: Path) -> None:
    change(run_dir, status="failed", error="half \ud800")
    assert "half \ufffd" in page(run_dir).texts["body"][0]


@pytest.mark.parametrize("alarms", [None, [], [{"text": f"malformed, agent '{HOSTILE}'"}, {"text": "another"}]])
def test_alarms_are_at_the_top(run_dir: Path, summary: dict[str, Any], alarms: list[dict[str, str]] | None) -> None:
    (run_dir / "summary.json").write_text(json.dumps(summary | ({} if alarms is None else {"alarms": alarms})))
    parsed = page(run_dir)
    assert bool(parsed.all("aside", class_="notice alarms")) == bool(alarms)
    if alarms:
        assert parsed.texts["li"][:2] == [each["text"] for each in alarms]


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_that_did_not_finish_says_so(run_dir: Path, status: str, summary: dict[str, Any]) -> None:
    (run_dir / "episodes" / "test_00003.jsonl").unlink()
    summary = {key: value for key, value in summary.items() if not key.startswith("eval/")}
    more = {"error": "NonFiniteError: policy 'both'"} if status == "failed" else {}
    (run_dir / "summary.json").write_text(json.dumps(summary | {"status": status, "iterations": 2} | more))
    parsed = page(run_dir)
    (notice,) = parsed.texts["aside"]
    assert ("was interrupted" if status == "interrupted" else "NonFiniteError: policy 'both'") in notice
    assert parsed.all("span", class_=f"status {status}")
    assert "2 of 3" in parsed.texts["body"][0]


def test_a_killed_run_says_what_is_missing(run_dir: Path, lines: Build) -> None:
    (run_dir / "summary.json").unlink()
    lines(run_dir / "metrics.jsonl", [])
    for file in (run_dir / "episodes").iterdir():
        file.unlink()
    parsed = page(run_dir)
    state, problems = parsed.texts["aside"]
    assert "The run was killed, or its summary.json is lost" in state
    assert "summary.json is missing." in problems and "episodes/ holds no episodes." in problems
    assert "Neither summary.json nor episodes/ holds a finished evaluation." in parsed.texts["body"][0]
    assert not parsed.all("figure")


def test_a_run_that_goes_on_says_so(run_dir: Path) -> None:
    (run_dir / "summary.json").unlink()
    with Lock(run_dir / "lock", "the run"):
        assert "The run is still going on" in page(run_dir).texts["aside"][0]
    (run_dir / "summary.json").write_text('{"status"')
    assert "summary.json is damaged" in page(run_dir).texts["aside"][0]


@pytest.mark.parametrize("damaged", [None, '{"eval/success'])
def test_success_is_counted_where_the_summary_is_lost(run_dir: Path, damaged: str | None) -> None:
    (run_dir / "summary.json").unlink()
    if damaged:
        (run_dir / "summary.json").write_text(damaged)
    parsed = page(run_dir)
    body = parsed.texts["body"][0]
    low, high = wilson(3, 4)
    assert "75.0 %" in body and f"{low * 100:.1f} % to {high * 100:.1f} %" in body
    assert "Counted from episodes/ where summary.json does not hold it: before training, after training." in body
    assert "test" in parsed.texts["figure"][0]


def test_problems_are_grouped_by_file_and_handed_back(run_dir: Path) -> None:
    (run_dir / "metrics.jsonl").write_text("x\n" * 75)
    problems: list[str] = []
    write_report(run_dir, problems)
    assert problems == [
        "metrics.jsonl, line 1, is not a whole JSON object and is left out; so are 74 more lines.",
    ]


def test_values_of_strange_kinds_do_no_harm(run_dir: Path, lines: Build, rows: Rows) -> None:
    strange = [
        row | {"eval/success": "high", "eval/success_ci95": [None, "x"], "rollout/turns": None, "eval/turns": []}
        for row in rows
    ]
    lines(run_dir / "metrics.jsonl", [*strange, {"iteration": 4, "train/both/loss": float("nan")}])
    change(
        run_dir, **{"eval/success_ci95": ["a", 1], "time/wall_s": float("nan"), "iterations": [], "train/tokens": None}
    )
    titles = page(run_dir).texts["h2"]
    assert "Loss" in titles and "Turns per episode" not in titles


def test_a_run_of_an_older_version(old_run: Path) -> None:
    parsed = page(old_run)
    assert parsed.texts["h1"] == ["sokoban_specialized"] and not parsed.all("aside")
    assert "rollout/cut_off" in parsed.texts["h2"]  # its metrics have their own names
    assert parsed.all("section", id="explorer")
    assert "troupe.envs.sokoban.Sokoban" in parsed.texts["body"][0]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.0758, "76 ms"), (0.9996, "1 s"), (26.87, "26.9 s"), (432, "7 min 12 s"), (11100, "3 h 5 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
