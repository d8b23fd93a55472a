"""Tables on a terminal and elsewhere."""

import io
import re
import time

from rich.console import Console

from troupe.evaluation.comparison import PairedComparison
from troupe.evaluation.tables import comparison_table, episode_progress, evaluation_table, show

CONDITIONS = {
    "sampled": {"success": 0.5, "success_ci95": [0.25, 0.75], "pass@2": 1.0, "tokens": 12345, "episodes": 40},
    "greedy, in a world with a long name": {"success": 1.0, "success_ci95": [0.9, 1.0], "tokens": 7},
}


def shown(terminal: bool) -> str:
    file = io.StringIO()
    show(Console(file=file, force_terminal=terminal, width=60), evaluation_table(CONDITIONS, {"sampled": 100.0}))
    return file.getvalue()


def test_plain_rows_are_never_wrapped() -> None:
    lines = [line.split("  ") for line in shown(terminal=False).splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells == [
        ["sampled", "greedy, in a world with a long name"],
        ["success", "0.500 (0.250-0.750)", "1.000 (0.900-1.000)"],
        ["pass@2", "1.000"],
        ["tokens", "12,345", "7"],
        ["episodes", "40"],
        ["s per episode", "2.500"],
        ["tokens per s", "123.450"],
    ]


def test_success_beside_averages_over_samples_says_what_it_is_of() -> None:
    rows = evaluation_table({"sampled": CONDITIONS["sampled"] | {"samples": 2}}, {}).columns[0].cells
    assert next(iter(map(str, rows))) == "success, first sample"


def test_a_frame_on_a_terminal() -> None:
    assert "┃" in shown(terminal=True) and "┃" not in shown(terminal=False)


def test_comparisons_have_mcnemars_p_where_tasks_have_one_sample() -> None:
    rows = [
        ("sampled", PairedComparison(1, 4, 0.25, 1.0, 0.75, (0.25, 1.0), 0.25, 0, 3)),
        ("avg", PairedComparison(1, 4, 0.5, 0.25, -0.25, (-0.5, 0.0))),
    ]
    file = io.StringIO()
    show(Console(file=file, width=60), comparison_table(rows))
    lines = [" ".join(line.split()) for line in file.getvalue().splitlines()]
    assert lines == [
        "condition tasks A B B - A (95 %) only A only B McNemar p",
        "sampled 4 0.250 1.000 +0.750 (+0.250 to +1.000) 0 3 0.25",
        "avg 4 0.500 0.250 -0.250 (-0.500 to +0.000) several samples",
    ]


def test_progress_is_a_bar_on_terminals_and_lines_elsewhere() -> None:
    for terminal in (True, False):
        file = io.StringIO()
        with episode_progress(Console(file=file, force_terminal=terminal, width=80), 4, every_s=0.01) as played:
            played.episodes, played.messages = 3, 7
            while not re.search("3.{1,4}4.*7 messages", file.getvalue()):
                time.sleep(0.01)
        said = file.getvalue()
        assert ("3/4" in said) == terminal
        assert bool(re.search(r"^\[\d+ s\] 3 of 4 episodes, 7 messages, ETA \d+ s$", said, re.MULTILINE)) != terminal
    file = io.StringIO()
    with episode_progress(Console(file=file, width=80), 4, every_s=0.01):
        while "\n" not in file.getvalue():
            time.sleep(0.01)
    assert file.getvalue().splitlines()[0] == "[0 s] 0 of 4 episodes, 0 messages, ETA after the first one"


def test_what_a_file_says_is_neither_markup_nor_a_command_for_the_terminal() -> None:
    hostile = {"[/x]\x1b[2J": {"success": "\x1b]0;t\x07", "turns": 1.0, "turns_ci95": ["a", 2]}}
    for terminal in (False, True):
        file = io.StringIO()
        show(Console(file=file, force_terminal=terminal, no_color=True), evaluation_table(hostile, {}))
        assert "[/x]␛[2J" in file.getvalue() and "␛]0;t␇" in file.getvalue()
        assert "\x1b[2J" not in file.getvalue() and "\x07" not in file.getvalue()
    file = io.StringIO()
    row = PairedComparison(1, 4, 0.5, 0.2, -0.2, (-0.5, 0.0))
    show(Console(file=file, width=90), comparison_table([("[/x]\x1b[2J", row)]))
    assert "[/x]␛[2J" in file.getvalue()
