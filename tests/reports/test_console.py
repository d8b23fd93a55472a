"""Continuations of a fork, side by side."""

import io

from rich.console import Console

from troupe.reports.console import ShownContinuation, show_replay

ESCAPE = "\x1b[31m[bold]red\x00"


def test_continuations_stand_beside_each_other() -> None:
    said = {"turn": 1, "agent": "tool", "said": "L", "team": 0.5, "local": None}
    stored = ShownContinuation("stored", [said], True, 2, {1: "#@"}, "@#")
    new = ShownContinuation(ESCAPE, [said | {"said": ESCAPE}, said | {"turn": 2, "said": "", "forced": True}], False, 3)
    shown = io.StringIO()
    console = Console(file=shown, width=100, highlight=False)
    asked = {"turn": 0, "session": f"lead/{ESCAPE}"}
    show_replay(console, ["head", ESCAPE], [said | {"turn": 0}, said | asked], [stored, new])
    text = shown.getvalue()
    assert "\x1b" not in text and "\x00" not in text and "[bold]" in text
    assert "turn 1     lead/␛[31m[bold]red␀ tool: L" in text  # below its parent, two blanks per name
    lines = [line.split() for line in text.splitlines()]
    assert ["turn", "1", "tool:", "L", "(outcome", "+0.50)"] in lines
    assert next(line for line in lines if line[:1] == ["2"])[:2] == ["2", "#@"]
    assert ["3", "tool:", "(nothing)", "(forced,", "outcome", "+0.50)"] in lines
    assert "solved after 2 turns" in text and "not solved after 3 turns" in text
