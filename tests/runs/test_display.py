"""What a user watches, on a terminal and elsewhere."""

import errno
import io
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task
from troupe.runs.display import LONG_S, Display, describe, sparkline
from troupe.runs.faults import Observers

EVALUATION = {"success": 0.125, "success_ci95": [0.074, 0.203], "episodes": 200, "turns": 3.456}
ROW = {
    "rollout/best_of_k_success": 0.5,
    "rollout/tool/reward": 0.1234,
    "rollout/plan/reward": 0.25,
    "rollout/turns": 3.2,
    "rollout/tokens_per_s": 12345.6,
    "train/tool/live_groups": 0.625,
    "train/plan/live_groups": 0.5,
}
SAID = {"turn": 0, "agent": "tool", "saw": "the map", "said": "R R", "team": 1.0}


def an_episode(said: str) -> Episode:
    """Of one turn of one agent, with two candidates."""
    candidates = [Candidate(Completion((1,), (-0.5,), text, "stop", "p", 0), 0, 0.5, 0.5) for text in (said, "no")]
    edge = JointAction({"tool": (0, 0)}, outcome=Outcome(True, 1, 0.5))
    return Episode(Task("board", "train", {}), [Node("board", "tool", 0, (1,), candidates)], [edge])


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


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
        f"iteration {done}/4  reward tool 0.123  plan 0.250  live groups tool 62%  plan 50%  turns 3.20  "
        "12,346 tokens/s"
        for done in (1, 2)
    ]


def test_an_agent_that_no_episode_called_has_no_reward() -> None:
    file = io.StringIO()
    with Display("x", 4, Console(file=file, width=120)) as display:
        display.iteration(1, ROW, ("tool", "plan", "judge"), 4)
    assert "iteration 1/4  reward tool 0.123  plan 0.250  judge -  live groups" in file.getvalue()


class Closed(io.StringIO):
    """A terminal that is gone."""

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "gone")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_display_that_fails_does_not_end_the_run(terminal: bool, caplog: pytest.LogCaptureFixture) -> None:
    observers, console = Observers(), Console(file=Closed(), force_terminal=terminal, width=120)
    display = Display("x", 4, console, observers=observers)
    display._live = None if display._live is None else Live(display, console=console, auto_refresh=False)
    with display:
        display.say("a line")
        display.phase("rollout", 1)
        display.iteration(1, {}, ("tool",), 4)  # a mistake of ours
        display.alarms({"one": "ALARM"})
    assert observers.drain()["display"] >= 3
    (warning,) = caplog.messages
    assert warning.startswith("display failed: OSError: [Errno 5] gone; the run goes on")
    caplog.clear()


def test_the_run_goes_on_where_nobody_reads_its_output(tmp_path: Path) -> None:
    """``troupe train | head``: rich would end the process."""
    code = (
        "import logging, os\n"
        "from troupe.runs.display import Display\n"
        "logging.basicConfig(filename='log')\n"
        "with Display('x', 4) as display:\n"
        "    for _ in range(3):\n"
        "        display.say('a line')\n"
        "os.write(2, b'trained')\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    run = [sys.executable, "-c", code]
    ended = subprocess.run(run, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"trained")
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert "display failed: BrokenPipeError: [Errno 32] nobody reads the standard output any more" in line


def test_a_live_panel_on_a_terminal() -> None:
    text = show(terminal=True)
    assert "\x1b" in text
    assert describe("before training", EVALUATION) in text  # stays above the panel
    panel = text[text.rindex("╭") :]
    for part in ("sokoban_shared", "12.5% ▂", "50.0% ▅▅", "tool 0.123  plan 0.250", "12,346", "iteration 2/4", "50%"):
        assert part in panel
    assert "reward tool" not in text  # no plain lines beside it


@pytest.mark.parametrize("terminal", [True, False])
def test_alarms_stay_in_the_panel_and_are_printed_once(terminal: bool) -> None:
    file = io.StringIO()
    with Display("sokoban_shared", 4, Console(file=file, force_terminal=terminal, width=120)) as display:
        for raised in (
            {},
            {"malformed, policy 'p'": "malformed: 0.9"},
            {"malformed, policy 'p'": "malformed: 0.8"},
            {},
        ):
            display.iteration(1, ROW, ("tool", "plan"), 4)
            display.alarms(raised)
            if display._live:
                display._live.refresh()
    text = file.getvalue()
    lines = [re.sub(r"\x1b\[[\d;?]*\w", "", line).strip() for line in text.splitlines() if "│" not in line]
    assert [line for line in lines if "alarm" in line.lower()] == [
        "ALARM malformed: 0.9",
        "alarm over: malformed, policy 'p'",
    ]
    if terminal:
        shown = ["ALARM malformed: 0.8" in panel for panel in panels(text)]
        assert any(shown) and not shown[-1]


def played(file: io.StringIO, *, terminal: bool, seconds: float, verbose: bool = False) -> Clock:
    """A whole iteration whose rollout takes ``seconds``."""
    clock = Clock()
    console = Console(file=file, force_terminal=terminal, width=160)
    with Display("sokoban_shared", 4, console, verbose=verbose, clock=clock) as display:
        display.phase("rollout", 3)
        for said in ("R [bold]R\n\x1b[2J", "L L"):
            clock.now += seconds / 2
            display.rollout_episode(an_episode(said))
        if terminal:
            display._live.refresh()
        display.phase("update")
        clock.now += 2
        if terminal:
            display._live.refresh()
        display.iteration(1, ROW, ("tool", "plan"), 4)
        display.phase("evaluation", 1, "after iteration 1")
        display.evaluation_episode([SAID])
        display.evaluation("validation", EVALUATION)
    return clock


def panels(text: str) -> list[str]:
    return [panel for panel in text.split("╭") if "╯" in panel]


def test_the_run_directory_has_the_phase_until_the_run_ends(tmp_path: Path) -> None:
    with Display("x", 4, Console(file=io.StringIO()), folder=tmp_path) as display:
        for name, detail in (("rollout", ""), ("evaluation", "after iteration 1")):
            display.phase(name, 1, detail)
            assert (tmp_path / "phase").read_text() == (f"{name} ({detail})" if detail else name)
    assert not [*tmp_path.iterdir()]


def test_the_panel_shows_the_phase_and_a_sample_message() -> None:
    file = io.StringIO()
    played(file, terminal=True, seconds=1000.0)
    rollout, update = (next(p for p in panels(file.getvalue()) if name in p) for name in ("rollout", "update"))
    for part in ("2/3 episodes  4 completions  1000 s", "iteration 0/4", "elapsed 0:16:40"):
        assert part in rollout
    assert "turn 0  tool: R [bold]R [2J  (reward 0.50)" in rollout  # the text of a model commands no terminal
    assert "ETA" not in rollout
    assert "2 s" in update and "episodes" not in update
    last = panels(file.getvalue())[-1]
    for part in ("live groups", "tool 62%  plan 50%", "iteration 1/4", "elapsed 0:16:42  ETA 0:50:06", "tool: R R"):
        assert part in last
    assert "evaluation" not in last  # no phase goes on after the end


def test_the_estimate_counts_down_within_an_iteration_and_leaves_out_earlier_sessions() -> None:
    clock, file = Clock(), io.StringIO()
    display = Display("x", 14, Console(file=file, force_terminal=True, width=120), clock=clock)
    display.goes_on(10)
    clock.now += 50  # the evaluation before training is no iteration
    display.phase("rollout", 1)
    clock.now += 20
    display.iteration(11, ROW, ("tool", "plan"), 14)
    clock.now += 15
    display.console.print(display)
    assert "iteration 11/14" in file.getvalue() and "ETA 0:00:45" in file.getvalue()


@pytest.mark.parametrize("seconds", [LONG_S, LONG_S + 1])
def test_only_a_long_phase_gets_a_line_without_a_terminal(seconds: float) -> None:
    file = io.StringIO()
    played(file, terminal=False, seconds=seconds)
    phases = [line for line in file.getvalue().splitlines() if line.startswith(("rollout", "update", "evaluation"))]
    assert phases == ([f"rollout: 2/3 episodes  4 completions  {seconds:.0f} s"] if seconds > LONG_S else [])


def test_verbose_prints_every_phase_with_its_first_episode() -> None:
    file = io.StringIO()
    played(file, terminal=False, seconds=1.0, verbose=True)
    lines = file.getvalue().splitlines()
    iteration = next(line for line in lines if line.startswith("iteration"))
    assert lines == [
        "rollout: 2/3 episodes  4 completions  1 s",
        "    turn 0  tool: R [bold]R [2J  (reward 0.50)",
        "update: 2 s",
        iteration,
        "evaluation (after iteration 1): 1/1 episodes  1 completions  0 s",
        "    turn 0  tool saw: the map",
        "    turn 0  tool: R R  (reward 1.00)",
        describe("validation", EVALUATION),
    ]


def test_on_a_real_terminal() -> None:
    ours, theirs = pty.openpty()
    output: list[bytes] = []
    reader = threading.Thread(target=lambda: output.extend(until_closed(ours)))
    reader.start()
    with open(theirs, "w", encoding="utf-8") as terminal:
        console = Console(file=terminal, width=120)
        with Display("sokoban_shared", 4, console) as display:
            display.phase("rollout", 3)
            display.rollout_episode(an_episode("R R"))
            display.say("a line above")
    reader.join()
    os.close(ours)
    text = b"".join(output).decode()
    assert "\x1b[?25l" in text and text.endswith("\x1b[?25h")  # the cursor is hidden, then shown again
    assert "1/3 episodes" in text and "turn 0  tool: R R" in text
    assert text.index("a line above") < text.rindex("╭")


def until_closed(descriptor: int) -> Iterator[bytes]:
    """What is written to the other end of a pseudo-terminal."""
    while True:
        try:
            yield os.read(descriptor, 4096)
        except OSError:  # Linux: the other end is closed
            return


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
