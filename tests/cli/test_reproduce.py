"""A tiny real table: runs, teams of runs, page; what is finished is not run again."""

import csv
import json
import logging
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig

from troupe.cli import several_evaluations
from troupe.cli.reproduce import run
from troupe.cli.several_evaluations import _outcomes as outcomes_of
from troupe.errors import ConfigError
from troupe.runs.index import find_runs
from troupe.sweep import options
from troupe.sweep.outcomes import Outcomes
from troupe.sweep.overview import Overview
from troupe.sweep.page import has_charts

from ..worlds import slow_but

SILENT = "the paper is silent"
SMALL = "loop.iterations=2 loop.completions=0 loop.tasks_per_iteration=2 loop.eval_every=1 loop.validation_tasks=2"
TABLE: dict[str, Any] = {
    "title": "Couplets",
    "question": "Does it work?",
    "publication": "none",
    "settings": {"own": ["regime=specialized"], "shared": ["regime=shared"]},
    "teams": {
        "exchanged": {"setting": "own", "keys": ["swap=true"]},
        "others": {"setting": "own", "agents": {"<first>": "own"}, "seeds": "others"},
        "mixed": {"setting": "own", "agents": {"<first>": "shared"}},
    },
    "cross_play": {"own": {"first": "own", "second": "own"}, "shared": {"first": "shared", "second": "shared"}},
    "sections": dict.fromkeys(("own", "shared", "exchanged", "others", "mixed"), SILENT),
    "scales": {"laptop": {"seeds": 3, "overrides": [*SMALL.split(), "loop.test_tasks=4", "env.horizon=1"]}},
    "parts": {"couplet": {"experiment": "couplet_specialized", "scales": ["laptop"], "agents": ["first", "second"]}},
    "rows": {
        name: {"setting": name, "paper": {"couplet": {"1.7B": 50}}} for name in ("own", "exchanged", "others", "mixed")
    },
    "claims": [{"claim": "exchange hurts", "setting": "own", "over": "exchanged", "at_least": 0.1, "low_above": 0.0}],
}
FOLDER = Path("runs/reproduce/mine/laptop")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In an empty folder; what Hydra sets for the process is put back."""
    handlers = logging.root.handlers[:]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(TABLE, sort_keys=False))
    yield tmp_path
    HydraConfig.instance().cfg = None
    logging.root.handlers[:] = handlers


def table(name: str) -> list[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_a_table_from_its_yaml_to_its_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["table=mine.yaml", "seeds=2", "jobs=1"]
    assert run([*words, "dry_run=true"]) == 0
    out = capsys.readouterr().out
    assert "mine, couplet: 4 runs, 0 finished, 4 to run" in out and "regime=shared seed=0,1" in out
    assert "and 12 evaluations of teams of finished runs" in out and not Path("runs").exists()

    assert run(words) == 0
    out = capsys.readouterr().out
    assert "run 4 of 4 is done: couplet_shared, seed 1" in out
    assert "at a time, then 12 teams of finished runs" in out and "team 2 of 2: seeds 1 and 1, success" in out
    assert len(list(find_runs(Path("runs")))) == 4
    charts = {f"plot.{kind}" for kind in ("svg", "pdf") if has_charts()}
    files = {"table.md", "table.csv", "table.tex", "verdicts.csv", "summary.jsonl", "parts"}
    assert {path.name for path in FOLDER.iterdir()} == files | charts
    assert [(row["row"], row["n"], row["paper"]) for row in table("table")] == [
        (name, "2", "1.7B: 50") for name in TABLE["rows"]
    ]
    # Two seeds of four tasks decide nothing, but something was compared.
    assert [(row["verdict"], row["n"]) for row in table("verdicts")] == [("undecided", "2")]
    # Each regime beside each: the team "mixed" is that of one pair, the others are the matrix's own.
    cells = [cell for cell in map(json.loads, (FOLDER / "summary.jsonl").read_text().splitlines()) if "cell" in cell]
    others = [each["cell"] for each in cells if each["cell"]["team"] == "others"]
    assert [(each["seed"], each["other_seed"]) for each in others] == [(0, 1), (1, 0)]
    assert len(cells) == 12 and all(each["cell"]["outcomes"] for each in cells)
    assert "couplet, by regime: success by whose policy" in out

    # A run that is cut is named and counts as missing; the others are not run again.
    cut = next(iter(find_runs(Path("runs")))).path / "summary.json"
    whole = cut.read_text()
    cut.write_text(whole[:40])
    assert run([*words, "dry_run=true"]) == 0
    out, err = capsys.readouterr()
    assert "mine, couplet: 4 runs, 3 finished, 1 to run" in out
    assert f"{cut.parent}: summary.json is not whole JSON" in err and "It is left out." in err
    cut.write_text(whole)

    # A second call runs nothing and plays nothing: it reads what is there.
    before = {file: file.stat().st_mtime_ns for file in Path("runs").rglob("results.jsonl")}
    summary = (FOLDER / "summary.jsonl").read_text()
    assert run(words) == 0
    assert {file: file.stat().st_mtime_ns for file in Path("runs").rglob("results.jsonl")} == before and before
    assert (FOLDER / "summary.jsonl").read_text() == summary
    assert "to run" not in capsys.readouterr().out

    # Worker processes play the teams as this one does.
    for file in before:
        shutil.rmtree(file.parent)
    with monkeypatch.context() as patch:
        patch.delattr(several_evaluations, "_outcomes")  # in this process
        assert run(["table=mine.yaml", "seeds=2", "jobs=2"]) == 0
    assert (FOLDER / "summary.jsonl").read_text() == summary
    assert {*Path("runs").rglob("results.jsonl")} == before.keys()
    evaluations = [[f"run={each.path}", "checkpoint=last"] for each in find_runs(Path("runs"))]
    played = several_evaluations.play([*evaluations[:1], ["run=nowhere"], *evaluations[1:]], 2, None)
    assert next(played).mean >= 0
    with pytest.raises(ConfigError, match=r"^run=nowhere: run: nowhere is not a run directory"):
        next(played)

    # A call that is interrupted between two teams keeps what the table had.
    calls = []

    def interrupted(keys: Sequence[str]) -> Outcomes:
        if calls:
            raise KeyboardInterrupt
        calls.append(keys)
        return outcomes_of(keys)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(several_evaluations, "_outcomes", interrupted)
        run(words)
    assert calls and (FOLDER / "summary.jsonl").read_text() == summary
    capsys.readouterr()

    # Without the runs, their summary is enough; what needs their weights is said to be missing.
    Path("earlier.jsonl").write_text(summary)
    shutil.rmtree("runs")
    assert run([*words, "finished=earlier.jsonl"]) == 0
    out = capsys.readouterr().out
    assert "to run" not in out and (FOLDER / "summary.jsonl").read_text() == summary
    assert not Overview.of_sweep(FOLDER / "parts" / "couplet").problems, "a report counts them, too"
    head, *lines = map(json.loads, summary.splitlines())
    kept = [line for line in lines if line.get("cell", {}).get("team") != "exchanged"]
    Path("earlier.jsonl").write_text("\n".join(map(json.dumps, [head, *kept])))
    assert run([*words, "finished=earlier.jsonl"]) == 1
    assert "couplet, exchanged, team 1 of 2: seeds 0 and 0, not played: the run directory" in capsys.readouterr().out
    assert [row["n"] for row in table("table")] == ["2", "0", "2", "2"]


@pytest.mark.slow
def test_the_cost_of_several_tables_is_summed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them: all would take a minute to compose."""
    monkeypatch.setattr(options, "table_names", lambda: ["turns", "writing"])
    folder = Path(__file__).parents[2] / "docs" / "results" / "reproduction"
    words = ["seeds=1", "dry_run=true", f"finished={folder / 'writing_laptop.jsonl'}"]
    assert run(["table=all", *words]) == 0
    out = capsys.readouterr().out
    assert "turns, sokoban: 3 runs, 0 finished, 3 to run" in out and not Path("runs").exists()
    assert out.count("of which none was measured yet: at most 12,000 completions each") >= 4
    *_, total = out.strip().splitlines()
    assert total.startswith("all tables, runs that several of them share counted once: ")


def test_the_papers_scale_is_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["table=multi_turn_single", "scale=paper", "seeds=1"]) == 0
    out = capsys.readouterr().out
    assert "none was measured yet: at most " in out and not Path("runs").exists()


@pytest.mark.slow
def test_a_run_that_fails_is_said_and_leaves_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    content = TABLE | {"teams": {}, "sections": {"own": SILENT, "shared": SILENT}, "claims": []}
    content |= {"rows": {"own": {"setting": "own"}, "shared": {"setting": "shared"}}}
    content["settings"] = {"own": TABLE["settings"]["own"], "shared": ["regime=shared", "policies.shared.base=nowhere"]}
    Path("mine.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    assert run(["table=mine.yaml", "seeds=1", "jobs=1"]) == 1
    out = capsys.readouterr().out
    assert "failed: couplet, shared, seed 0: " in out and "nowhere" in out
    assert [(row["row"], row["n"]) for row in table("table")] == [("own", "1"), ("shared", "0")]


def test_a_mistake_is_an_error_before_anything_starts() -> None:
    for words, named in {
        ("table=mine.yaml", "loop.iteration=3"): r"did you mean loop.iterations\?",
        ("table=mine.yaml", "regime=lora"): "table=mine.yaml varies regime",
        ("table=mine.yaml", "scale=smollm2"): "has no scale=smollm2; it has laptop",
    }.items():
        with pytest.raises(ConfigError, match=named):
            run(list(words))
    assert not Path("runs").exists()


IN_A_TEAM: list[tuple[dict[str, Any], str]] = [
    ({"keys": ["swap=maybe"]}, "teams.mixed: swap must be true, false or agents to agents, got 'maybe'"),
    ({"keys": ["swop=true"]}, r"teams.mixed: swop is an unknown key; did you mean swap\?"),
    ({"keys": ["silence=[<first>,thrid]"]}, "teams.mixed: silence=thrid: the world has no agent 'thrid'"),
    ({"keys": ["swap=true"], "setting": "shared"}, "teams.mixed: swap changes nothing"),
    ({"agents": {"<first>": "own"}, "agent": "frist"}, "teams.mixed: agents.frist: the world has no agent 'frist'"),
    ({"keys": ["world.sise=3"]}, "teams.mixed: world.sise is an unknown key. Known: "),
    ({"keys": ["echo.<first>=<second>"]}, "teams.mixed: echo.first=second: 'second' does not act before 'first'"),
    ({"agent": "frist"}, r"agents: no run has an agent 'frist'; did you mean first\?"),
]


@pytest.mark.parametrize(("changes", "named"), slow_but(IN_A_TEAM[:2], IN_A_TEAM))
def test_a_mistake_in_a_team_is_found_before_its_runs(changes: dict[str, Any], named: str) -> None:
    """``agent``: the name of the part's first agent."""
    content = TABLE | {"cross_play": {}, "claims": [], "rows": {"own": {"setting": "own"}}}
    part, team = TABLE["parts"]["couplet"], {"setting": "own"} | changes
    content["parts"] = {"couplet": part | {"agents": [team.pop("agent", "first"), "second"]}}
    content["teams"] = {"mixed": team} if len(team) > 1 else {}
    content["sections"] = dict.fromkeys(("own", "shared", *content["teams"]), SILENT)
    Path("mine.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(ConfigError, match=f"^table=mine: parts.couplet: {named}"):
        run(["table=mine.yaml", "seeds=1", "dry_run=true"])
