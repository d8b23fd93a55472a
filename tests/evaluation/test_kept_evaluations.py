"""Evaluations that are kept for the documentation, and the page that is made of them."""

import json
import runpy
from pathlib import Path

import pytest

from troupe.evaluation.records import write

ROOT = Path(__file__).parents[2]
GENERATORS = ROOT / "docs" / "generators"


def played(folder: Path, wins: dict[str, list[bool]], *, run: str | None) -> Path:
    """A finished evaluation of these episodes."""
    lines = {"run": f"'{run}'" if run else "null", "exp": "null" if run else "game_specialized"}
    config = "".join(f"{key}: {value}\n" for key, value in lines.items())
    config += "swap: false\nagents: {}\nsilence: []\necho: {}\nbenchmark: []\n"
    config += f"overrides: []\nrequest:\n  checkpoint: {'last' if run else 'base'}\n"
    rows = [
        {"condition": "temperature=1", "task_id": task, "success": won, "sample": i}
        for task, row in wins.items()
        for i, won in enumerate(row)
    ]
    summary = {"conditions": {"temperature=1": {}}, "time/temperature=1_s": 3.2}
    write(folder, "f" * 12, config, summary, rows, {}, {"commit": "abcdef0123", "code": ""})
    return folder


def test_the_page_has_the_base_and_the_team_beside_it(tmp_path: Path) -> None:
    kept = runpy.run_path(str(GENERATORS / "keep_evaluation.py"))["kept"]
    tasks = [f"task-{i}" for i in range(20)]
    base = played(tmp_path / "base", {task: [i == 0] + [False] * 7 for i, task in enumerate(tasks)}, run=None)
    team = played(
        tmp_path / "team", {task: [True, False] for task in reversed(tasks)}, run="runs/game_specialized/day-0"
    )
    (tmp_path / "evaluations").mkdir()
    for name, place, of in (("game", base, None), ("game_team", team, "game")):
        (tmp_path / "evaluations" / f"{name}.json").write_text(json.dumps(kept(f"{place}@temperature=1", of)))
    text = runpy.run_path(str(GENERATORS / "make_base_models.py"), {"__name__": ""})["page"](tmp_path)
    base_line, team_line = (line for line in text.splitlines() if line.startswith("| `game"))
    assert base_line.startswith("| `game_specialized` | 20 | 0.006 (") and "| 0.050 (" in base_line
    assert "| `make eval exp=game_specialized tasks=20 samples=8 temperature=1` |" in base_line
    assert team_line.startswith("| `game_specialized` | `day-0` | 0.500 (0.416 to 0.584) | @8: 0.050 (")
    assert "| **above** | 19 of 19 | abcdef0 |" in team_line
    assert str(tmp_path) not in text


def test_tasks_that_differ_are_refused() -> None:
    script = runpy.run_path(str(GENERATORS / "make_base_models.py"))
    one = {"experiment": "game", "overrides": [], "run": None, "episodes": 1, "solved": [1], "lost": 0, "tasks": "a"}
    with pytest.raises(ValueError, match="team and its base have different tasks"):
        script["compared"]("team", {**one, "run": "day-0"}, {**one, "tasks": "b"})
    with pytest.raises(ValueError, match="game: 1 episodes were lost"):
        script["successes"]({**one, "lost": 1})


@pytest.mark.slow
def test_the_committed_page_is_that_of_its_evaluations() -> None:
    script = runpy.run_path(str(GENERATORS / "make_base_models.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](), "run `make results`"


def test_a_team_that_is_not_itself_is_refused(tmp_path: Path) -> None:
    kept = runpy.run_path(str(GENERATORS / "keep_evaluation.py"))["kept"]
    folder = played(tmp_path / "team", {"a": [True]}, run="runs/game_specialized/day-0")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("silence: []", "silence: [tool]"))
    with pytest.raises(ValueError, match=r"not \['silence'\]"):
        kept(str(folder), None)
