"""What a user watches, on a terminal and elsewhere."""

import io

import pytest
from rich.console import Console

from troupe.runs.display import Display, describe, sparkline

EVALUATION = {"success": 0.125, "success_ci95": [0.074, 0.203], "episodes": 200, "turns": 3.456}
ROW = {
    "rollout/best_of_k_success": 0.5,
    "rollout/tool/reward": 0.1234,
    "rollout/plan/reward": 0.25,
    "rollout/turns": 3.2,
    "rollout/tokens_per_s": 12345.6,
}


def show(terminal: bool) -> str:
    """Everything that a short run writes."""
    file = io.StringIO()
    with Display("sokoban_shared", 4, Console(file=file, force_terminal=terminal, width=120)) as display:
        display.say("sokoban_shared, seed 0: runs/x")
        display.evaluation("before training", EVALUATION)
        display.iteration(1, ROW, ("tool", "plan"), 4)
        display.iteration(2, ROW, ("tool", "plan"), 4)
    return file.getvalue()


def test_an_evaluation_as_a_line() -> None:
    assert describe("after training", EVALUATION) == (
        "after training: success 12.5% (95 % interval 7.4% to 20.3%, 200 held-out tasks), 3.46 turns"
    )


def test_plain_lines_where_there_is_no_terminal() -> None:
    text = show(terminal=False)
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[:2] == ["sokoban_shared, seed 0: runs/x", describe("before training", EVALUATION)]
    assert [line.split("  ETA")[0] for line in lines[2:]] == [
        f"iteration {done}/4  reward tool 0.123  plan 0.250  turns 3.20  12,346 tokens/s" for done in (1, 2)
    ]


def test_a_live_panel_on_a_terminal() -> None:
    text = show(terminal=True)
    assert "\x1b" in text
    assert describe("before training", EVALUATION) in text  # stays above the panel
    panel = text[text.rindex("╭") :]
    for part in ("sokoban_shared", "12.5% ▂", "50.0% ▅▅", "tool 0.123  plan 0.250", "12,346", "iteration 2/4", "50%"):
        assert part in panel
    assert "reward tool" not in text  # no plain lines beside it


def test_the_terminal_is_given_back_after_an_error() -> None:
    file = io.StringIO()
    with (
        pytest.raises(KeyboardInterrupt),
        Display("x", 1, Console(file=file, force_terminal=True)),
    ):
        raise KeyboardInterrupt
    assert file.getvalue().endswith("\x1b[?25h")  # the cursor is shown again


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        ([], ""),
        ([0.0, 0.124, 0.125, 0.5, 0.874, 0.875, 1.0], "▁▁▂▅▇██"),
        ([-0.5, 1.5], "▁█"),
        ([0.0] * 60 + [1.0], "▁" * 39 + "█"),
    ],
)
def test_sparkline(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars
