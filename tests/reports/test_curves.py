"""Which curves a run has, and what is in them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from troupe.reports.curves import GREY, PALETTE, all_other, colours, learning_curve, per_agent_and_policy, time_keys
from troupe.runs.run import RunReader


def test_the_learning_curve_ends_with_the_tests(run_dir: Path) -> None:
    drawing = learning_curve(RunReader(run_dir))
    assert drawing is not None
    assert [mark.name for mark in drawing.marks] == [
        "best of K, training",
        "test",
        "",
        "validation",
    ]
    assert [mark.colour for mark in drawing.marks] == [PALETTE, GREY, 0, 0]
    assert drawing.marks[2].line.startswith("M0.0 750.0 L")  # from the test before training to the first validation
    assert drawing.hits[0].tip == "iteration 0\ntest: 25.0 % (12.5 % to 50.0 %)"
    assert drawing.hits[-1].tip.splitlines()[-1] == "test: 75.0 % (50.0 % to 87.5 %)"
    assert drawing.note.startswith("Best of K: ")


def test_a_validation_before_training_is_a_part_of_its_line(
    run_dir: Path, lines: Callable[..., None], episode: Callable[..., dict[str, Any]]
) -> None:
    summary = json.loads((run_dir / "summary.json").read_text())
    summary |= {"validation_before/success": 0.125, "validation_before/success_ci95": [0.0, 0.25]}
    (run_dir / "summary.json").write_text(json.dumps(summary))
    drawing = learning_curve(RunReader(run_dir))
    assert drawing is not None and "" not in [mark.name for mark in drawing.marks]
    assert "validation: 12.5 % (0.0 % to 25.0 %)" in drawing.hits[0].tip
    (run_dir / "summary.json").unlink()  # of a run that goes on
    lines(run_dir / "episodes" / "validation_00000.jsonl", [episode("a", True), episode("b", False)])
    drawing = learning_curve(RunReader(run_dir, tolerant=True))
    assert drawing is not None and "validation: 50.0 % (9.5 % to 90.5 %)" in drawing.hits[0].tip


def test_the_learning_curve_without_a_summary_ends_where_the_test_was_played(run_dir: Path) -> None:
    for name in ("summary.json", "metrics.jsonl"):
        (run_dir / name).unlink()
    drawing = learning_curve(RunReader(run_dir, tolerant=True))
    assert drawing is not None and drawing.hits[-1].tip.startswith("iteration 3\ntest: 75.0 %")


def test_agents_come_first_and_colours_repeat(run_dir: Path) -> None:
    assert colours(RunReader(run_dir), ["plan"]) == {"plan": 1, "tool": 2, "both": 3}
    many = colours(RunReader(run_dir), [str(index) for index in range(PALETTE)])
    assert many["tool"] == many["0"] == 1


def test_one_chart_per_kind_of_metric_that_the_run_has(run_dir: Path) -> None:
    run = RunReader(run_dir)
    titles = [drawing.title for drawing in per_agent_and_policy(run, colours(run, []))]
    assert titles == [
        "Turns per episode",
        "Reward per message, in training",
        "Loss",
        "Gradient norm, before clipping",
        "Generated tokens per second",
        "Seconds per iteration",
    ]
    assert time_keys(run) == [("time/rollout_s", "rollout"), ("time/update_s", "update")]
    assert [drawing.title for drawing in all_other(run, colours(run, []))] == ["train/POLICY/special"]


def test_diagnostics_have_one_line_per_agent(
    run_dir: Path, rows: list[dict[str, Any]], lines: Callable[..., None]
) -> None:
    metrics = {f"diagnostics/{place}/entropy_nats": 0.5 for place in ("tool", "plan", "tool/turn0")}
    lines(run_dir / "metrics.jsonl", [row | metrics for row in rows])
    run = RunReader(run_dir)
    charts = {drawing.title: drawing for drawing in per_agent_and_policy(run, colours(run, []))}
    drawing = charts["Entropy per sampled token, nats"]
    assert [mark.name for mark in drawing.marks] == ["tool", "plan"]
    assert [drawing.title for drawing in all_other(run, colours(run, []))] == ["train/POLICY/special"]


def test_other_metrics_of_agents_share_a_chart_and_say_what_they_are(
    run_dir: Path, rows: list[dict[str, Any]], lines: Callable[..., None]
) -> None:
    metrics = {f"{place}/malformed": 0.5 for place in ("rollout/tool", "rollout/plan", "eval/plan", "rollout/both")}
    lines(run_dir / "metrics.jsonl", [row | metrics | {"rollout/tasks": 2, "rollout/tool/moves": 3} for row in rows])
    run = RunReader(run_dir)
    charts = {drawing.title: drawing for drawing in all_other(run, colours(run, []))}
    assert list(charts) == [
        *("eval/AGENT/malformed", "rollout/both/malformed", "rollout/AGENT/malformed"),
        *("rollout/tasks", "rollout/AGENT/moves", "train/POLICY/special"),
    ]
    assert [mark.name for mark in charts["rollout/AGENT/malformed"].marks] == ["plan", "tool"]
    assert charts["rollout/AGENT/malformed"].note == "Messages that the world cannot read, as a share."
    assert charts["rollout/AGENT/moves"].note.startswith("A number of the world's own")
    assert (charts["rollout/tasks"].note, charts["train/POLICY/special"].note) == ("In this iteration.", "")


def test_all_curves_have_one_axis(run_dir: Path, rows: list[dict[str, Any]], lines: Callable[..., None]) -> None:
    rows[0]["diagnostics/tool/influence"] = 0.5  # measured in the first iteration alone
    lines(run_dir / "metrics.jsonl", rows)
    drawings = per_agent_and_policy(RunReader(run_dir), {"tool": 1, "plan": 2, "both": 3})
    assert {drawing.x_labels[-1] for drawing in drawings} == {(100.0, "3")}


def test_mismatch_has_one_line_per_turn(run_dir: Path, rows: list[dict[str, Any]], lines: Callable[..., None]) -> None:
    metrics = {f"mismatch/tool/turn{turn}/k3_nats": 0.1 * turn for turn in (10, 2)}
    lines(run_dir / "metrics.jsonl", [row | metrics for row in rows])
    run = RunReader(run_dir)
    *_, drawing = per_agent_and_policy(run, colours(run, []))
    assert drawing.title == "tool: KL of the engine from the learner, nats"
    assert [mark.name for mark in drawing.marks] == ["turn2", "turn10"]
